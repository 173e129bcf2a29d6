"""Settings of a fleet: one validated TOML file per role."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from stepvad.errors import ConfigError
from stepvad.fleet.subjects import SHARDS, Subjects
from stepvad.site.settings.file import read
from stepvad.site.settings.page import NAME, Beside, Reference, Section, Web
from stepvad.site.settings.sections import DEMO, SiteSettings

HINT = "the guide on running a fleet has an example"


class TlsFiles(Section):
    """Certificates, as PEM files."""

    ca: Beside = Field(description="Authority that signed the broker's certificate.")
    cert: Beside | None = Field(None, description="Client certificate, if the broker requires one.")
    key: Beside | None = Field(None, description="Key of the client certificate.")


class BusSettings(Section):
    """The broker and its limits."""

    servers: list[str] = Field(
        ["nats://127.0.0.1:4222"],
        min_length=1,
        description="Addresses of the brokers: nats:// or tls://, without credentials.",
    )
    user: str | None = Field(None, description="User name, if the broker requires one.")
    password: Reference | None = Field(None, description="env:NAME or file:PATH.")
    credentials: Beside | None = Field(
        None, description="A file of NATS credentials (.creds), instead of user and password."
    )
    tls: TlsFiles | None = Field(None, description="Encrypt, and check the broker's certificate.")
    inbox: str = Field(
        "_INBOX",
        pattern=r"^_INBOX(\.[A-Za-z0-9_-]+)*$",
        description="Inbox prefix for the broker's replies, which no other user may read.",
    )
    prefix: str = Field(
        "stepvad", pattern=NAME, description="First part of every subject; one per account."
    )
    shards: int = Field(
        SHARDS, ge=1, le=4096, description="Shards of the poses; fixed for a fleet."
    )
    replicas: Literal[1, 3, 5] = Field(1, description="Brokers that keep each message.")
    poses_mb: float = Field(512.0, gt=0, description="Size limit of poses; the oldest are dropped.")
    poses_s: float = Field(120.0, ge=10, description="How long poses are kept.")
    events_days: float = Field(7.0, gt=0, description="How long events are kept on the bus.")
    events_mb: float = Field(
        1024.0, gt=0, description="Size limit of events on the bus; the oldest are dropped."
    )
    dead_mb: float = Field(
        64.0, gt=0, description="Size limit of unreadable messages; the oldest are dropped."
    )
    duplicates_s: float = Field(
        600.0, ge=10, description="How long duplicates of an event are recognised."
    )
    lease_s: float = Field(
        2.0, ge=0.5, le=60, description="A worker's lease expires after this time without renewal."
    )

    @property
    def subjects(self) -> Subjects:
        """The subject names on the bus."""
        return Subjects(self.prefix, self.shards)

    @model_validator(mode="after")
    def _login(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise ValueError("expected both user and password or neither, got one")
        for server in self.servers:
            if not server.startswith(("nats://", "tls://")) or "@" in server:
                raise ValueError(
                    "expected servers as nats://HOST:PORT or tls://HOST:PORT, got something else | "
                    "credentials belong to user and password"
                )
        return self


class WorkerSettings(Section):
    """Settings of a worker."""

    name: str | None = Field(
        None, pattern=NAME, description="Name in logs; defaults to host and process."
    )
    checkpoint_s: float = Field(1.0, ge=0.1, le=60, description="Interval between checkpoints.")
    silent_s: float = Field(
        30.0, ge=1, description="A camera that sends nothing for this long counts as lost."
    )
    shed_s: float = Field(
        1.5, ge=0.1, description="An overloaded worker sheds frames older than this."
    )
    catch_up_s: float = Field(
        15.0, ge=0, description="Grace period after a takeover in which old frames are not shed."
    )
    metrics: str | None = Field(
        None, pattern=r"^[^\s:]+:\d+$", description="HOST:PORT to serve Prometheus metrics at."
    )


def _bundled(path: object) -> object:
    """Replace `demo:` by the path of the bundled model."""
    if path != DEMO:
        return path
    from stepvad.site import demo

    return demo.MODEL


class ModelSettings(Section):
    """A model and the cameras it scores."""

    cameras: list[str] = Field(
        ["*"], min_length=1, description='Patterns of site/camera, such as "north/*".'
    )
    model: Annotated[Beside, BeforeValidator(_bundled)] = Field(
        description="Model file, made with stepvad fit; demo: for that of the bundled scene."
    )
    threshold: float | None = Field(
        None, gt=0, description="Score that raises an alert; defaults to the model's calibration."
    )

    def has(self, camera: str) -> bool:
        """Whether it scores `site/camera`."""
        return any(fnmatchcase(camera, pattern) for pattern in self.cameras)


class EventsSettings(Section):
    """Events in PostgreSQL."""

    dsn: Reference = Field(
        "env:STEPVAD_EVENTS_DSN",
        description="Where the database address is kept: env:NAME or file:PATH.",
    )
    batch: int = Field(200, ge=1, le=5000, description="Messages stored in one transaction.")
    retention_days: float | None = Field(
        None,
        gt=0,
        le=1e6,
        description="How long events are kept: 30 days, unless the owner's --migrate has stored "
        "another number. A writer's own value can only be longer.",
    )
    stale_s: float = Field(
        3600.0, gt=0, description="An open event without an update for this long counts as stale."
    )
    metrics: str | None = Field(
        None, pattern=r"^[^\s:]+:\d+$", description="HOST:PORT to serve Prometheus metrics at."
    )


class EdgeSettings(Section):
    """Publishing to a fleet."""

    bus: BusSettings = Field(default_factory=BusSettings, description="The broker.")
    publish: Literal["poses", "events"] = Field(
        "poses", description="poses: workers score them; events: this site scores."
    )
    frames_per_message: int = Field(5, ge=1, le=100, description="Frames per message.")
    wait_s: float = Field(0.2, ge=0, le=2, description="Maximum wait of a frame for others.")
    precision: Literal["f4", "f2"] = Field(
        "f4", description="Number format: f2 takes half the space."
    )
    buffer_mb: float = Field(
        64.0,
        gt=0,
        description="Buffer for poses while the broker is unreachable; the oldest are dropped.",
    )
    again_s: float = Field(
        8.0,
        ge=0,
        le=60,
        description="Seconds of poses to resend after a broker was unreachable.",
    )


class EdgeSite(SiteSettings):
    """A site that is part of a fleet."""

    model: Beside = Field(
        Path("model.safetensors"), description="The model that scores; not used to send poses."
    )
    fleet: EdgeSettings = Field(default_factory=EdgeSettings, description="The fleet.")

    @model_validator(mode="after")
    def _hours(self) -> Self:
        if self.fleet.publish == "poses" and any(c.hours or c.zone_hours for c in self.cameras):
            raise ValueError(
                'expected hours with publish = "events", got them with poses | '
                "workers score at any hour: remove the hours, or score here"
            )
        return self


class FleetSettings(Section):
    """Settings of a fleet for one of its roles."""

    logs: Literal["text", "json"] = Field("text", description="Format of the log on stderr.")
    bus: BusSettings = Field(default_factory=BusSettings, description="The broker.")
    worker: WorkerSettings = Field(default_factory=WorkerSettings, description="The worker.")
    models: list[ModelSettings] = Field(
        default_factory=list, description="Models; the first whose pattern fits a camera scores it."
    )
    name: str = Field("fleet", pattern=NAME, description="Name of the fleet, on its page.")
    events: EventsSettings = Field(default_factory=EventsSettings, description="The database.")
    web: Web = Field(default_factory=Web, description="The page; it needs a token.")


def load(path: Path | str) -> FleetSettings:
    """Read settings from a TOML file; its paths are relative to the file."""
    return read(path, FleetSettings, HINT)


def load_edge(path: Path | str) -> EdgeSite:
    """Read the settings of a site that is part of a fleet."""
    return read(path, EdgeSite, HINT)


def load_worker(path: Path | str) -> FleetSettings:
    """Read the settings of a worker, which must have models."""
    settings = load(path)
    if not settings.models:
        raise ConfigError(
            f"{path}: expected at least one [[models]], got none",
            hint='[[models]] cameras = ["*"], model = "model.safetensors"',
        )
    return settings

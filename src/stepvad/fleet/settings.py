"""The settings of a fleet: one TOML file for each role, checked to the line."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from stepvad.errors import ConfigError
from stepvad.fleet.subjects import SHARDS, Subjects
from stepvad.live.sections import NAME, Beside, Reference, Section
from stepvad.live.settings import read

HINT = "the guide on running a fleet has an example"


class Tls(Section):
    """Certificates; every file in PEM."""

    ca: Beside = Field(description="Who signed the certificate of the broker.")
    cert: Beside | None = Field(None, description="Our own certificate, if it asks for one.")
    key: Beside | None = Field(None, description="The key of our own certificate.")


class BusSettings(Section):
    """The broker, and what it keeps."""

    servers: list[str] = Field(
        ["nats://127.0.0.1:4222"],
        min_length=1,
        description="Addresses of the brokers: nats:// or tls://, without credentials.",
    )
    user: str | None = Field(None, description="User name, if it asks for one.")
    password: Reference | None = Field(None, description="env:NAME or file:PATH.")
    credentials: Beside | None = Field(
        None, description="A file of NATS credentials (.creds), instead of user and password."
    )
    tls: Tls | None = Field(None, description="Encrypt, and check the broker's certificate.")
    prefix: str = Field(
        "stepvad", pattern=NAME, description="First part of every subject; one in an account."
    )
    shards: int = Field(
        SHARDS, ge=1, le=4096, description="Parts that the cameras are dealt to; fixed for a fleet."
    )
    replicas: Literal[1, 3, 5] = Field(1, description="Brokers that keep each message.")
    poses_mb: float = Field(512.0, gt=0, description="Poses kept; the oldest go.")
    poses_s: float = Field(120.0, ge=10, description="How long poses are kept.")
    events_days: float = Field(7.0, gt=0, description="How long events are kept on the bus.")
    events_mb: float = Field(1024.0, gt=0, description="Events kept on the bus; the oldest go.")
    dead_mb: float = Field(64.0, gt=0, description="Unreadable messages kept; the oldest go.")
    duplicates_s: float = Field(
        600.0, ge=10, description="How long an event is recognised when it comes again."
    )
    lease_s: float = Field(
        2.0, ge=0.5, le=60, description="A worker that is silent for so long counts as gone."
    )

    @property
    def subjects(self) -> Subjects:
        """The names on the bus."""
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
    """How a worker works."""

    name: str | None = Field(
        None, pattern=NAME, description="Tells it from others in logs; else host and process."
    )
    checkpoint_s: float = Field(1.0, ge=0.1, le=60, description="Between two checkpoints.")
    silent_s: float = Field(
        30.0, ge=1, description="A camera that sends nothing for so long counts as lost."
    )
    shed_s: float = Field(
        1.5, ge=0.1, description="Frames that are older than this are shed, if work does not end."
    )
    catch_up_s: float = Field(
        15.0, ge=0, description="After a takeover, so long nothing is shed for being old."
    )
    metrics: str | None = Field(
        None, pattern=r"^[^\s:]+:\d+$", description="HOST:PORT to serve Prometheus metrics at."
    )


class ModelSettings(Section):
    """Which model scores which cameras."""

    cameras: list[str] = Field(
        ["*"], min_length=1, description='Patterns of site/camera, such as "north/*".'
    )
    model: Beside = Field(description="The model, made with stepvad fit.")
    threshold: float | None = Field(
        None, gt=0, description="Score of an alert; else that of the model's calibration."
    )

    def has(self, camera: str) -> bool:
        """Whether it scores `site/camera`."""
        return any(fnmatchcase(camera, pattern) for pattern in self.cameras)


class Settings(Section):
    """A fleet, as one of its roles is told of it."""

    logs: Literal["text", "json"] = Field("text", description="Form of the lines on stderr.")
    bus: BusSettings = Field(default_factory=BusSettings, description="The broker.")
    worker: WorkerSettings = Field(default_factory=WorkerSettings, description="The worker.")
    models: list[ModelSettings] = Field(
        default_factory=list, description="Models; the first whose pattern fits a camera scores it."
    )


def load(path: Path | str) -> Settings:
    """The settings in a TOML file; paths in it are taken from where the file is."""
    return read(path, Settings, HINT)


def load_worker(path: Path | str) -> Settings:
    """The settings of a worker, which needs models."""
    settings = load(path)
    if not settings.models:
        raise ConfigError(
            f"{path}: expected at least one [[models]], got none",
            hint='[[models]] cameras = ["*"], model = "model.safetensors"',
        )
    return settings

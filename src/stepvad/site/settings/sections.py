"""The sections of a site's settings: cameras, sinks, learning; every key with bounds and text."""

from __future__ import annotations

import re
import secrets as random_words
from pathlib import Path
from typing import Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator, model_validator

from stepvad.config import PoseDevice, PoseRuntime, Precision
from stepvad.errors import StepvadError
from stepvad.events.rules import WatchHours
from stepvad.files import replacing, secret
from stepvad.site.settings.page import (
    NAME,
    Beside,
    Hours,
    NotifySettings,
    RecordingAddress,
    Reference,
    Section,
    Web,
    beside,
    check_distinct,
    device_address,
    has_secret,
    is_loopback,
)
from stepvad.video.camera import Device, device_of, is_device
from stepvad.video.models import DETECTOR, POSE
from stepvad.video.source import PICTURE_RATE
from stepvad.video.url import PLACEHOLDER, PORTS, SCHEMES, CameraTls, Url

LEARNED = "learned"
"""Directory of learned models in the data directory."""
CURRENT = "current"
"""Link to the directory of the model in use."""
MODEL_NAME = "learned.safetensors"

LearningMethod = Literal["usual", "step"]
SourceKind = Literal["stream", "device", "video", "poses", "demo", "nats"]
Zone = list[tuple[float, float]]
Named = TypeVar("Named", "WebhookSettings", NotifySettings)
DEMO = "demo:"
NATS = "nats:"
"""Poses that a device publishes for this site, under the name that follows."""
POSE_SUFFIXES = (".parquet", ".json")

TOKEN = "token"
"""File in the data directory with a generated token."""


class LearningSettings(Section):
    """Learning of a site without a model of its own."""

    method: LearningMethod = Field(
        "usual",
        description="What a model is: the usual motion of the cameras, which takes seconds to fit, "
        "or step, the paper's energy, which takes minutes and the train extra.",
    )
    alerts_per_day: float = Field(
        1.0,
        gt=0,
        le=1000,
        description="About so many alerts a day from each camera: a budget, not a promise: some "
        "days none, some days three. Fewer alerts miss more.",
    )
    strict: bool = Field(
        False,
        description="At most so many, 95 % sure. Takes days, and misses more.",
    )
    fit_hours: Hours = Field(
        ["02:00-05:00"],
        description="Hours in which new models are fitted, after the first ones; the site keeps "
        "watching.",
    )
    keep: int = Field(3, ge=1, le=100, description="Older models to keep.")

    @property
    def hours(self) -> WatchHours:
        """Hours in which it may fit."""
        return WatchHours.parse(self.fit_hours)


class PoseSettings(Section):
    """The networks that find people and their joints."""

    detector: str = Field(DETECTOR, description="Person detector: a known name or an ONNX file.")
    pose: str = Field(POSE, description="Pose network: a known name or an ONNX file.")
    engine: PoseRuntime = Field(
        "auto",
        description="Inference engine; auto: OpenVINO where the processor supports bfloat16, "
        "otherwise ONNX Runtime.",
    )
    precision: Precision = Field(
        "auto", description="auto: bfloat16 where the processor supports it, otherwise float32."
    )
    device: PoseDevice = Field(
        "cpu", description="Processor or accelerator that runs the networks."
    )
    processes: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Processes that share the cameras; defaults to one per camera, at most one "
        "per core, and one on an accelerator.",
    )
    threads: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Threads of each process that the people of a picture are dealt to; defaults "
        "to the cores that each process has to itself.",
    )
    min_confidence: float = Field(
        0.25, ge=0, le=1, description="Drop people with a lower mean joint confidence."
    )

    @field_validator("detector", "pose")
    @classmethod
    def _file(cls, model: str, info: ValidationInfo) -> str:
        return str(beside(Path(model), info)) if Path(model).suffix else model


class RetentionSettings(Section):
    """Days and megabytes for which data is kept."""

    events_days: float = Field(30.0, gt=0, description="Events.")
    poses_days: float = Field(7.0, gt=0, description="Poses, both of events and recorded.")
    poses_mb: float = Field(
        2000.0, gt=0, description="Size limit of recorded poses; the oldest are deleted."
    )


class CameraSettings(Section):
    """One camera."""

    name: str = Field(
        pattern=NAME,
        description="Letters, digits, - and _; it is part of topics, addresses and file names.",
    )
    url: str = Field(
        description="rtsp:// or http:// address without credentials, an attached camera "
        "(/dev/video0, or /dev/video0?size=1280x720&rate=15 for a mode), the path of a "
        "video, of a folder of pictures or of poses (.parquet, .json), nats:NAME for poses that "
        "a device publishes to the brokers of [fleet], or demo: for the bundled scene."
    )
    credentials: Reference | None = Field(
        None, description="Where user:password is kept: env:NAME or file:PATH."
    )
    tls_ca: Beside | None = Field(
        None,
        description="For rtsps:// and https://: a PEM file with the authority that signed the "
        "camera's certificate, or with that certificate; defaults to the system's "
        "authorities.",
    )
    tls_insecure: bool = Field(
        False,
        description="Accept any certificate; an impostor would get the password.",
    )
    rate: float = Field(
        10.0,
        gt=0,
        le=120,
        description="Frames per second to score; for a model that counts frames, its own rate.",
    )
    picture_rate: float = Field(
        PICTURE_RATE,
        gt=0,
        le=1000,
        description="Frames per second of a folder of pictures.",
    )
    model: Beside | None = Field(None, description="Model of this camera; defaults to the site's.")
    threshold: float | None = Field(
        None, gt=0, description="Score that raises an alert; defaults to the model's calibration."
    )
    went_down: bool = Field(
        False, description="Alert if someone goes down fast and is not seen for two seconds."
    )
    zones: dict[str, Zone] = Field(
        default_factory=dict,
        description="Named polygons; corners are fractions of the picture, from 0 to 1.",
    )
    hours: Hours | None = Field(
        None,
        min_length=1,
        description='Hours in which events are raised, such as ["08:00-18:00"], in the machine\'s '
        "time zone; defaults to always. Scores are shown at any time.",
    )
    zone_hours: dict[str, Hours] = Field(
        default_factory=dict,
        description="Hours in which people in a zone raise events, within the hours of the camera; "
        "[] means never. A zone without an entry raises them at any time.",
    )
    loop: bool = Field(False, description="Play a file in a loop.")
    record: bool = Field(False, description="Record poses, to fit and calibrate on them.")
    recorder: RecordingAddress | None = Field(
        None,
        description="Address of an event's clip in a video recorder, such as "
        "http://frigate:5000/api/{camera}/start/{start}/end/{end}/clip.mp4; {id} works, too.",
    )

    @property
    def kind(self) -> SourceKind:
        """The kind of source, derived from the URL."""
        if self.url == DEMO:
            return "demo"
        if self.url.startswith(NATS):
            return "nats"
        if is_device(self.url):
            return "device"
        if "://" in self.url:
            return "stream"
        return "poses" if Path(self.url).suffix in POSE_SUFFIXES else "video"

    @property
    def subject(self) -> str:
        """The name under which a device publishes poses for this camera."""
        return self.url.removeprefix(NATS)

    @property
    def is_live(self) -> bool:
        """True if it is a camera, which may come back when it is lost, and not a file."""
        return self.kind in ("stream", "device")

    @property
    def has_pictures(self) -> bool:
        """True if the source has pictures, in which people are yet to be found."""
        return self.is_live or self.kind == "video"

    @property
    def uses_tls(self) -> bool:
        """True if the camera is accessed over TLS."""
        return self.url.partition("://")[0] in PORTS

    def address(self) -> Url:
        """The URL of a stream with its credentials."""
        tls = CameraTls(self.tls_ca, self.tls_insecure)
        if self.credentials is None:
            return Url(self.url, tls=tls)
        # from a file at each connection, or from the environment by way of a placeholder
        kind, _, rest = self.credentials.partition(":")
        if kind == "file":
            return Url(self.url, credentials=Path(rest), tls=tls)
        return Url(self.url.replace("://", f"://${{{rest}}}@", 1), tls=tls)

    def live_source(self) -> Url | Device:
        """The address of a live camera, with what opens it."""
        return device_of(self.url) if self.kind == "device" else self.address()

    @field_validator("url")
    @classmethod
    def _url(cls, url: str, info: ValidationInfo) -> str:
        if is_device(url):
            return device_address(url)
        if url.startswith(NATS) and "://" not in url:
            if not re.fullmatch(NAME, url.removeprefix(NATS)):
                raise ValueError("expected nats:NAME of letters, digits, - and _, got another name")
            return url
        if "://" not in url:
            return url if url == DEMO else str(beside(Path(url), info))
        # a placeholder for a secret is fine, a secret is not
        bare = PLACEHOLDER.sub("", url)
        if bare.partition("://")[0] not in SCHEMES:
            raise ValueError(
                f"expected one of {', '.join(SCHEMES)}, got another scheme | "
                "a file is named by its path alone"
            )
        if has_secret(bare):
            raise ValueError(
                "expected an address without credentials, got some in it | "
                'remove them and set credentials = "env:NAME" or "file:PATH"'
            )
        return url

    @field_validator("zones")
    @classmethod
    def _zones(cls, zones: dict[str, Zone]) -> dict[str, Zone]:
        for name, corners in zones.items():
            if not re.fullmatch(NAME, name):
                raise ValueError(f"expected letters, digits, - and _ in a name, got {name!r}")
            if len(corners) < 3 or not all(0 <= v <= 1 for xy in corners for v in xy):
                raise ValueError(
                    f"zone {name}: expected at least 3 corners of numbers from 0 to 1, got "
                    f"{corners} | divide pixels by the width and height of the picture"
                )
        return zones

    @model_validator(mode="after")
    def _zone_hours(self) -> Self:
        unknown = [zone for zone in self.zone_hours if zone not in self.zones]
        if unknown:
            raise ValueError(
                f"expected zone_hours of its zones, got {unknown[0]!r} | "
                f"its zones: {', '.join(self.zones) or 'none'}"
            )
        return self

    @model_validator(mode="after")
    def _credentials(self) -> Self:
        if self.credentials is not None and self.kind != "stream":
            raise ValueError(
                "expected credentials for an address with ://, got another source | "
                "remove credentials"
            )
        if self.credentials is not None and "@" in urlsplit(self.url).netloc:
            raise ValueError(
                "expected credentials or ${NAME} in the address, got both | remove one of them"
            )
        return self

    @model_validator(mode="after")
    def _tls(self) -> Self:
        if self.tls_ca is not None and self.tls_insecure:
            raise ValueError(
                "expected tls_ca or tls_insecure, got both | remove tls_insecure: tls_ca is safe"
            )
        if (self.tls_ca is not None or self.tls_insecure) and not self.uses_tls:
            raise ValueError(
                "expected rtsps:// or https:// with tls_ca or tls_insecure, got another address | "
                "write rtsps:// if the camera has it, or remove them"
            )
        return self


class MqttSettings(Section):
    """An MQTT broker that receives events."""

    host: str = Field(min_length=1, description="Name or address of the broker.")
    port: int = Field(1883, ge=1, le=65535, description="Its port.")
    prefix: str = Field("stepvad", pattern=r"^[^#+\s]+$", description="First part of every topic.")
    username: str | None = Field(None, description="User name, if the broker requires one.")
    password: Reference | None = Field(None, description="env:NAME or file:PATH.")
    tls: bool = Field(False, description="Encrypt, and check the broker's certificate.")
    discovery_prefix: str = Field(
        "homeassistant",
        pattern=r"^[^#+\s]*$",
        description="Discovery prefix of Home Assistant; empty: no discovery.",
    )
    marks: bool = Field(
        False,
        description="Accept marks of events on PREFIX/marks, from a broker with MQTT 5. Anyone who "
        "may publish there can have motion passed over: a broker elsewhere needs a password.",
    )

    @model_validator(mode="after")
    def _marks(self) -> Self:
        is_open = self.username is None or self.password is None
        if self.marks and is_open and not is_loopback(self.host):
            raise ValueError(
                "expected username and password with marks, got none for a broker on another "
                "machine | whoever may publish there can raise thresholds: have the broker ask for "
                "a password, and name it here"
            )
        return self


class WebhookSettings(Section):
    """A web address to which every event is posted."""

    name: str = Field("webhook", pattern=NAME, description="Unique name of the webhook.")
    url: str = Field(pattern=r"^https?://[^\s@]+$", description="http:// or https:// address.")
    secret: Reference | None = Field(
        None, description="Key that signs the requests: env:NAME or file:PATH."
    )
    timeout_s: float = Field(5.0, gt=0, le=60, description="Time-out of a request.")


class JsonLinesSettings(Section):
    """A file that gets one line per change of an event."""

    path: Beside = Field(description="The file; created if missing.")


class Sinks(Section):
    """Sinks of events, in addition to the store."""

    mqtt: MqttSettings | None = Field(None, description="A broker.")
    webhooks: list[WebhookSettings] = Field(
        default_factory=list, description="Addresses to post to."
    )
    file: JsonLinesSettings | None = Field(None, description="A file of JSON lines.")
    notify: list[NotifySettings] = Field(
        default_factory=list, description="People who get a message."
    )

    @field_validator("webhooks", "notify")
    @classmethod
    def _distinct(cls, sinks: list[Named]) -> list[Named]:
        check_distinct(sink.name for sink in sinks)
        return sinks


class TlsFiles(Section):
    """Certificates, as PEM files; they may be renewed while they are used."""

    ca: Beside = Field(description="Authority that signed the certificate of the brokers.")
    cert: Beside | None = Field(None, description="Client certificate, if the brokers ask for one.")
    key: Beside | None = Field(None, description="Key of the client certificate.")


class BrokerSettings(Section):
    """NATS brokers, and how to log in to them."""

    servers: list[str] = Field(
        ["nats://127.0.0.1:4222"],
        min_length=1,
        description="Addresses of the brokers: nats:// or tls://, without credentials.",
    )
    user: str | None = Field(None, description="User name, if the brokers ask for one.")
    password: Reference | None = Field(None, description="env:NAME or file:PATH.")
    tls: TlsFiles | None = Field(None, description="Encrypt, and check the brokers' certificate.")

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


class SiteFleet(BrokerSettings):
    """The fleet that a site belongs to."""

    group: str = Field(
        "sites", pattern=NAME, description="Group of sites that run the same model and settings."
    )


class SiteSettings(Section):
    """Everything that `stepvad watch` needs."""

    name: str = Field("site", pattern=NAME, description="Name of the site.")
    data: Beside = Field(Path("site-data"), description="Directory for all data.")
    model: Beside | None = Field(
        None,
        description="Model file, made with stepvad fit; without one the site learns its own from "
        "its cameras.",
    )
    learning: LearningSettings = Field(
        default_factory=LearningSettings, description="How a site without a model learns its own."
    )
    logs: Literal["text", "json"] = Field("text", description="Format of the log on stderr.")
    cameras: list[CameraSettings] = Field(min_length=1, description="The cameras.")
    pose: PoseSettings = Field(default_factory=PoseSettings, description="The networks.")
    sinks: Sinks = Field(default_factory=Sinks, description="Where events go.")
    retention: RetentionSettings = Field(
        default_factory=RetentionSettings, description="How long data is kept."
    )
    web: Web = Field(default_factory=Web, description="The page.")
    fleet: SiteFleet | None = Field(
        None, description="The fleet that gets the events and says what to run; none by default."
    )

    @field_validator("cameras")
    @classmethod
    def _distinct(cls, cameras: list[CameraSettings]) -> list[CameraSettings]:
        check_distinct(camera.name for camera in cameras)
        return cameras

    @model_validator(mode="after")
    def _poses(self) -> Self:
        subjects = [camera.subject for camera in self.cameras if camera.kind == "nats"]
        check_distinct(subjects)
        if subjects and self.fleet is None:
            raise ValueError(
                f"expected [fleet] with a camera at {NATS}{subjects[0]}, got none | "
                "name the brokers to which its device publishes"
            )
        return self

    @model_validator(mode="after")
    def _notified(self) -> Self:
        for people in self.sinks.notify:
            people.check_names(
                [camera.name for camera in self.cameras],
                [zone for camera in self.cameras for zone in camera.zones],
            )
        return self

    def camera(self, name: str) -> CameraSettings:
        """The camera of this name."""
        return next(camera for camera in self.cameras if camera.name == name)

    def model_of(self, camera: CameraSettings) -> Path:
        """The model that scores a camera; that of a site that learns may not be there yet."""
        return camera.model or self.model or self.data / LEARNED / CURRENT / MODEL_NAME

    def learns(self, camera: CameraSettings) -> bool:
        """True if the site learns the model of a camera."""
        return camera.model is None and self.model is None

    @property
    def is_learning(self) -> bool:
        """True if the site learns the model of some camera."""
        return any(self.learns(camera) for camera in self.cameras)


def token_of(settings: SiteSettings) -> str:
    """The token from the settings, or one generated and saved at the first start."""
    if settings.web.token is not None:
        return secret(settings.web.token)
    # made at the first start, or after a start on a full disk
    path, made = settings.data / TOKEN, random_words.token_urlsafe(24)
    try:
        if not path.exists() or path.stat().st_size == 0:  # empty after a start on a full disk
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with replacing(path) as temporary:
                temporary.write_text(made + "\n", encoding="utf-8")
    except (OSError, StepvadError):  # events go out without a disk, and nobody knows this one
        return made
    return secret(f"file:{path}")

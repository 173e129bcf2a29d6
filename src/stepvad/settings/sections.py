"""The settings of a site: cameras, sinks, retention and web page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from stepvad.config import PoseDevice, PoseRuntime, Precision
from stepvad.files.secrets import is_reference
from stepvad.settings.addresses import device_address, has_secret, network_of, origin_of
from stepvad.video.device import Device, device_of, is_device
from stepvad.video.models import DETECTOR, POSE
from stepvad.video.pictures import PICTURE_RATE
from stepvad.video.tls import PORTS, CameraTls
from stepvad.video.url import SCHEMES, Url

SourceKind = Literal["stream", "device", "video", "poses", "demo"]
Zone = list[tuple[float, float]]

DEMO = "demo:"
POSE_SUFFIXES = (".parquet", ".json")
NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
_PLACEHOLDER = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


def _beside(path: Path, info: ValidationInfo) -> Path:
    """Resolve a path relative to the settings file."""
    directory = (info.context or {}).get("directory")
    return path if directory is None else directory / path.expanduser()


def _reference(text: str, info: ValidationInfo) -> str:
    """Validate a reference to a secret; file paths are relative to the settings file."""
    if not is_reference(text):
        raise ValueError(
            "expected env:NAME or file:PATH, got something else | "
            "put the secret into an environment variable or a file and name that here"
        )
    kind, _, rest = text.partition(":")
    return text if kind == "env" else f"file:{_beside(Path(rest), info)}"


Beside = Annotated[Path, AfterValidator(_beside)]
Reference = Annotated[str, AfterValidator(_reference)]


class Section(BaseModel):
    """A table of settings: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class CameraSettings(Section):
    """One camera."""

    name: str = Field(
        pattern=NAME,
        description="Letters, digits, - and _; it is part of topics, addresses and file names.",
    )
    url: str = Field(
        description="rtsp:// or http:// address without credentials, an attached camera "
        "(/dev/video0, with ?size=1280x720&rate=15 in that mode), the path of a video or of a "
        "folder of pictures, the path of poses (.parquet, .json), or demo: for the bundled scene."
    )
    credentials: Reference | None = Field(
        None, description="Where user:password is: env:NAME or file:PATH."
    )
    tls_ca: Beside | None = Field(
        None,
        description="For rtsps:// and https://: a PEM file with the authority that signed the "
        "camera's certificate, or with that certificate; else the system's authorities.",
    )
    tls_insecure: bool = Field(
        False,
        description="Take any certificate: whoever answers in the camera's place gets the "
        "password.",
    )
    rate: float = Field(
        10.0, gt=0, le=120, description="Frames per second to score, as the model was fitted on."
    )
    picture_rate: float = Field(
        PICTURE_RATE,
        gt=0,
        le=1000,
        description="Frames per second of a folder of pictures, which does not state it.",
    )
    model: Beside | None = Field(None, description="A model of its own; else that of the site.")
    threshold: float | None = Field(
        None, gt=0, description="Score of an alert; else that of the model's calibration."
    )
    went_down: bool = Field(
        False, description="Alert if somebody goes down fast and is not seen for two seconds."
    )
    zones: dict[str, Zone] = Field(
        default_factory=dict,
        description="Named polygons whose corners are fractions of the picture, from 0 to 1.",
    )
    loop: bool = Field(False, description="Play a file again and again.")
    record: bool = Field(False, description="Keep the poses seen, to fit and calibrate on them.")

    @property
    def kind(self) -> SourceKind:
        """The kind of source, derived from the URL."""
        if self.url == DEMO:
            return "demo"
        if is_device(self.url):
            return "device"
        if "://" in self.url:
            return "stream"
        return "poses" if Path(self.url).suffix in POSE_SUFFIXES else "video"

    @property
    def is_live(self) -> bool:
        """Whether it is a camera, which may come back when it is lost, and not a file."""
        return self.kind in ("stream", "device")

    @property
    def has_pictures(self) -> bool:
        """Whether the source has pictures, in which people are yet to be found."""
        return self.is_live or self.kind == "video"

    @property
    def uses_tls(self) -> bool:
        """Whether the camera is accessed over TLS."""
        return self.url.partition("://")[0] in PORTS

    def address(self) -> Url:
        """The URL of a stream with its credentials."""
        tls = CameraTls(self.tls_ca, self.tls_insecure)
        if self.credentials is None:
            return Url(self.url, tls=tls)
        kind, _, rest = self.credentials.partition(":")
        if kind == "file":
            return Url(self.url, credentials=Path(rest), tls=tls)
        return Url(self.url.replace("://", f"://${{{rest}}}@", 1), tls=tls)

    def live_source(self) -> Url | Device:
        """What a live camera is opened by."""
        return device_of(self.url) if self.kind == "device" else self.address()

    @field_validator("url")
    @classmethod
    def _url(cls, url: str, info: ValidationInfo) -> str:
        if is_device(url):
            return device_address(url)
        if "://" not in url:
            return url if url == DEMO else str(_beside(Path(url), info))
        bare = _PLACEHOLDER.sub("", url)
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


class PoseSettings(Section):
    """The networks that find people and their joints."""

    detector: str = Field(DETECTOR, description="Person detector: a known name or an ONNX file.")
    pose: str = Field(POSE, description="Pose network: a known name or an ONNX file.")
    engine: PoseRuntime = Field(
        "auto",
        description="What runs them; auto: OpenVINO where the processor multiplies bfloat16, else "
        "ONNX Runtime.",
    )
    precision: Precision = Field(
        "auto", description="auto: bfloat16 where the processor multiplies it, else float32."
    )
    device: PoseDevice = Field("cpu", description="Processor or accelerator they run on.")
    workers: int = Field(1, ge=1, le=64, description="Processes that run them.")
    threads: int = Field(1, ge=1, le=64, description="Threads of each process.")
    min_confidence: float = Field(
        0.25, ge=0, le=1, description="People whose joints are less sure on average are left out."
    )
    follow: bool = Field(
        True,
        description="Follow people whom the detector loses, such as those who fall, by their "
        "last pose.",
    )
    batch: int = Field(4, ge=1, le=64, description="Frames of all cameras looked at together.")

    @field_validator("detector", "pose")
    @classmethod
    def _file(cls, model: str, info: ValidationInfo) -> str:
        return str(_beside(Path(model), info)) if Path(model).suffix else model


class MqttSettings(Section):
    """A broker that hears of events."""

    host: str = Field(min_length=1, description="Name or address of the broker.")
    port: int = Field(1883, ge=1, le=65535, description="Its port.")
    prefix: str = Field("stepvad", pattern=r"^[^#+\s]+$", description="First part of every topic.")
    username: str | None = Field(None, description="User name, if it asks for one.")
    password: Reference | None = Field(None, description="env:NAME or file:PATH.")
    tls: bool = Field(False, description="Encrypt, and check the broker's certificate.")
    discovery_prefix: str = Field(
        "homeassistant",
        pattern=r"^[^#+\s]*$",
        description="Where Home Assistant looks for new devices; empty: tell it nothing.",
    )


class WebhookSettings(Section):
    """An address that every event is posted to."""

    name: str = Field("webhook", pattern=NAME, description="Tells it from others.")
    url: str = Field(pattern=r"^https?://[^\s@]+$", description="http:// or https:// address.")
    secret: Reference | None = Field(
        None, description="Key that signs what is posted: env:NAME or file:PATH."
    )
    timeout_s: float = Field(5.0, gt=0, le=60, description="Longest wait for an answer.")


class JsonLinesSettings(Section):
    """A file that gets one line per change of an event."""

    path: Beside = Field(description="The file; it is made if there is none.")


class Sinks(Section):
    """Where events go, beside the store."""

    mqtt: MqttSettings | None = Field(None, description="A broker.")
    webhooks: list[WebhookSettings] = Field(
        default_factory=list, description="Addresses to post to."
    )
    file: JsonLinesSettings | None = Field(None, description="A file of JSON lines.")

    @field_validator("webhooks")
    @classmethod
    def _distinct(cls, webhooks: list[WebhookSettings]) -> list[WebhookSettings]:
        _check_distinct(webhook.name for webhook in webhooks)
        return webhooks


class RetentionSettings(Section):
    """How long things are kept."""

    events_days: float = Field(30.0, gt=0, description="Events.")
    poses_days: float = Field(7.0, gt=0, description="Poses, of events and recorded ones.")
    poses_mb: float = Field(2000.0, gt=0, description="Recorded poses at most; the oldest go.")


class Web(Section):
    """The page to look at."""

    enabled: bool = Field(True, description="Whether there is one.")
    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 is all of them.")
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0: any free one.")
    token: Reference | None = Field(
        None, description="env:NAME or file:PATH; else one is made and kept beside the data."
    )
    public_url: str | None = Field(
        None,
        description="The address that browsers use when a proxy is in front of the page, such as "
        "https://cameras.example.org.",
    )
    trusted_proxies: list[str] = Field(
        default_factory=list,
        description="Addresses or networks of proxies whose X-Forwarded-For and "
        "X-Forwarded-Proto are believed.",
    )
    certificate: Beside | None = Field(
        None, description="PEM file with the certificate chain: the page itself speaks TLS."
    )
    key: Beside | None = Field(None, description="PEM file with the key of the certificate.")

    @property
    def url(self) -> str:
        """The URL of the page for browsers."""
        scheme = "https" if self.certificate else "http"
        return self.public_url or f"{scheme}://{self.host}:{self.port}"

    @field_validator("public_url")
    @classmethod
    def _public_url(cls, url: str | None) -> str | None:
        return None if url is None else origin_of(url)

    @field_validator("trusted_proxies")
    @classmethod
    def _trusted_proxies(cls, proxies: list[str]) -> list[str]:
        return [network_of(proxy) for proxy in proxies]

    @model_validator(mode="after")
    def _tls(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError(
                "expected certificate and key, got one of them | name both files, or none of them"
            )
        is_https = (self.public_url or "").startswith("https:")
        if is_https and self.certificate is None and not self.trusted_proxies:
            raise ValueError(
                "expected trusted_proxies with an https public_url, got none | name the address of "
                "the proxy, 127.0.0.1 if it runs on this machine"
            )
        return self


class SiteSettings(Section):
    """A site: everything that `stepvad watch` is told."""

    name: str = Field("site", pattern=NAME, description="Name of the site.")
    data: Beside = Field(Path("site-data"), description="Directory for all that is kept.")
    model: Beside = Field(description="The model that scores, made with stepvad fit.")
    logs: Literal["text", "json"] = Field("text", description="Form of the lines on stderr.")
    cameras: list[CameraSettings] = Field(min_length=1, description="The cameras.")
    pose: PoseSettings = Field(default_factory=PoseSettings, description="The networks.")
    sinks: Sinks = Field(default_factory=Sinks, description="Where events go.")
    retention: RetentionSettings = Field(
        default_factory=RetentionSettings, description="How long things are kept."
    )
    web: Web = Field(default_factory=Web, description="The page.")

    @field_validator("cameras")
    @classmethod
    def _distinct(cls, cameras: list[CameraSettings]) -> list[CameraSettings]:
        _check_distinct(camera.name for camera in cameras)
        return cameras

    def camera(self, name: str) -> CameraSettings:
        """The camera of this name."""
        return next(camera for camera in self.cameras if camera.name == name)

    def model_of(self, camera: CameraSettings) -> Path:
        """The model that scores a camera."""
        return camera.model or self.model


def _check_distinct(names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"expected distinct names, got {twice[0]!r} twice | rename one of them")

"""Requests and responses of the settings API."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from stepvad.settings.edits import Edit, KeyChanges
from stepvad.settings.sections import PoseSettings, RetentionSettings, SiteSettings
from stepvad.site.camera_trial import CameraPicture, Joint
from stepvad.site.sinks import names

Digest = Annotated[
    str, Field(max_length=64, description="Of the file that was loaded; it must not have changed.")
]
Text = Annotated[str, Field(max_length=60_000, description="The whole file.")]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WrongSettings(_Answer):
    """Why settings are refused."""

    problem: str
    hint: str = ""
    line: int | None = Field(None, description="Line of the text, counted from 1.")
    excerpt: str = Field("", description="What that line says.")


class CameraForm(BaseModel):
    """A camera as the file has it; None: the file says nothing, so the default counts."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    url: str
    credentials: str | None = None
    tls_ca: str | None = None
    tls_insecure: bool | None = None
    rate: float | None = None
    picture_rate: float | None = None
    model: str | None = None
    threshold: float | None = None
    went_down: bool | None = None
    loop: bool | None = None
    record: bool | None = None
    draw_place: bool | None = None
    hours: list[str] | None = None
    zones: dict[str, list[tuple[float, float]]] = Field(default_factory=dict)
    zone_hours: dict[str, list[str]] = Field(default_factory=dict)


class PoseForm(_Answer):
    """The settings of the pose networks that a form shows."""

    workers: int
    threads: int
    min_confidence: float
    follow: bool

    @classmethod
    def of(cls, pose: PoseSettings) -> PoseForm:
        """Build from the settings."""
        return cls(
            workers=pose.workers,
            threads=pose.threads,
            min_confidence=pose.min_confidence,
            follow=pose.follow,
        )


class SettingsValues(_Answer):
    """What the file says, for forms; secrets are references."""

    cameras: list[CameraForm]
    sinks: list[str]
    retention: RetentionSettings
    pose: PoseForm

    @classmethod
    def of(cls, settings: SiteSettings, facts: dict[str, object]) -> SettingsValues:
        """Build from valid settings and the plain values of the file."""
        cameras = facts.get("cameras")
        return cls(
            cameras=[CameraForm.model_validate(one) for one in cameras]
            if isinstance(cameras, list)
            else [],
            sinks=[*names(settings.sinks)],
            retention=settings.retention,
            pose=PoseForm.of(settings.pose),
        )


class SettingsAnswer(_Answer):
    """The settings file as it is now."""

    file: str
    text: str
    digest: str
    wrong: WrongSettings | None = Field(description="Set if somebody broke the file by hand.")
    values: SettingsValues | None = Field(description="None if the file is broken.")


class SaveText(_Answer):
    """A new text of the whole file."""

    digest: Digest
    text: Text


class SaveEdits(_Answer):
    """Changes to the file, applied in order, all of them or none."""

    digest: Digest
    edits: Annotated[list[Edit], Field(min_length=1, max_length=200)]


class SavedSettings(_Answer):
    """The file is saved, and the site starts again with it."""

    digest: str
    text: str
    restarts: bool = Field(description="False if nothing changed.")


class CheckText(_Answer):
    """A text to check without saving it."""

    text: Text


class CheckedSettings(_Answer):
    """What the checks of a text say."""

    ok: bool
    lines: list[str]
    wrong: WrongSettings | None = None


class TryCamera(_Answer):
    """A camera to open: its address, and where its credentials are."""

    keys: KeyChanges


class TriedCamera(_Answer):
    """One frame as skeletons, or why there is none."""

    problem: str = Field("", description="Empty if there is a picture.")
    size: tuple[int, int] | None = None
    people: list[list[Joint]] = Field(
        default_factory=list, description="Joints in pixels; None where one was not found."
    )
    bones: list[list[int]] = Field(default_factory=list)

    @classmethod
    def of(cls, picture: CameraPicture) -> TriedCamera:
        """Build from what the camera shows."""
        return cls(size=picture.size, people=picture.people, bones=picture.bones)


class TestSink(_Answer):
    """The sink to send a test through."""

    name: Annotated[str, Field(max_length=200)]


class TestedSink(_Answer):
    """What came back."""

    outcome: Literal["sent", "failed"]
    words: str

"""Routes of the settings page: read, check and change the file, try a camera, test a sink."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

from stepvad.errors import StepvadError
from stepvad.settings.edits import Edit, KeyChanges
from stepvad.settings.file import SettingsError, parse
from stepvad.settings.saving import FileChangedError, SettingsText
from stepvad.settings.sections import PoseSettings, RetentionSettings
from stepvad.site.camera_trial import CameraPicture, CameraProblem
from stepvad.site.editor import BusyError, SettingsEditor
from stepvad.site.sinks import names
from stepvad.web.answers import Problem, Strict

Digest = Annotated[
    str, Field(max_length=64, description="Of the file that was loaded; it must not have changed.")
]
Text = Annotated[str, Field(max_length=60_000, description="The whole file.")]


class WrongSettings(BaseModel):
    """Why settings are refused."""

    problem: str
    hint: str = ""
    line: int | None = Field(None, description="Line of the text, counted from 1.")
    excerpt: str = Field("", description="What that line says.")


class SettingsValues(BaseModel):
    """What the file says, for forms; secrets are references."""

    cameras: list[dict[str, Any]] = Field(description="Each with the keys that the file states.")
    sinks: list[str]
    retention: RetentionSettings
    pose: PoseSettings


class SettingsAnswer(BaseModel):
    """The settings file as it is now."""

    file: str
    text: str
    digest: str
    wrong: WrongSettings | None = Field(description="Set if somebody broke the file by hand.")
    values: SettingsValues | None = Field(description="None if the file is broken.")


class SaveText(Strict):
    """A new text of the whole file."""

    digest: Digest
    text: Text


class SaveEdits(Strict):
    """Changes to the file, applied in order, all of them or none."""

    digest: Digest
    edits: Annotated[list[Edit], Field(min_length=1, max_length=200)]


class SavedSettings(BaseModel):
    """The file is saved, and the site starts again with it."""

    digest: str
    text: str
    restarts: bool = Field(description="False if nothing changed.")


class CheckText(Strict):
    """A text to check without saving it."""

    text: Text


class CheckedSettings(BaseModel):
    """What the checks of a text say."""

    ok: bool
    lines: list[str]
    wrong: WrongSettings | None = None


class TryCamera(Strict):
    """A camera to open: its address, and where its credentials are."""

    keys: KeyChanges


class TestSink(Strict):
    """The sink to send a test through."""

    name: Annotated[str, Field(max_length=200)]


class TestedSink(BaseModel):
    """What came back."""

    outcome: Literal["sent", "failed"]
    words: str


NO_FILE = "There is no settings file: this site was started without one, as the demo is."
REFUSALS: dict[int | str, dict[str, Any]] = {
    404: {"model": Problem, "description": "There is no settings file."},
    409: {"model": Problem, "description": "Someone else changed the file, or is changing it."},
    422: {"model": Problem, "description": "Rejected, with the line at fault if there is one."},
}


def add_settings_routes(app: FastAPI, editor: SettingsEditor | None) -> None:
    """Add the routes below /api/settings; without an editor they answer that there is no file."""
    _of_the_file(app, editor)
    _of_trials(app, editor)


def _of_the_file(app: FastAPI, editor: SettingsEditor | None) -> None:
    @app.get("/api/settings", tags=["settings"], responses=REFUSALS)
    def settings() -> SettingsAnswer:
        """The settings file: its text, and its values for forms."""
        known = _known(editor)
        with _refusals():
            return _settings(known, known.read())

    @app.put("/api/settings", tags=["settings"], responses=REFUSALS)
    def save(asked: SaveText) -> SavedSettings:
        """Replace the file, if it is valid and nobody changed it; the site starts again."""
        known = _known(editor)
        with _refusals(asked.text):
            return _saved(known.save(asked.digest, asked.text), asked.digest)

    @app.patch("/api/settings", tags=["settings"], responses=REFUSALS)
    def edit(asked: SaveEdits) -> SavedSettings:
        """Change cameras, zones and sections; everything else in the file stays as it is."""
        known = _known(editor)
        with _refusals():
            text = known.edited(asked.digest, asked.edits)
        with _refusals(text):
            return _saved(known.save(asked.digest, text), asked.digest)

    @app.post("/api/settings/check", tags=["settings"], responses=REFUSALS)
    def check(asked: CheckText) -> CheckedSettings:
        """Check a text as `stepvad watch --check` does."""
        known = _known(editor)
        try:
            return CheckedSettings(ok=True, lines=known.check(asked.text))
        except StepvadError as error:
            wrong = _wrong(error, asked.text)
            return CheckedSettings(ok=False, lines=[], wrong=wrong)


def _of_trials(app: FastAPI, editor: SettingsEditor | None) -> None:
    @app.post("/api/settings/try-camera", tags=["settings"], responses=REFUSALS)
    def try_camera(asked: TryCamera) -> CameraPicture | CameraProblem:
        """Open a camera and show one frame of it as skeletons; no pixel leaves the machine."""
        known = _known(editor)
        with _refusals():
            return known.try_camera(asked.keys)

    @app.post("/api/settings/test-sink", tags=["settings"], responses=REFUSALS)
    def test_sink(asked: TestSink) -> TestedSink:
        """Send a test event through a sink and say what came back."""
        known = _known(editor)
        try:
            known.test_sink(asked.name)
        except BusyError as error:
            raise HTTPException(409, _wrong(error).model_dump()) from None
        except StepvadError as error:
            return TestedSink(outcome="failed", words=str(error))
        words = f"{asked.name} accepted a test event and its end"
        return TestedSink(outcome="sent", words=words)


def _known(editor: SettingsEditor | None) -> SettingsEditor:
    if editor is None:
        raise HTTPException(404, WrongSettings(problem=NO_FILE).model_dump())
    return editor


def _settings(editor: SettingsEditor, now: SettingsText) -> SettingsAnswer:
    wrong, values = None, None
    try:
        valid = editor.validate(now.text)
        cameras: Any = parse(now.text).get("cameras", [])
        values = SettingsValues(
            cameras=[{"zones": {}, "zone_hours": {}} | one for one in cameras],
            sinks=[*names(valid.sinks)],
            retention=valid.retention,
            pose=valid.pose,
        )
    except SettingsError as error:
        wrong = _wrong(error, now.text)
    return SettingsAnswer(
        file=str(editor.path), text=now.text, digest=now.digest, wrong=wrong, values=values
    )


def _saved(now: SettingsText, before: str) -> SavedSettings:
    return SavedSettings(digest=now.digest, text=now.text, restarts=now.digest != before)


@contextmanager
def _refusals(text: str = "") -> Iterator[None]:
    """Answer 409 if somebody else was first, 422 with words if something is refused."""
    try:
        yield
    except (FileChangedError, BusyError) as error:
        raise HTTPException(409, _wrong(error).model_dump()) from None
    except StepvadError as error:
        raise HTTPException(422, _wrong(error, text).model_dump()) from error.__cause__


def _wrong(error: StepvadError, text: str = "") -> WrongSettings:
    if not isinstance(error, SettingsError):
        return WrongSettings(problem=error.problem, hint=error.hint)
    lines = text.splitlines()
    excerpt = lines[error.line - 1] if 0 < error.line <= len(lines) else ""
    return WrongSettings(
        problem=error.what, hint=error.hint, line=error.line, excerpt=excerpt.strip()[:200]
    )

"""Routes of the settings page: read, check and change the file, try a camera, test a sink."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI, HTTPException

from stepvad.errors import StepvadError
from stepvad.settings.file import SettingsError, parse
from stepvad.settings.saving import FileChangedError, SettingsText
from stepvad.site.camera_trial import CameraProblem
from stepvad.site.editor import BusyError, SettingsEditor
from stepvad.web import settings_answers as answers
from stepvad.web.answers import Problem

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
    def settings() -> answers.SettingsAnswer:
        """The settings file: its text, and its values for forms."""
        known = _known(editor)
        with _refusals():
            return _settings(known, known.read())

    @app.put("/api/settings", tags=["settings"], responses=REFUSALS)
    def save(asked: answers.SaveText) -> answers.SavedSettings:
        """Replace the file, if it is valid and nobody changed it; the site starts again."""
        known = _known(editor)
        with _refusals(asked.text):
            return _saved(known.save(asked.digest, asked.text), asked.digest)

    @app.patch("/api/settings", tags=["settings"], responses=REFUSALS)
    def edit(asked: answers.SaveEdits) -> answers.SavedSettings:
        """Change cameras, zones and sections; everything else in the file stays as it is."""
        known = _known(editor)
        with _refusals():
            text = known.edited(asked.digest, asked.edits)
        with _refusals(text):
            return _saved(known.save(asked.digest, text), asked.digest)

    @app.post("/api/settings/check", tags=["settings"], responses=REFUSALS)
    def check(asked: answers.CheckText) -> answers.CheckedSettings:
        """Check a text as `stepvad watch --check` does."""
        known = _known(editor)
        try:
            return answers.CheckedSettings(ok=True, lines=known.check(asked.text))
        except StepvadError as error:
            wrong = _wrong(error, asked.text)
            return answers.CheckedSettings(ok=False, lines=[], wrong=wrong)


def _of_trials(app: FastAPI, editor: SettingsEditor | None) -> None:
    @app.post("/api/settings/try-camera", tags=["settings"], responses=REFUSALS)
    def try_camera(asked: answers.TryCamera) -> answers.TriedCamera:
        """Open a camera and show one frame of it as skeletons; no pixel leaves the machine."""
        known = _known(editor)
        with _refusals():
            found = known.try_camera(asked.keys)
        if isinstance(found, CameraProblem):
            return answers.TriedCamera(problem=found.problem)
        return answers.TriedCamera.of(found)

    @app.post("/api/settings/test-sink", tags=["settings"], responses=REFUSALS)
    def test_sink(asked: answers.TestSink) -> answers.TestedSink:
        """Send a test event through a sink and say what came back."""
        known = _known(editor)
        try:
            known.test_sink(asked.name)
        except BusyError as error:
            raise HTTPException(409, _wrong(error).model_dump()) from None
        except StepvadError as error:
            return answers.TestedSink(outcome="failed", words=str(error))
        words = f"{asked.name} accepted a test event and its end"
        return answers.TestedSink(outcome="sent", words=words)


def _known(editor: SettingsEditor | None) -> SettingsEditor:
    if editor is None:
        raise HTTPException(404, answers.WrongSettings(problem=NO_FILE).model_dump())
    return editor


def _settings(editor: SettingsEditor, now: SettingsText) -> answers.SettingsAnswer:
    wrong, values = None, None
    try:
        valid = editor.validate(now.text)
        values = answers.SettingsValues.of(valid, parse(now.text))
    except SettingsError as error:
        wrong = _wrong(error, now.text)
    return answers.SettingsAnswer(
        file=str(editor.path), text=now.text, digest=now.digest, wrong=wrong, values=values
    )


def _saved(now: SettingsText, before: str) -> answers.SavedSettings:
    return answers.SavedSettings(digest=now.digest, text=now.text, restarts=now.digest != before)


@contextmanager
def _refusals(text: str = "") -> Iterator[None]:
    """Answer 409 if somebody else was first, 422 with words if something is refused."""
    try:
        yield
    except (FileChangedError, BusyError) as error:
        raise HTTPException(409, _wrong(error).model_dump()) from None
    except StepvadError as error:
        raise HTTPException(422, _wrong(error, text).model_dump()) from error.__cause__


def _wrong(error: StepvadError, text: str = "") -> answers.WrongSettings:
    if not isinstance(error, SettingsError):
        return answers.WrongSettings(problem=error.problem, hint=error.hint)
    lines = text.splitlines()
    excerpt = lines[error.line - 1] if 0 < error.line <= len(lines) else ""
    return answers.WrongSettings(
        problem=error.what, hint=error.hint, line=error.line, excerpt=excerpt.strip()[:200]
    )

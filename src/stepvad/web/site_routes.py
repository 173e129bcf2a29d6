"""API routes of a site alone: its settings, learning, and messages to people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from stepvad.codec import NewerVersionError
from stepvad.errors import DataError, StepvadError
from stepvad.events.record import WeekOfAlerts, by_week
from stepvad.files import hide_directories
from stepvad.site.accounts import TOKEN_USER
from stepvad.site.learning.learner import Learner
from stepvad.site.learning.versions import LearnedFacts
from stepvad.site.notify.push import LONGEST_ENDPOINT, PushSubscriptions, check_endpoint
from stepvad.site.settings.changes import Changes, Effect
from stepvad.site.settings.editing import AddCamera, ChangeCamera, Edit, KeyChanges
from stepvad.site.settings.file import SettingsError, parse
from stepvad.site.settings.live import BusyError, FileChangedError, SettingsEditor, SettingsText
from stepvad.site.settings.page import concern_of, limits_of
from stepvad.site.settings.secrets import SecretError, place_of, typed_passwords
from stepvad.site.settings.sections import PoseSettings, RetentionSettings, SiteSettings
from stepvad.site.sinks import names
from stepvad.site.status import LearningView, LiveStatus
from stepvad.site.trial import CameraPicture, CameraProblem
from stepvad.web.routes import EventStore, Problem, Strict, user_of

Digest = Annotated[
    str, Field(max_length=64, description="Of the file that was loaded; it must not have changed.")
]
Text = Annotated[str, Field(max_length=60_000, description="The whole file.")]
NO_FILE = "There is no settings file: this site was started without one, as the demo is."
REFUSALS: dict[int | str, dict[str, Any]] = {
    404: {"model": Problem, "description": "There is no settings file."},
    409: {"model": Problem, "description": "Someone else changed the file, or is changing it."},
    422: {"model": Problem, "description": "Rejected, with the line at fault if there is one."},
}

MOST_JUDGED = 20_000
"""Newest events that are counted."""


def add_settings_routes(app: FastAPI, editor: SettingsEditor | None) -> None:
    """Add the routes below /api/settings; without an editor they answer that there is no file."""
    _add_file_routes(app, editor)
    _add_trials(app, editor)


def add_learning_routes(app: FastAPI, status: LiveStatus, learner: Learner | None) -> None:
    """Add the routes under /api/learning; without a learner there is nothing to change."""

    def needed() -> Learner:
        if learner is None:
            raise HTTPException(409, "this site has a model that it did not learn itself")
        return learner

    @app.get("/api/learning", tags=["learning"])
    def learning() -> LearningAnswer:
        """How far the site has learned, and its models."""
        view = status.snapshot().learning or LearningView(words="", hours=0.0, people=0)
        models = [] if learner is None else learner.versions()
        return LearningAnswer(**asdict(view), models=models)

    @app.post("/api/learning/fit", tags=["learning"], status_code=202)
    def fit() -> LearningAnswer:
        """Fit a new model now, in the background."""
        needed().fit_now()
        return learning()

    @app.post("/api/learning/use", tags=["learning"], status_code=202)
    def use(wanted: UseRequest) -> LearningAnswer:
        """Go back to an older model; the site starts again with it."""
        try:
            needed().use(wanted.model)
        except StepvadError as error:
            raise HTTPException(404, str(error)) from None
        return learning()


def add_precision_route(app: FastAPI, store: EventStore) -> None:
    """Add the route that counts right and false alerts."""

    @app.get("/api/precision", tags=["events"])
    def precision(
        since: Annotated[float | None, Query(ge=0, le=1e12, description="Unix time.")] = None,
    ) -> list[WeekOfAlerts]:
        """Right and false alerts by camera and week, the latest first."""
        found = store.events(since=since, limit=MOST_JUDGED)
        return by_week(found, store.reviews())


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


class SettingsEffect(BaseModel):
    """What it takes to run the site by changed settings."""

    effect: Effect = Field(
        description="none; live: at once; reopen: some cameras are opened again; restart: the site "
        "restarts."
    )
    words: str = Field(description="The same in words, with the cameras or the keys.")


class SavedSettings(SettingsEffect):
    """The file is saved, and the site runs by it or restarts."""

    digest: str
    text: str


class UnsavedText(Strict):
    """A text that is not saved."""

    text: Text


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningAnswer(LearningView):
    """How far a site has learned; without words it has a model that others made."""

    models: list[LearnedFacts]


class UseRequest(Strict):
    """The model to go back to."""

    model: str = Field(max_length=80)


class People(BaseModel):
    """People who get messages."""

    name: str
    to: list[str] = Field(description="Where the addresses are; no secrets.")
    events: str = Field(description="Of which cameras and zones, in words.")
    limits: list[str] = Field(description="When they get messages, in words.")
    browsers: bool = Field(description="Whether browsers get them, too.")


class NotificationsAnswer(BaseModel):
    """Who gets messages."""

    people: list[People]
    browsers: int = Field(description="Browsers that are notified.")
    public_key: str | None = Field(
        description="The key that a browser subscribes with; None if no browser gets messages."
    )


class KeysRequest(BaseModel):
    """The keys of a browser, as its PushSubscription has them."""

    p256dh: str = Field(max_length=100)
    auth: str = Field(max_length=40)


class SubscriptionRequest(BaseModel):
    """A PushSubscription as JSON."""

    endpoint: str = Field(max_length=LONGEST_ENDPOINT)
    keys: KeysRequest


class EndRequest(Strict):
    """A subscription to end."""

    endpoint: str = Field(max_length=LONGEST_ENDPOINT)


def account_of(request: Request) -> str:
    """The account behind a request; empty for the token, and for a user whom a proxy names."""
    identity = getattr(request.state, "identity", None)
    if identity is None or identity.known_by != "session" or identity.user == TOKEN_USER:
        return ""
    return str(identity.user.name)


def _add_file_routes(app: FastAPI, editor: SettingsEditor | None) -> None:
    @app.get("/api/settings", tags=["settings"], responses=REFUSALS)
    def settings() -> SettingsAnswer:
        """The settings file: its text, and its values for forms."""
        known = _needed(editor)
        with _refusals():
            return _settings(known, known.current())

    @app.put("/api/settings", tags=["settings"], responses=REFUSALS)
    def save(asked: SaveText, request: Request) -> SavedSettings:
        """Replace the file, if it is valid and nobody changed it; the site then runs by it."""
        known = _needed(editor)
        with _refusals(asked.text, request):
            return _saved(*known.save(asked.digest, asked.text))

    @app.patch("/api/settings", tags=["settings"], responses=REFUSALS)
    def edit(asked: SaveEdits, request: Request) -> SavedSettings:
        """Change cameras, zones and sections; everything else in the file stays as it is."""
        known = _needed(editor)
        cameras = [one.keys for one in asked.edits if isinstance(one, AddCamera | ChangeCamera)]
        with (
            _refusals(),
            typed_passwords(known.running.data, cameras, keep=True) as typed,
        ):
            # apply the edits to the file's text, then save it as one text
            text = known.edited(asked.digest, asked.edits)
            with _refusals(text, request):
                return _saved(*known.save(asked.digest, text, typed))

    @app.post("/api/settings/effect", tags=["settings"], responses=REFUSALS)
    def effect(asked: SaveEdits | UnsavedText) -> SettingsEffect:
        """What saving these changes or this text would take; no words while it is not valid."""
        known = _needed(editor)
        try:
            if isinstance(asked, SaveEdits):
                text = known.edited(asked.digest, asked.edits)
            else:
                text = asked.text
            changes = known.changes(text)
        except StepvadError:
            return SettingsEffect(effect="none", words="")
        return SettingsEffect(effect=changes.effect, words=changes.words)


def _add_trials(app: FastAPI, editor: SettingsEditor | None) -> None:
    @app.post("/api/settings/try-camera", tags=["settings"], responses=REFUSALS)
    def try_camera(asked: TryCamera, request: Request) -> CameraPicture | CameraProblem:
        """Open a camera and show one frame of it as skeletons; no pixel leaves the machine."""
        known = _needed(editor)
        with (
            _refusals(request=request),
            typed_passwords(known.running.data, [asked.keys], keep=False) as typed,
        ):
            camera = known.tried(asked.keys, typed)
            # the audit log names its host, never a password or a path
            is_stream = camera.kind == "stream"
            request.state.audit_subject = place_of(camera.url) if is_stream else camera.kind
            return known.try_camera(camera)

    @app.post("/api/settings/test-sink", tags=["settings"], responses=REFUSALS)
    def test_sink(asked: TestSink) -> TestedSink:
        """Send a test event through a sink and say what came back."""
        known = _needed(editor)
        try:
            return TestedSink(outcome="sent", words=known.test_sink(asked.name))
        except BusyError as error:
            raise HTTPException(409, _wrong(error).model_dump()) from None
        except StepvadError as error:
            return TestedSink(outcome="failed", words=str(error))


def _needed(editor: SettingsEditor | None) -> SettingsEditor:
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
        wrong = _wrong(error, now.text)  # a file broken by hand still shows its text
    return SettingsAnswer(
        file=str(editor.path), text=now.text, digest=now.digest, wrong=wrong, values=values
    )


def _saved(now: SettingsText, changes: Changes) -> SavedSettings:
    return SavedSettings(
        digest=now.digest, text=now.text, effect=changes.effect, words=changes.words
    )


@contextmanager
def _refusals(text: str = "", request: Request | None = None) -> Iterator[None]:
    """Answer 409 if somebody else was first, 422 with words if something is refused."""
    try:
        yield
    except SecretError as error:
        if request is not None:
            request.state.audit_refused = error.problem
        raise HTTPException(422, _wrong(error).model_dump()) from None
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


def add_notification_routes(app: FastAPI, current: Callable[[], SiteSettings]) -> None:
    """Add the routes of messages to people and their browsers, by the settings in force."""
    subscriptions = PushSubscriptions(current().data, current().web.accounts)

    def notified() -> bool:
        return any(one.browsers for one in current().sinks.notify)

    @app.get("/api/notifications", tags=["notifications"])
    def notifications() -> NotificationsAnswer:
        """Who gets messages, and the key for a browser to subscribe with."""
        return NotificationsAnswer(
            people=[
                People(
                    name=one.name,
                    to=[hide_directories(to) for to in one.to],
                    events=concern_of(one),
                    limits=limits_of(one),
                    browsers=one.browsers,
                )
                for one in current().sinks.notify
            ],
            browsers=len(subscriptions.all()) if notified() else 0,
            public_key=subscriptions.key().x962_str if notified() else None,
        )

    @app.put(
        "/api/notifications/subscriptions",
        tags=["notifications"],
        status_code=204,
        responses={409: {"model": Problem, "description": "No browser gets messages."}},
    )
    def subscribe(chosen: SubscriptionRequest, request: Request) -> Response:
        """Notify a browser from now on."""
        if not notified():
            raise HTTPException(
                409, 'expected [[sinks.notify]] with to = ["browsers"], got none in the settings'
            )
        try:
            check_endpoint(chosen.endpoint)
            keys, whose = chosen.keys, (account_of(request), user_of(request))
            subscriptions.subscribe(chosen.endpoint, keys.p256dh, keys.auth, *whose)
        except NewerVersionError:  # of the site's own file: not the fault of the request
            raise
        except DataError as error:
            raise HTTPException(422, str(error)) from None
        return Response(status_code=204)

    @app.delete("/api/notifications/subscriptions", tags=["notifications"], status_code=204)
    def unsubscribe(chosen: EndRequest) -> Response:
        """Notify a browser no more."""
        subscriptions.remove([chosen.endpoint])
        return Response(status_code=204)

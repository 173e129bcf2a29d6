"""Response models of the API, as they appear in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stepvad import skeletons
from stepvad.codec import JsonObject, to_plain
from stepvad.incidents.record import EndedBy, Record, Severity
from stepvad.incidents.recording import recording_url
from stepvad.incidents.review import Mark, Review
from stepvad.incidents.stored import Inventory
from stepvad.intake.delays import Delays
from stepvad.intake.load import Load, LoadState
from stepvad.intake.status import CameraView, ScoredFrame, SinkView

SEEN = 0.05
"""Minimum confidence of a joint to be drawn."""


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SiteAnswer(_Answer):
    """The site itself."""

    name: str
    version: str
    uptime_s: float
    cameras: list[str]


class DelaysAnswer(_Answer):
    """How long something took, in seconds; None before the first."""

    n: int
    p50: float | None
    p95: float | None
    p99: float | None

    @classmethod
    def of(cls, delays: Delays) -> DelaysAnswer:
        """Build from the quantiles of the latest delays and the total number."""
        p50, p95, p99 = delays.quantiles(0.5, 0.95, 0.99)
        return cls(n=delays.n, p50=p50, p95=p95, p99=p99)


class LoadAnswer(_Answer):
    """Whether the machine keeps up with a camera."""

    state: LoadState = Field(
        description="ok, overloaded, or not watching: too many frames left out to judge anybody."
    )
    left_out: float = Field(description="Share of the frames of the last 10 s left out.")
    words: str = Field(description="The same in words; empty if all is well.")

    @classmethod
    def of(cls, load: Load) -> LoadAnswer:
        """Build from the load of a camera."""
        return cls(state=load.state, left_out=round(load.left_out, 3), words=load.words)


class CameraAnswer(_Answer):
    """One camera: its settings, its health and what was counted."""

    name: str
    state: str = Field(description="online, offline or failed.")
    reason: str = Field(description="Why it is not online.")
    since: float | None = Field(description="Unix time of the last change of state.")
    rate: float = Field(description="Frames a second that are asked for.")
    fps: float | None = Field(description="Frames a second that are scored.")
    threshold: float | None = Field(
        description="Score above which a person raises an event; None while the site learns."
    )
    limit: str = Field(description="What the threshold promises, in words.")
    provisional: bool = Field(description="Whether the threshold promises nothing yet.")
    model: str
    zones: dict[str, list[tuple[float, float]]] = Field(
        description="Corners as fractions of the picture."
    )
    bones: list[list[int]] = Field(
        description="Lines between joints; one of three goes to the middle of the last two."
    )
    people: int
    last_frame: float | None = Field(description="Unix time of the latest frame.")
    counts: dict[str, int]
    drift: str = Field(description="How it differs from calibration, in words.")
    drifted: bool = Field(description="Whether it is time to calibrate again.")
    drift_numbers: str = Field(description="The largest changes, in numbers.")
    latency: DelaysAnswer = Field(description="From the arrival of a frame to its scores.")
    alerts: DelaysAnswer = Field(description="From the arrival of a frame to its event.")
    load: LoadAnswer = Field(description="Whether the machine keeps up with its frames.")
    place: int | None = Field(description="Changes with the drawing of its place; None without.")

    @classmethod
    def of(cls, view: CameraView) -> CameraAnswer:
        """Build from the status of a camera."""
        return cls(
            name=view.name,
            state=view.state,
            reason=view.reason,
            since=view.since,
            rate=view.rate,
            fps=view.fps,
            threshold=view.threshold,
            limit=view.limit,
            provisional=view.is_provisional,
            model=view.model,
            zones={name: [*corners] for name, corners in view.zones.items()},
            bones=skeletons.strokes(view.skeleton),
            people=view.people,
            last_frame=view.last_wall,
            counts=dict(view.counts),
            drift=view.drift,
            drifted=view.drifted,
            drift_numbers=view.drift_numbers,
            latency=DelaysAnswer.of(view.latency),
            alerts=DelaysAnswer.of(view.alerts),
            load=LoadAnswer.of(view.load),
            place=view.place,
        )


class TimelineAnswer(_Answer):
    """The largest score of each second of the last hour, where there was one."""

    camera: str
    threshold: float | None
    points: list[tuple[int, float]] = Field(description="Unix second and score.")


class EventAnswer(_Answer):
    """One event; times are unix seconds, the box is in pixels."""

    id: str
    camera: str
    label: str
    score: float
    top_score: float
    start_time: float
    end_time: float | None
    box: tuple[float, float, float, float] | None
    zones: list[str]
    severity: Severity
    model_id: str
    model_sha256: str
    track_id: int
    tracks: list[int]
    epoch: int
    frame_seq: int
    confidence: float
    seen: float = Field(description="Share of the poses at the top score that were seen.")
    doubt: str | None = Field(description="What the top score rests on besides seen poses.")
    threshold: float
    scales: list[float]
    why: str | None
    ended_by: EndedBy | None
    camera_fps: float | None
    model_fps: float | None
    record_schema: int = Field(alias="schema")
    mark: Mark | None = Field(description="normal or right, if somebody judged it.")
    normal: bool = Field(description="Whether somebody said that this was normal.")
    reviewed: float | None = Field(description="Unix time at which somebody saw or judged it.")
    reviewed_by: str = Field(description="Who that was, if known.")
    recording: str | None = Field(description="Address of its clip in a video recorder.")

    @classmethod
    def of(cls, record: Record, review: Review | None, recorder: str | None = None) -> EventAnswer:
        """A stored event, what was said of it, and where it was recorded, by this template."""
        mark = None if review is None else review.mark
        said = {
            "mark": mark,
            "normal": mark == "normal",
            "reviewed": None if review is None else review.at,
            "reviewed_by": "" if review is None else review.by,
            "recording": None if recorder is None else recording_url(recorder, record),
        }
        return cls.model_validate({**to_plain(record), **said})


class EventsAnswer(_Answer):
    """Some events, the newest first."""

    events: list[EventAnswer]
    next: str | None = Field(description="What to give as `before` to go on; None at the end.")
    to_review: int = Field(
        description="Events that nobody has seen, of all that are stored; 1000 at most."
    )


class MarkRequest(_Answer):
    """What an event was: `mark`, or in the older form whether it was normal."""

    mark: Mark | None = None
    normal: bool | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = self.model_fields_set
        if len(given) != 1 or (given == {"normal"} and self.normal is None):
            raise ValueError("expected mark, or normal as true or false")
        return self

    @property
    def judged(self) -> Mark | None:
        """The judgement; None takes it back."""
        return "normal" if self.normal else self.mark


class Word(_Answer):
    """Something unusual, and in which frames."""

    says: str
    first: int
    last: int


class PartAnswer(_Answer):
    """A part of the body and its share of the score."""

    name: str
    share: float


class ScaleAnswer(_Answer):
    """A noise scale that decided, and how much it counted."""

    sigma: float
    weight: float


class MotionAnswer(_Answer):
    """The motion around the peak: tenths of pixels by frame, heat from 0 to 100 by joint."""

    first: int
    fps: float
    peak: int
    size: int
    bones: list[list[int]]
    camera: list[list[int]]
    observed: list[list[int]]
    ghost: list[list[int]]
    heat: list[list[int]]


class ExplanationAnswer(BaseModel):
    """Why an event has its score: words, shares of the body, and motion to be played."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    motion: MotionAnswer
    track: int
    frame: int
    score: float
    energy: float
    confidence: float
    scales: list[ScaleAnswer]
    ghost_energy: float
    ghost_is_normal: bool
    words: list[Word]
    parts: list[PartAnswer]
    views: list[PartAnswer] = Field(
        default=[], description="Shares of pose, motion and place; empty with a single view."
    )


class DeletedAnswer(_Answer):
    """What a deletion did."""

    events: int
    kept_open: int = Field(description="Events that stay because they go on.")


class KeptAnswer(_Answer):
    """One kind of thing that is stored; times are unix seconds."""

    what: str
    holds: str
    count: int
    first: float | None
    last: float | None
    bytes: int


class StoredAnswer(_Answer):
    """Everything that is stored, and the files that it is in with their bytes."""

    kept: list[KeptAnswer]
    files: dict[str, int]
    cameras: dict[str, int] = Field(description="Events of each camera.")

    @classmethod
    def of(cls, found: Inventory) -> StoredAnswer:
        """Build from the inventory of the store."""
        return cls(
            kept=[KeptAnswer(**asdict(one)) for one in found.kept],
            files={path.name: size for path, size in found.files.items()},
            cameras=found.cameras,
        )


class SinkAnswer(_Answer):
    """One sink: messages that wait for it, and what went wrong last."""

    name: str
    lag: int
    failures: int
    last_error: str
    refused: int = Field(description="Messages refused for good since the start.")

    @classmethod
    def of(cls, view: SinkView) -> SinkAnswer:
        """Build from the status of a sink."""
        return cls(**asdict(view))


class UndeliveredMessage(_Answer):
    """A message that did not reach its sink."""

    id: int
    sink: str
    event_id: str
    kind: str
    created: float
    error: str | None = Field(description="Why, the last time.")


class Undelivered(_Answer):
    """Messages that a sink refused for good, the oldest first, and how many there are."""

    refused: int
    messages: list[UndeliveredMessage]


class Resend(_Answer):
    """Which refused messages to queue again; all of them if neither is given."""

    sink: str | None = Field(None, max_length=200)
    ids: list[int] | None = Field(None, max_length=1000)


class Resent(_Answer):
    """How many messages are queued again."""

    messages: int


class Problem(BaseModel):
    """Why there is no answer."""

    detail: Any


def people(frame: ScoredFrame, threshold: float | None) -> JsonObject:
    """The people of a frame, as small as it gets: whole pixels, and the score by the threshold."""
    return {
        "n": frame.number,
        "t": round(frame.wall, 2),
        "size": frame.size,
        "people": [
            {
                "id": pose.track_id,
                "xy": [
                    place
                    for (x, y), sure in zip(
                        pose.keypoints.round().astype(int).tolist(),
                        pose.confidence.tolist(),
                        strict=True,
                    )
                    for place in ((x, y) if sure >= SEEN else (None, None))
                ],
                "score": _score(frame.scores, pose.track_id),
                "of": _share(frame.scores, pose.track_id, threshold),
                **_doubt(frame.muted, pose.track_id),
            }
            for pose in frame.poses
        ],
    }


def _score(scores: Mapping[int, float], track: int) -> float | None:
    return None if track not in scores else round(scores[track], 2)


def _doubt(muted: Mapping[int, float], track: int) -> dict[str, str]:
    """Why a person is not judged, if they are not."""
    if track not in muted:
        return {}
    return {"doubt": f"not judged: seen in {round(10 * muted[track])} of 10 frames"}


def _share(scores: Mapping[int, float], track: int, threshold: float | None) -> float | None:
    """A score relative to the threshold."""
    return None if threshold is None or track not in scores else round(scores[track] / threshold, 3)

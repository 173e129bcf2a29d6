"""The events of a clip, and the scores of all people over time as inline SVG.

The SVG is small enough for an hour of a crowd. Positions along the clip are percentages of the
width and everything else is in pixels, so text keeps its size on a phone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stepvad.detector import Detector
from stepvad.errors import Progress, Report, silent
from stepvad.events.rules import Event, Rules, find_events
from stepvad.explain.event import ExplainedPeak, explain_peak
from stepvad.model.scoring import Scores, WindowScores, true_runs
from stepvad.poses import Clip
from stepvad.video.timeline import clock


@dataclass(frozen=True, slots=True, eq=False)
class Incident:
    """An event and its explanation."""

    number: int
    """From 1, in chronological order."""
    event: Event
    explained: ExplainedPeak | None = None


def investigate(
    detector: Detector,
    clip: Clip,
    scores: Scores,
    rules: Rules,
    *,
    most: int,
    report: Report = silent,
) -> list[Incident]:
    """All events of a clip in chronological order; the `most` with the highest peaks are explained.

    The clip must have a frame rate. Only poses near a peak are cut into windows again, so an hour
    of footage takes no more memory than its scores.
    """
    fps = clip.rate()
    found = find_events(clip, scores, rules)
    highest = sorted(range(len(found)), key=lambda n: -found[n].peak)[:most]
    incidents = [Incident(number, event) for number, event in enumerate(found, start=1)]
    for done, n in enumerate(sorted(highest), start=1):
        event = found[n]
        peak_frame = round(event.peak_s * fps)
        explained = explain_peak(detector, clip, event.peak_track, peak_frame, calm=rules.calm)
        incidents[n] = replace(incidents[n], explained=explained)
        report(Progress("explaining", done, len(highest), clip.name))
    return incidents


BINS = 1000
"""Points along the width; each is the highest score of its bin."""
HEIGHT = 170.0
"""Height of the plot in pixels."""
LANE = 9.0
"""Height of the ground-truth lane in pixels."""
MOST = 5.0
"""Scores above this multiple of the threshold are clipped at the upper edge."""
TICKS = 6
"""Maximum number of time labels along the axis."""
STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400)
NEAR = 0.035
"""Share of the width within which the numbers of two events would overlap."""


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Downsampled scores: track, bin and highest score of each point, and where lines begin."""

    track: NDArray[np.int64]
    place: NDArray[np.int64]
    score: NDArray[np.float32]
    begins: NDArray[np.bool_]
    bins: int


def downsample(windows: WindowScores, n_frames: int, *, bins: int = BINS) -> Lines:
    """Take the highest score of each person in each of `bins` equal parts of the clip.

    A line breaks where a person has no score for one or more frames.
    """
    bins = max(min(bins, n_frames), 1)
    # the windows of one person after another, each in time, and the bin of each, (N,)
    order = np.lexsort((windows.frame, windows.track_id))
    track, frame, A = windows.track_id[order], windows.frame[order], windows.A[order]
    place = frame * bins // max(n_frames, 1)
    # a point begins with each person, after each gap, and with each bin
    broken = np.ones(len(A), dtype=np.bool_)
    broken[1:] = (np.diff(track) != 0) | (np.diff(frame) != 1)
    starts = broken.copy()
    starts[1:] |= np.diff(place) != 0
    first = np.flatnonzero(starts)
    score = np.maximum.reduceat(A, first) if len(first) else A
    return Lines(track[first], place[first], score, broken[first], bins)


@dataclass(frozen=True, slots=True)
class PlotScale:
    """Maps frames and scores to positions in the plot."""

    n_frames: int
    low: float
    high: float

    @classmethod
    def fitting(cls, scores: NDArray[np.float32], n_frames: int, threshold: float) -> PlotScale:
        """A scale that fits all scores except those far above the threshold."""
        highest = float(scores.max()) if len(scores) else 0.0
        lowest = float(scores.min()) if len(scores) else 0.0
        high = min(max(1.08 * highest, 1.4 * threshold), MOST * threshold)
        return cls(n_frames, max(min(1.08 * lowest, 0.0), -0.4 * high), high)

    def y(self, score: float) -> float:
        """Pixels from the top."""
        inside = min(max(score, self.low), self.high)
        return HEIGHT * (self.high - inside) / (self.high - self.low)

    def x(self, frame: float) -> float:
        """Share of the width, in 0..100."""
        return 100 * min(max(frame / max(self.n_frames, 1), 0.0), 1.0)


def draw(
    windows: WindowScores,
    incidents: Sequence[Incident],
    *,
    n_frames: int,
    fps: float,
    threshold: float,
    abnormal: NDArray[np.bool_] | None,
) -> str:
    """Render the timeline as SVG."""
    lines = downsample(windows, n_frames)
    scale = PlotScale.fitting(lines.score, n_frames, threshold)
    below = HEIGHT + (LANE + 4 if abnormal is not None else 0)
    people = len(np.unique(windows.track_id))
    return "\n".join(
        [
            f'<svg class="timeline" width="100%" height="{below + 22:g}" role="img" '
            f'aria-label="Scores of {people} people over {clock(n_frames / fps, tenths=False)}; '
            f'{len(incidents)} events">',
            # from the back to the front, then what is below and above the plot
            *(_band(*_reach(incident, scale, fps), "band", 0, HEIGHT) for incident in incidents),
            _plot(lines, incidents, scale, fps),
            *_level(scale, 0.0, "zero", "0"),  # the mean of training
            *_level(scale, threshold, "threshold", f"{threshold:.3g}"),
            *(_lane(abnormal, scale) if abnormal is not None else ()),
            *_times(scale, n_frames / fps, below),
            *_numbers(incidents, scale, fps),
            "</svg>",
        ]
    )


def _band(left: float, right: float, kind: str, top: float, height: float) -> str:
    """A shaded interval."""
    return (
        f'<rect class="{kind}" x="{left:.2f}%" y="{top:g}" width="{right - left:.2f}%" '
        f'height="{height:g}"/>'
    )


def _reach(incident: Incident, scale: PlotScale, fps: float) -> tuple[float, float]:
    """Start and end of an event along the width, including its last frame."""
    event = incident.event
    return scale.x(event.first_s * fps), scale.x(event.last_s * fps + 1)


def _plot(lines: Lines, incidents: Sequence[Incident], scale: PlotScale, fps: float) -> str:
    """All people as thin lines; the tracks of an event are emphasised while it lasts."""
    inside = np.zeros(len(lines.place), dtype=np.bool_)  # points of people with an event, (n,)
    for incident in incidents:
        event = incident.event
        first, last = (
            int(second * fps * lines.bins / max(scale.n_frames, 1) + 1e-6)
            for second in (event.first_s, event.last_s)
        )
        during = (lines.place >= first) & (lines.place <= last)
        inside |= during & np.isin(lines.track, event.tracks)
    return (
        f'<svg width="100%" height="{HEIGHT:g}" viewBox="0 0 {10 * BINS} {HEIGHT:g}" '
        f'preserveAspectRatio="none"><path class="person" d="{_path(lines, scale)}"/>'
        f'<path class="odd" d="{_path(lines, scale, inside)}"/></svg>'
    )


def _path(lines: Lines, scale: PlotScale, kept: NDArray[np.bool_] | None = None) -> str:
    """SVG path through the points kept; an isolated point becomes a short stroke."""
    rows = np.arange(len(lines.place)) if kept is None else np.flatnonzero(kept)
    # a line also begins after a point that was left out
    begins = lines.begins[rows] | (np.diff(rows, prepend=-2) != 1)
    width = 10 * BINS / lines.bins
    x = ((lines.place[rows] + 0.5) * width).round().astype(np.int64).tolist()
    y = [scale.y(score) for score in lines.score[rows].tolist()]
    ends = [*begins[1:].tolist(), True]
    parts = []
    for at, (across, down, begin) in enumerate(zip(x, y, begins.tolist(), strict=True)):
        parts.append(f"{'M' if begin else 'L'}{across} {down:.1f}")
        if begin and ends[at]:
            parts.append(f"h{max(round(width / 2), 4)}")
    return "".join(parts)


def _level(scale: PlotScale, score: float, name: str, words: str) -> Iterator[str]:
    """A line at a score."""
    y = scale.y(score)
    yield f'<line class="{name}" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
    yield f'<text class="{name}" x="2" y="{y - 3:.1f}">{words}</text>'


def _lane(abnormal: NDArray[np.bool_], scale: PlotScale) -> Iterator[str]:
    """Frames labelled abnormal, below the plot."""
    yield f'<rect class="lane" x="0" y="{HEIGHT + 4:g}" width="100%" height="{LANE:g}"/>'
    for first, end in true_runs(abnormal):
        yield _band(scale.x(first), scale.x(end), "truth", HEIGHT + 4, LANE)


def _times(scale: PlotScale, seconds: float, top: float) -> Iterator[str]:
    """Time labels below the plot, as many as fit on a phone."""
    step = next((step for step in STEPS_S if seconds / step <= TICKS), seconds / TICKS)
    for n in range(int(seconds / step) + 1):
        x = 100 * n * step / seconds if seconds else 0.0
        anchor = "start" if x < 3 else "end" if x > 97 else "middle"
        yield f'<line class="tick" x1="{x:.2f}%" x2="{x:.2f}%" y1="{top:g}" y2="{top + 4:g}"/>'
        yield (
            f'<text class="time" x="{x:.2f}%" y="{top + 17:g}" text-anchor="{anchor}">'
            f"{clock(n * step, tenths=step < 1)}</text>"
        )


def _numbers(incidents: Sequence[Incident], scale: PlotScale, fps: float) -> Iterator[str]:
    """Event numbers above the plot; where they would overlap, the highest peaks take precedence."""
    taken: list[float] = []
    for incident in sorted(incidents, key=lambda incident: -incident.event.peak):
        x = min(max(sum(_reach(incident, scale, fps)) / 2, 1.6), 98.4)
        if any(abs(x - other) < 100 * NEAR for other in taken):
            continue
        taken.append(x)
        n = incident.number
        target = f"event-{n}" if incident.explained else f"row-{n}"
        yield (
            f'<a href="#{target}" aria-label="event {n}"><circle class="number" cx="{x:.2f}%" '
            f'cy="-12" r="10"/><text class="number" x="{x:.2f}%" y="-8" text-anchor="middle">'
            f"{n}</text></a>"
        )

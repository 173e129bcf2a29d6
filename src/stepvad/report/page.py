"""Render the report as one self-contained HTML file; the same clip gives the same bytes."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from importlib.resources import files
from itertools import zip_longest
from string import Template

import numpy as np
from numpy.typing import NDArray

from stepvad.codec import encode
from stepvad.detector import Detector
from stepvad.events.rules import Event, Rules
from stepvad.events.threshold import Threshold
from stepvad.explain import Explanation
from stepvad.explain.event import HEAT, ROOM, ExplainedPeak, MotionFrames
from stepvad.model.scoring import Scores
from stepvad.report import plots, timeline
from stepvad.report.timeline import Incident
from stepvad.video.timeline import clock

SCORE = (
    "Scores are standard deviations above the mean of normal motion, weighted by the confidence of "
    "the poses: 0 is usual, higher is stranger."
)
RARITY = (
    "Scores tell how rarely people move like this in normal footage: one more is about three times "
    "as rare."
)
MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"
INSIDE = (
    "No camera pictures: only the name of the clip, the scores of its people over time and, for "
    "each event shown, the joints of one person as numbers. The page is self-contained and loads "
    "nothing from a server. Joints can still identify people: treat the page like the poses "
    "themselves."
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReportedClip:
    """Contents of a report: a scored clip, its model and its threshold."""

    scores: Scores
    fps: float
    detector: Detector
    model_name: str
    model_sha256: str
    rules: Rules
    threshold: Threshold | None
    """The calibrated threshold and its budget; None if it was chosen by hand."""
    incidents: Sequence[Incident]
    abnormal: NDArray[np.bool_] | None = None
    """Frames labelled abnormal, `(n_frames,)`."""
    first_frame: int = 0
    """First frame of the footage; part of a video keeps its frame numbers."""

    @property
    def watched_s(self) -> float:
        """Duration of the footage."""
        return (self.scores.n_frames - self.first_frame) / self.fps


def render(reported: ReportedClip) -> str:
    """Render the report as HTML."""
    sheet = house_style() + _read("page.css")
    script = player() + _read("page.js")
    shown = [
        _article(one, one.explained, reported)
        for one in reported.incidents
        if one.explained is not None
    ]
    return Template(_read("page.html")).substitute(
        policy=f"default-src 'none'; style-src {_digest(sheet)}; script-src {_digest(script)}; "
        "base-uri 'none'; form-action 'none'",
        version=escape(version("stepvad")),
        style=sheet,
        script=script,
        clip=escape(reported.scores.clip),
        n_events=_count(len(reported.incidents), "event"),
        summary=_summary(reported),
        facts=_list(_facts(reported)),
        timeline=timeline.draw(
            reported.scores.windows,
            reported.incidents,
            n_frames=reported.scores.n_frames,
            fps=reported.fps,
            threshold=reported.rules.threshold,
            abnormal=reported.abnormal,
        ),
        key="".join(_key(reported)),
        reading=_reading(reported),
        list=_table(reported),
        marks=_marks() if shown else "",
        incidents="\n".join(shown),
        inside=INSIDE,
    )


def house_style() -> str:
    """The style sheet shared by all pages: colours, typography and the player."""
    colours = {name: value for name, value in vars(plots).items() if isinstance(value, str)}
    return Template(_read("house.css")).substitute(colours)


def player() -> str:
    """The script that plays the motion around a peak."""
    return _read("player.js")


def _read(name: str) -> str:
    return files("stepvad.report").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Hash source of an inline script or style, for the Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _summary(reported: ReportedClip) -> str:
    """One-sentence summary of the report."""
    if not reported.incidents:
        return f"No event in {_duration(reported.watched_s)} of footage."
    events, length = _count(len(reported.incidents), "event"), _duration(reported.watched_s)
    top = max(reported.incidents, key=lambda incident: incident.event.peak)
    which = "It" if len(reported.incidents) == 1 else f"The most unusual, event {top.number},"
    peak = f"{_number(top.event.peak)} at {_time(top.event.peak_s)}"
    return f"{events} in {length} of footage. {which} has its peak score of {peak}."


def _facts(reported: ReportedClip) -> Iterator[tuple[str, str]]:
    """Clip, threshold and model, as terms and descriptions."""
    people = len(np.unique(reported.scores.windows.track_id))
    frames = f"{reported.scores.n_frames - reported.first_frame:,} frames"
    tracks = f"{_count(people, 'track')} with scores"
    yield "Clip", f"{frames} at {reported.fps:g} a second, {tracks}"
    yield "Threshold", f"{_number(reported.rules.threshold)}, {_budget(reported)}"
    config, origin = reported.detector.config, reported.detector.origin
    sha256 = f"sha256 <code>{reported.model_sha256[:12]}</code>"
    settings = [
        f"windows of {config.T} frames ({config.T / reported.fps:.2g} s)",
        _count(config.K, "component"),
        f"{_count(config.L, 'noise scale')} from {config.sigma_low:g} to {config.sigma_high:g}",
        f"fitted on {_count(origin.clips, 'clip')}",
    ]
    if len(reported.detector.views) > 1:
        names = (view.config.view_name for view in reported.detector.views)
        settings = [*names, settings[-1]]
    yield "Model", f"{escape(reported.model_name)}, {sha256}: {', '.join(settings)}"


def _budget(reported: ReportedClip) -> str:
    """The budget of the threshold, and the definition of an event."""
    if reported.threshold is None:
        words = "chosen by hand"
    else:
        words = escape(reported.threshold.words).replace(" %", "&nbsp;%")
    rules = reported.rules
    return (
        f"{words}. An event starts when someone stays above it for {rules.min_s:g} s; anything "
        f"within {rules.gap_s:g} s belongs to it. A window with more than "
        f"{100 * rules.max_interpolated:g}&nbsp;% interpolated poses raises no event."
    )


def _key(reported: ReportedClip) -> Iterator[str]:
    """Legend of the timeline."""
    line = '<path class="{0}" d="M0 6h22"/>'
    rect = '<rect class="{0}" width="22" height="12"/>'
    dashed = '<line class="threshold" x1="0" x2="22" y1="6" y2="6"/>'
    marks = [
        (line.format("person"), "each person"),
        (line.format("odd"), "person with an event"),
        (dashed, f"threshold {_number(reported.rules.threshold)}"),
        (rect.format("band"), "event"),
    ]
    if reported.abnormal is not None:
        marks.append((rect.format("truth"), "labelled as abnormal"))
    yield from (_entry(mark, words) for mark, words in marks)


def _marks() -> str:
    """Legend of the skeletons."""
    line = '<path class="{0}" d="M2 6h18"/>'
    marks = [
        (line.format("bone"), "observed"),
        (line.format("ghost"), "nearest normal motion"),
        ('<circle class="heat" cx="11" cy="6" r="5"/>', "joint that raises the score"),
    ]
    return f'<ul class="key">{"".join(_entry(mark, words) for mark, words in marks)}</ul>'


def _entry(mark: str, words: str) -> str:
    return f'<li><svg viewBox="0 0 22 12" aria-hidden="true">{mark}</svg>{words}</li>'


def _reading(reported: ReportedClip) -> str:
    """A guide to the timeline: the meaning of scores, downsampling and clipping."""
    n_frames, windows = reported.scores.n_frames, reported.scores.windows
    said = [RARITY if len(reported.detector.views) > 1 else SCORE]
    if n_frames > timeline.BINS:
        each_s = n_frames / timeline.BINS / reported.fps
        said.append(f"Each point is the highest score of a person within {each_s:.2g} s.")
    high = timeline.PlotScale.fitting(windows.A, n_frames, reported.rules.threshold).high
    if len(windows) and windows.A.max() > high:
        said.append(f"Scores above {_number(high)} are drawn at the upper edge.")
    return " ".join(said)


def _table(reported: ReportedClip) -> str:
    """Table of all events."""
    if not reported.incidents:
        return "<p>Nobody stayed above the threshold for long enough.</p>"
    rows = "\n".join(map(_row, reported.incidents))
    left = sum(incident.explained is None for incident in reported.incidents)
    note = (
        f'<p class="note">The {left} events with the lowest peaks are only listed; '
        "<code>--events</code> sets how many are shown.</p>"
        if left
        else ""
    )
    return (
        '<table><thead><tr><th>#</th><th class="when">when</th><th class="who">who</th>'
        '<th class="peak">peak</th><th class="what">what is unusual</th></tr></thead>'
        f"<tbody>\n{rows}\n</tbody></table>{note}"
    )


def _row(incident: Incident) -> str:
    n, event, explained = incident.number, incident.event, incident.explained
    number = f"{n}" if explained is None else f'<a href="#event-{n}">{n}</a>'
    what = "" if explained is None else next(iter(_said(explained)))
    return (
        f'<tr id="row-{n}"><td>{number}</td><td class="when">{_span(event)}</td>'
        f'<td class="who">{_who(event)}</td><td class="peak">{_number(event.peak)}</td>'
        f'<td class="what">{what}</td></tr>'
    )


def _said(explained: ExplainedPeak) -> list[str]:
    """Phrases for what is unusual, one per finding."""
    if not explained.findings:
        return ["No single part of the body stands out"]
    said = [finding.says for finding in explained.findings]
    return [escape(words[:1].upper() + words[1:]) for words in said]


def _article(incident: Incident, explained: ExplainedPeak, reported: ReportedClip) -> str:
    """Details of one explained event."""
    n, event = incident.number, incident.event
    motion = explained.explanation(reported.fps).motion
    frames = encode(motion).decode().replace("<", "\\u003c")
    says = "".join(f"<li>{words}</li>" for words in _words(explained, reported))
    times = event.peak / reported.rules.threshold
    label = f"skeleton of track {event.peak_track} around the peak of event {n}"
    return (
        f'<article class="event" id="event-{n}" aria-labelledby="title-{n}">'
        f'<header><h3 id="title-{n}">Event {n} · {_span(event)}</h3><p>{_who(event)} · score '
        f"{_number(event.peak)} at {_time(event.peak_s)}, {times:.2g}× the threshold</p></header>\n"
        f'<div class="motion" data-label="{label}">{strip(motion)}'
        f'<script type="application/json">{frames}</script></div>\n'
        f'<div class="told"><ul class="words">{says}</ul>{_parts(explained.peak)}'
        f"<dl>{_list(_grounds(explained.peak, reported))}</dl></div></article>"
    )


def _words(explained: ExplainedPeak, reported: ReportedClip) -> Iterator[str]:
    """Findings with their times."""
    for words, finding in zip_longest(_said(explained), explained.findings):
        if finding is None:
            yield words
            continue
        ends = finding.first_frame, finding.last_frame
        first, last = (_time(frame / reported.fps) for frame in ends)
        when = first if first == last else f"{first}{DASH}{last}"
        yield f'{words} <span class="small">{when}</span>'


def _parts(peak: Explanation) -> str:
    """Share of the peak score by body part; with several views, by view first."""
    title = "Share of the peak score, by part of the body"
    if peak.views:
        title = f"Share of the peak score: {peak.share_words}"
    rows = "".join(
        f'<span>{escape(part.name)}</span><svg aria-hidden="true">'
        f'<rect width="{100 * part.share:.1f}%" height="100%"/></svg>'
        f"<span>{100 * part.share:.0f} %</span>"
        for part in peak.parts
        if part.share >= 0.005
    )
    return f'<div><p class="small">{title}</p><div class="parts">{rows}</div></div>'


def _grounds(peak: Explanation, reported: ReportedClip) -> Iterator[tuple[str, str]]:
    """Details of the peak score, as terms and descriptions."""
    if peak.views:
        yield "Nearest normal motion", f"would score {_number(peak.base)}"
        return
    sigmas = reported.detector.config.sigmas.tolist()
    n = len(sigmas)
    each = [
        f"σ = {sigma:.2g}, number {sigmas.index(sigma) + 1} of {n} from fine to coarse"
        for sigma in peak.scales
    ]
    several = f"{len(each)} of {n} together"
    yield "Deciding noise scale", several if len(each) > 3 else ", ".join(each)
    lowered = f"{peak.confidence:.2f}: it lowers {_number(peak.energy)} to {_number(peak.score)}"
    unchanged = "1.00: it leaves the score unchanged"
    yield "Confidence of poses", lowered if peak.confidence < 1 else unchanged
    scores = f"scores {_number(peak.ghost_energy)} instead of {_number(peak.energy)}"
    still = "" if peak.ghost_is_normal else ", which is still outside the normal range"
    yield "Nearest normal motion", scores + still


def _list(pairs: Iterator[tuple[str, str]]) -> str:
    return "".join(f"<dt>{term}</dt><dd>{words}</dd>" for term, words in pairs)


def _who(event: Event) -> str:
    """The tracks of an event, the one with the peak first."""
    others = [track for track in event.tracks if track != event.peak_track]
    if not others:
        return f"track {event.peak_track}"
    if len(others) >= 6:  # too many to list
        return f"tracks {event.peak_track} and {len(others)} others"
    return f"tracks {', '.join(map(str, [event.peak_track, *others]))}"


def _span(event: Event) -> str:
    return f"{_time(event.first_s)}{DASH}{_time(event.last_s)}"


def _time(seconds: float) -> str:
    return clock(seconds, tenths=True)


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.3g} s"
    return clock(seconds, tenths=False) + (" h" if seconds >= 3600 else " min")


def _number(value: float) -> str:
    """Two decimals below 10, one below 100, none above."""
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{round(value, digits) + 0.0:,.{digits}f}".replace("-", MINUS)  # -0 becomes 0


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


LARGEST_DOT = 0.055
"""Dot radius of the joint that contributes most, relative to the width of the view."""


def strip(motion: MotionFrames) -> str:
    """Render a few frames side by side; works without scripts and in print."""
    # six frames, joints of the person and of the nearest normal motion, (6, 2V, 2)
    shown = np.unique(np.linspace(0, len(motion.observed) - 1, 6).round().astype(np.int64))
    joints = np.array([motion.observed, motion.ghost])[:, shown]  # (2, 6, 2V)
    observed, ghost = joints.reshape(2, len(shown), -1, 2)
    both = np.concatenate([observed, ghost], axis=1)
    low, high = both.min(axis=1), both.max(axis=1)
    size = max(int(ROOM * (high - low).max()), 1)
    corners = (low + high - size) // 2  # each frame centred on its own, all on one scale
    stills = [
        f"<li>{_still(motion, at, person - corner, normal - corner, size)}<span>"
        f"{clock((motion.first + at) / motion.fps, tenths=True)}</span></li>"
        for at, corner, person, normal in zip(shown.tolist(), corners, observed, ghost, strict=True)
    ]
    return f'<ol class="strip">{"".join(stills)}</ol>'


def _still(
    motion: MotionFrames, at: int, observed: NDArray[np.int64], ghost: NDArray[np.int64], size: int
) -> str:
    """Render one frame as a square of `size`."""
    largest = LARGEST_DOT * size
    dots = [
        f'<circle cx="{x}" cy="{y}" r="{round(largest * (heat / HEAT) ** 0.5)}"/>'
        for (x, y), heat in zip(observed.tolist(), motion.heat[at], strict=True)
        if heat
    ]
    return (
        f'<svg viewBox="0 0 {size} {size}" aria-hidden="true">'
        f'<path class="ghost" d="{_path(motion, ghost)}"/>'
        f'<path class="bone" d="{_path(motion, observed)}"/>'
        f'<g class="heat">{"".join(dots)}</g></svg>'
    )


def _path(motion: MotionFrames, joints: NDArray[np.int64]) -> str:
    """Bones as one SVG path; joints if there are no bones."""
    if not motion.bones:
        return "".join(f"M{x} {y}h1" for x, y in joints.tolist())
    ends = [(joints[a], joints[others].mean(axis=0).round().astype(np.int64))
            for a, *others in motion.bones]  # fmt: skip
    return "".join(f"M{a[0]} {a[1]}L{b[0]} {b[1]}" for a, b in ends)

"""Pages of reports as their readers see them, and the cases they are made from."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from typing import Any

import numpy as np

from stepvad.detector import Detector
from stepvad.evaluation.walkers import make_clips
from stepvad.events.rules import Rules
from stepvad.model.scoring import Scores
from stepvad.poses import Clip, Track
from stepvad.report.page import ReportedClip
from stepvad.report.timeline import investigate

VOID = {"meta", "input", "br", "link", "img"}


@dataclass
class Element:
    """A tag with what is in it, in order."""

    tag: str
    attributes: dict[str, str]
    parts: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    def every(self, tag: str = "", **attributes: str) -> list[Element]:
        """All elements below, in order; `kind` is one of its classes."""
        found = []
        for part in self.parts:
            if isinstance(part, str):
                continue
            wanted = dict(attributes)
            kind = wanted.pop("kind", None)
            fits = tag in ("", part.tag) and wanted.items() <= part.attributes.items()
            if fits and (kind is None or kind in part.attributes.get("class", "").split()):
                found.append(part)
            found += part.every(tag, **attributes)
        return found

    def one(self, tag: str = "", **attributes: str) -> Element:
        (found,) = self.every(tag, **attributes)
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            made = self.open[-1].parts[-1]
            assert isinstance(made, Element)
            self.open.append(made)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].parts.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag, f"</{tag}> ends nothing"

    def handle_data(self, data: str) -> None:
        self.open[-1].parts.append(data)


def read(html: str) -> Element:
    """A page as a tree; tags that do not match are an error."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    (root,) = reader.open
    return root


def motions(page: Element) -> dict[int, dict[str, Any]]:
    """The numbers of each animation by its event."""
    return {
        int(article.attributes["id"].removeprefix("event-")): json.loads(
            article.one("script", type="application/json").text
        )
        for article in page.every("article")
    }


def joined_walkers(n: int, seed: int, name: str = "yard") -> Clip:
    """Test clips of walkers one after the other, as one clip."""
    tracks: list[Track] = []
    end = 0
    for clip, _ in make_clips(n, seed=seed, seconds=6.0, anomalies=True):
        for track in clip.tracks:
            tracks.append(
                Track(len(tracks) + 1, track.frames + end, track.keypoints, track.confidence)
            )
        end += clip.n_frames
    return Clip(name, 25.0, end, tuple(tracks))


def rules_of(scores: Scores, share: float = 0.9) -> Rules:
    """Rules that make many short events: that share of the scores is below the threshold."""
    threshold = max(float(np.quantile(scores.A, share)), 0.1)
    return Rules(threshold=threshold, min_s=0.1, gap_s=0.5)


def case_of(
    detector: Detector,
    clip: Clip,
    *,
    most: int = 20,
    max_interpolated: float = 0.5,
    **changes: Any,
) -> ReportedClip:
    """A case with many events."""
    scores = detector.score(clip)
    rules = replace(rules_of(scores), max_interpolated=max_interpolated)
    case = ReportedClip(
        scores=scores,
        fps=25.0,
        detector=detector,
        model_name="model.safetensors",
        model_sha256="0123456789abcdef" * 4,
        rules=rules,
        threshold=None,
        incidents=investigate(detector, clip, scores, rules, most=most),
    )
    return replace(case, **changes)

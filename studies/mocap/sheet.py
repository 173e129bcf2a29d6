"""A contact sheet of the mocap data set: one event of each class, from before to after."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stepvad.evaluation.datasets import Dataset
from stepvad.formats.labels import FrameLabels
from stepvad.model.scoring import true_runs
from stepvad.poses import Clip
from studies.mocap.cameras import SIZE
from studies.mocap.catalogue import KINDS
from studies.plots.scene_sheet import ClipStrip, draw_scenes

MOMENTS = (0.05, 0.35, 0.65, 0.95)
"""Relative times of an event's frames on the sheet; half a second before and after is added."""

FEW, LONGEST_S = 2.5, 3.0
"""Events with at most this many people are preferred; at most this many seconds are shown."""


def draw_sheet(dataset: Dataset, path: Path) -> None:
    """Write a PNG with one event of each class, the longest with few people in view."""
    clips = list(dataset.test_clips())
    found = [_strip(clips, kind) for kind in KINDS]
    strips = [strip for strip in found if strip is not None]
    draw_scenes(strips, path, size=SIZE, title="mocap, simulated cameras")


def _strip(clips: list[tuple[Clip, FrameLabels]], kind: str) -> ClipStrip | None:
    """Up to three seconds of an event of a class, or None if there is none."""
    events = []
    for number, (clip, labels) in enumerate(clips):
        if kind not in labels.classes:
            continue
        people = clip.persons_per_frame()
        for first, end in true_runs(labels.classes[kind]):
            few = bool(people[first:end].mean() <= FEW and people[first:end].min() > 0)
            events.append((few, end - first, number, first, end))
    if not events:
        return None
    *_, number, first, end = max(events)
    clip, labels = clips[number]
    fps = clip.fps or 1.0
    end = min(end, first + round(LONGEST_S * fps))
    inner = [first + share * (end - first) for share in MOMENTS]
    moments = np.clip([first - fps / 2, *inner, end + fps / 2], 0, clip.n_frames - 1)
    caption = f"{kind}, clip {clip.name}"
    return ClipStrip(clip, caption, np.unique(moments.astype(np.int64)).tolist(), labels.abnormal)

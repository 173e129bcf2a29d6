"""What a model makes of a motion that was called normal, and of true anomalies.

    python -m studies feedback DATA [--classes dance jump] [--seed 0] [--shares 0.01 0.05]

DATA is a labelled data set. A model is fitted on its training clips, and the threshold is the score
that 1 % of normal test frames reach. Of each class, the clips are dealt into two halves: events
that overlap the class in one half are marked as normal, and the model is fitted anew. Then, at the
threshold that as many normal frames reach: how many frames of the class are above it in the clips
that were marked, and in the others; and the AUROC of all other classes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from stepvad.config import Compute, Config
from stepvad.detector import Detector
from stepvad.evaluation.datasets import open_dataset
from stepvad.evaluation.metrics import auroc
from stepvad.events.calibration import RULES
from stepvad.events.marks import SHARE, repeated
from stepvad.events.rules import Event, events_in
from stepvad.formats.labels import FrameLabels
from stepvad.poses import Clip

Shown = list[tuple[Clip, FrameLabels]]
FAST = Compute(runtime="fastest")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--classes", nargs="+", default=["dance"])
    parser.add_argument("--shares", nargs="+", type=float, default=[SHARE])
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--max-steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    data = open_dataset(given.data)
    train, test = [*data.train_clips()], [*data.test_clips()]
    config = replace(
        Config.short(),
        width=given.width,
        max_steps=given.max_steps,
        learning_rate=1e-3,
        seed=given.seed,
    )
    first = Detector.fit(train, config, compute=FAST)
    print(
        "class", "share", "marked", "above: marked", "others of the class", "AUROC: other classes"
    )
    for kind, share in product(given.classes, given.shares):
        marked, unseen = halves(test, kind)
        cuts = [cut for clip, labels in marked for cut in events_of(first, clip, labels, kind)]
        again = list(repeated(cuts, first.origin.windows, config.T, share=share))
        after = Detector.fit([*train, *again], config, compute=FAST)
        for name, detector in (("before", first), ("after", after)):
            figures = measure(detector, test, marked, unseen, kind)
            print(kind, share, len(cuts), name, *(f"{100 * figure:.1f}" for figure in figures))


def halves(test: Shown, kind: str) -> tuple[Shown, Shown]:
    """The clips of a class, every other one marked."""
    shown = [(clip, labels) for clip, labels in test if kind in labels.classes]
    return shown[::2], shown[1::2]


def events_of(detector: Detector, clip: Clip, labels: FrameLabels, kind: str) -> list[Clip]:
    """The poses of events at a low threshold that overlap the class: what somebody marks."""
    fps = clip.rate(None)
    found = events_in(detector.score(clip).windows, fps, replace(RULES, threshold=1.5))
    frames = np.flatnonzero(labels.classes[kind])
    return [
        cut_out(clip, event, fps, detector.config.T)
        for event in found
        if ((frames >= event.first_s * fps) & (frames <= event.last_s * fps)).any()
    ]


def cut_out(clip: Clip, event: Event, fps: float, T: int) -> Clip:
    """The poses of an event's people in all its windows."""
    begin_s = min(event.first_s, event.peak_s)  # late joiners may have peaked before it began
    first, last = round(begin_s * fps) - T + 1, round(event.last_s * fps)
    tracks = (track.between(first, last + 1) for track in clip.tracks if track.id in event.tracks)
    return replace(
        clip, n_frames=min(last + 1, clip.n_frames), tracks=tuple(t for t in tracks if len(t))
    )


def measure(
    detector: Detector, test: Shown, marked: Shown, unseen: Shown, kind: str
) -> tuple[float, float, float]:
    """Shares above the threshold in marked and other clips of the class, and others' AUROC."""
    frames = {clip.name: detector.score(clip).frames for clip, _ in test}
    normal = np.concatenate([frames[clip.name][~labels.abnormal] for clip, labels in test])
    threshold = np.nanquantile(normal, 0.99)

    def above(some: Shown) -> float:
        scores = [frames[clip.name][labels.classes[kind]] for clip, labels in some]
        return float(np.mean(np.concatenate(scores) > threshold))

    others = [(clip, labels) for clip, labels in test if kind not in labels.classes]
    scores = np.concatenate([np.nan_to_num(frames[clip.name], nan=-1e9) for clip, _ in others])
    truth = np.concatenate([labels.abnormal for _, labels in others])
    return above(marked), above(unseen), auroc(truth, scores)

"""What is lost by carrying boxes and by looking only at motion, and what a frame then costs.

    OMP_NUM_THREADS=1 python -m studies watching falls GMDCSA24 DETECTOR POSE --poses POSES
    OMP_NUM_THREADS=1 python -m studies watching people VIDEO DETECTOR POSE [--first 0] [--end 795]
    OMP_NUM_THREADS=1 python -m studies watching cost VIDEO DETECTOR POSE [--first 480] [--end 600]

`every frame` detects and follows in every frame; `watch` is what a camera process does. Both see
the same ticks, `--rate` a second. `falls` is judged as by `studies footage`: `--poses` has the
poses that its run left, its detectors are fitted on them once and kept there, and each way
calibrates its own thresholds. Lost are tracked people of `every frame` without one of `watch` that
overlaps by a half. The cost is processor time of this thread, in chunks of frames in turns.
`--instead DETECTOR` gives the watch another detector than the one it is compared with.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.events.calibration import RULES
from stepvad.formats import read_clip
from stepvad.people import Boxes, People, best_pairs, extents, iou
from stepvad.poses import Clip
from stepvad.tracker import Tracker
from stepvad.video.estimators import TopDown, open_detector, open_estimator
from stepvad.video.extract import MIN_CONFIDENCE, FoundPeople, track
from stepvad.video.following import Follower, Moment, detect_and_recover
from stepvad.video.source import EARLY, Image, VideoFile, opencv
from stepvad.video.watching import Watch
from studies.chain.alerts import ClipResult, judge
from studies.chain.footageset import Fold
from studies.chain.known import gmdcsa24
from studies.chain.measure import Summary, choose_threshold

STEPS = 400
SAME = 0.5
"""Overlap from which two boxes show the same person."""
Tick = tuple[int, float, Image, NDArray[np.uint8]]
"""Slot, time, RGB and luma of a frame."""


@dataclass
class Way:
    """A way to look at the frames of one camera; counts what the networks did."""

    name: str
    networks: TopDown
    rate: float
    detections: int = 0
    poses: int = 0
    looks: int = 0
    tracker: Tracker = field(default_factory=Tracker)
    spent: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Open the watch, which calls the networks through this."""
        self._watch = Watch(self, self.rate)
        self._follower = Follower()

    def detect(self, images: Sequence[Image]) -> list[Boxes]:
        """The detector's boxes, counted."""
        self.detections += len(images)
        return self.networks.detect(images)

    def estimate(self, images: Sequence[Image], boxes: Sequence[Boxes]) -> list[People]:
        """The joints, counted."""
        self.poses += sum(map(len, boxes))
        return self.networks.estimate(images, boxes)

    def look(self, tick: Tick) -> People | None:
        """The people of a frame; None if it was not looked at."""
        _, time_s, image, luma = tick
        if self.name == "watch":
            is_worth = self._watch.asks(luma, time_s)
            self.looks += is_worth
            return self._watch.look(image, time_s, image.shape) if is_worth else None
        self.looks += 1
        moment = Moment(time_s, image.shape)
        last = self._follower.last_poses(moment)
        (people,) = detect_and_recover(self, [image], [last])
        self._follower.update(moment, people)
        return people

    def tracked(self, tick: Tick) -> NDArray[np.float32]:
        """Extents `(n, 4)` of the tracked poses of a frame."""
        people = self.look(tick)
        if people is None:
            return np.empty((0, 4), np.float32)
        sure = people.select(people.certain(MIN_CONFIDENCE))
        poses = [pose.keypoints for pose in self.tracker.update(sure, time_s=tick[1])]
        return extents(np.stack(poses)) if poses else np.empty((0, 4), np.float32)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["falls", "people", "cost"])
    parser.add_argument("footage", type=Path)
    parser.add_argument("detector", type=Path)
    parser.add_argument("pose", type=Path)
    parser.add_argument("--poses", type=Path, default=Path("poses"))
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--end", type=int, default=10**9)
    parser.add_argument("--chunk", type=int, default=20, help="frames in turn")
    parser.add_argument("--instead", type=Path, help="detector of the watch")
    given = parser.parse_args(arguments)
    networks = open_estimator(given.detector, given.pose)
    if given.what == "falls":
        falls(given.footage, networks, given.poses, given.rate)
    else:
        other = networks
        if given.instead is not None:
            other = replace(networks, detector=open_detector(given.instead))
        ways = [Way("every frame", networks, given.rate), Way("watch", other, given.rate)]
        ticks = (t for t in ticks_of(given.footage, given.rate) if given.first <= t[0] < given.end)
        compare(ways, list(ticks), given.chunk)


def ticks_of(video: Path, rate: float) -> Iterator[Tick]:
    """The frames of a video on a grid of `rate` slots a second."""
    cv2, due = opencv("studies"), -1
    for frame in VideoFile(video):
        slot = int(np.floor((frame.pts or 0.0) * rate + EARLY))
        if slot > due:
            due, luma = slot, cv2.cvtColor(frame.image, cv2.COLOR_RGB2GRAY)
            yield slot, frame.pts or 0.0, frame.image, luma


def compare(ways: Sequence[Way], ticks: Sequence[Tick], chunk: int) -> None:
    """Print what two ways cost in turns, and whom the second loses."""
    found: dict[str, list[NDArray[np.float32]]] = {way.name: [] for way in ways}
    for turn, start in enumerate(range(0, len(ticks), chunk)):
        for way in (ways, ways[::-1])[turn % 2]:
            began = time.thread_time()
            found[way.name] += [way.tracked(tick) for tick in ticks[start : start + chunk]]
            way.spent.append((time.thread_time() - began) / len(ticks[start : start + chunk]))
    # tracked people of the first way without one of the second
    pairs = list(zip(*found.values(), strict=True))
    lost = sum(len(a) - matched(a, b) for a, b in pairs)
    print(f"lost {lost} of {sum(len(a) for a, _ in pairs)} people, {len(ticks)} frames")
    ratios = [b / a for a, b in zip(*(way.spent[1:] for way in ways), strict=True)]
    for way in ways:
        counts = [n / len(ticks) for n in (way.looks, way.detections, way.poses)]
        print(
            f"{way.name:12} {1e3 * statistics.median(way.spent[1:]):6.1f} ms a frame; looks, "
            "detections, joints a frame: " + ", ".join(f"{n:.2f}" for n in counts)
        )
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(f"ratio {statistics.median(ratios):.2f}, {spread} in {len(ratios)} chunks")


def matched(a: NDArray[np.float32], b: NDArray[np.float32]) -> int:
    """Number of boxes that are in both."""
    overlap = iou(a, b)
    return sum(overlap[pair] >= SAME for pair in best_pairs(overlap)) if overlap.size else 0


def falls(root: Path, networks: TopDown, poses: Path, rate: float) -> None:
    """Print how many falls each way finds."""
    chosen = gmdcsa24(root)
    clips: dict[str, dict[str, Clip]] = {"every frame": {}, "watch": {}}
    counts = {name: np.zeros(4, int) for name in clips}
    for name, clip in chosen.clips.items():
        ticks = list(ticks_of(clip.path, rate))
        for kind in clips:
            way = Way(kind, networks, rate)
            clips[kind][name] = tracked_clip(name, way, ticks)
            counts[kind] += (len(ticks), way.looks, way.detections, way.poses)
    results: dict[str, list[ClipResult]] = {name: [] for name in clips}
    for fold in chosen.folds:
        detector = fitted(fold, poses)
        for kind, own in clips.items():
            scored = {name: detector.score(own[name]) for name in (*fold.calibrate, *fold.test)}
            calm = [(own[name], scored[name]) for name in fold.calibrate]
            rules = replace(RULES, threshold=choose_threshold(calm, 1.0).value)
            results[kind] += [
                judge(chosen.clips[name], own[name], scored[name], rules, fold=fold.name)
                for name in fold.test
            ]
    for kind, some in results.items():
        whole = Summary.of(some)
        frames, *used = counts[kind].tolist()
        print(
            f"{kind:12} found {whole.found}, false alerts {whole.false_alerts}, AUROC by clip "
            f"{whole.auroc.value:.2f}, median delay {statistics.median(whole.delays_s):.1f} s; "
            f"of {frames} frames, looks, detections, joints {used}"
        )
        missed = [one.name for one in some for e in one.events if e.outcome != "found"]
        false = [one.name for one in some if one.false_alerts]
        print(f"{'':12} not found: {', '.join(missed)}; false: {', '.join(false)}")


def tracked_clip(name: str, way: Way, ticks: Sequence[Tick]) -> Clip:
    """The tracked poses of a clip; frames without a look have nobody."""
    seen = []
    for tick in ticks:
        if (people := way.look(tick)) is not None:
            height, width = tick[2].shape[:2]
            seen.append(FoundPeople(tick[0], tick[1], (width, height), people))
    clip = track(seen, name, fps=way.rate, min_confidence=MIN_CONFIDENCE).clip
    return replace(clip, n_frames=ticks[-1][0] + 1)


def fitted(fold: Fold, poses: Path) -> Detector:
    """The detector of a fold, fitted once on the poses of its clips and all of AIRTLab's."""
    file = poses / f"{fold.name}.safetensors"
    if not file.exists():
        names = [*sorted(path.stem for path in poses.glob("AIRTLab-non-*.parquet")), *fold.fit]
        clips = [replace(read_clip(poses / f"{name}.parquet"), name=name) for name in names]
        Detector.fit(clips, replace(Config.footage(), max_steps=STEPS)).save(file)
    return Detector.load(file)

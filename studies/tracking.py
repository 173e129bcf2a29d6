"""Which detector and which tracker: recall, MOTA, IDF1 and HOTA against official identities.

    pip install trackers    # in an environment of its own: ByteTrack, OC-SORT and the measures
    python -m studies tracking vtest.avi gt.txt CACHE POSE DETECTOR... [--mot mot_gt.npz]

`vtest.avi` is the sequence PETS09-S2L1 of MOT15, and gt.txt its truth. Choices are made on the
frames before 398, the others confirm them. Each detector runs once, with poses, following and
second looks as in `stepvad extract`; what it finds is kept in CACHE. Every tracker gets the same
people, at 10 frames a second and fewer. Settings of other people's trackers are the best in IDF1 of
a grid on the first half.

With --mot the trackers get boxes without joints of fixed cameras: MOT15's own detections, and
detections made from the truth of MOT17 (seed 0), at about 10 frames a second.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepvad.people import Boxes, People, iou
from stepvad.tracker import Tracker
from stepvad.video.estimators import open_detector, open_estimator
from stepvad.video.extract import MIN_CONFIDENCE, Parts, extract_file
from stepvad.video.source import VideoFile

HALF = 398
RATE, MOT_RATE = 10.0, 10
STEPS = (1, 2, 3)
SAME = 0.5
"""Overlap from which a box is that of the truth."""
FIXED = ("MOT15/TUD-Campus", "MOT15/TUD-Stadtmitte", "MOT15/Venice-2")
MADE = ("MOT17/MOT17-02", "MOT17/MOT17-04", "MOT17/MOT17-09")
GRID: Mapping[str, tuple[float, ...]] = {
    "lost_track_buffer": (30, 90),
    "minimum_iou_threshold": (0.1, 0.3),
    "high_conf_det_threshold": (0.5, 0.6),
}
COLUMNS = ("recall", "precision", "MOTA", "IDF1", "HOTA", "switches", "fragments")

Tracked = dict[int, tuple[NDArray[np.int64], NDArray[np.float32]]]
"""Ids `(n,)` and boxes `(n, 4)` by frame."""
Way = Callable[[dict[int, People], float], Tracked]
"""A tracker: the people by frame, and the frames a second."""


def ours(frames: dict[int, People], fps: float) -> Tracked:
    """The tracks of this project's tracker."""
    tracker, found = Tracker(), {}
    for at, (number, people) in enumerate(frames.items()):
        poses = tracker.update(people, time_s=at / fps)
        rows = [
            int(np.abs(people.keypoints - pose.keypoints).sum((1, 2)).argmin()) for pose in poses
        ]
        ids = np.array([pose.track_id for pose in poses], np.int64)
        found[number] = ids, people.boxes.corners[rows].reshape(-1, 4)
    return found


def theirs(kind: str, **settings: float) -> Way:
    """The tracks of a tracker of the package `trackers`."""
    import supervision
    import trackers

    def way(frames: dict[int, People], fps: float) -> Tracked:
        tracker, found = getattr(trackers, kind)(frame_rate=fps, **settings), {}
        for number, people in frames.items():
            boxes = people.boxes
            given = supervision.Detections(boxes.corners, confidence=boxes.scores)
            given.class_id = np.zeros(len(boxes), int)
            result = tracker.update(given)
            rows = result.tracker_id >= 0
            found[number] = result.tracker_id[rows], result.xyxy[rows].reshape(-1, 4)
        return found

    return way


def settings_of(kind: str) -> Iterator[dict[str, float]]:
    """Every setting of the grid."""
    grid = dict(GRID)
    if kind == "ByteTrackTracker":
        grid["track_activation_threshold"] = (0.55, 0.7)
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def measure(truth: Tracked, found: Tracked) -> list[dict[str, Any]]:
    """CLEAR, identity and HOTA measures of the frames that were tracked."""
    from trackers.eval import (
        compute_clear_metrics,
        compute_hota_metrics,
        compute_identity_metrics,
    )

    empty = np.empty(0, np.int64), np.empty((0, 4), np.float32)
    pairs = [(truth.get(number, empty), found[number]) for number in found]
    ids = [real for (real, _), _ in pairs], [given for _, (given, _) in pairs]
    overlap = [iou(real, given) for (_, real), (_, given) in pairs]
    ways = (compute_clear_metrics, compute_identity_metrics, compute_hota_metrics)
    return [way(*ids, overlap) for way in ways]


def row(name: str, results: Sequence[list[dict[str, Any]]]) -> str:
    """One line: the means over the first frames."""
    mean = [
        [
            *(clear["CLR_Re"], clear["CLR_Pr"], clear["MOTA"]),
            *(identity["IDF1"], hota["HOTA"], clear["IDSW"], clear["Frag"]),
        ]
        for clear, identity, hota in results
    ]
    return f"{name:44}" + "".join(
        f"{value:11.1f}" if at > 4 else f"{value:11.3f}"
        for at, value in enumerate(np.mean(mean, axis=0))
    )


def on_half(
    way: Way, people: dict[int, People], truth: Tracked, step: int, *, first: bool
) -> list[list[dict[str, Any]]]:
    """The measures of one half, from each possible first frame; tracking begins with the clip."""
    results = []
    for start in range(step):
        frames = {n: one for n, one in people.items() if n % step == start}
        found = way(frames, RATE / step)
        results.append(measure(truth, {n: one for n, one in found.items() if (n < HALF) == first}))
    return results


def best(kind: str, people: dict[int, People], truth: Tracked) -> tuple[Way, dict[str, float]]:
    """The tracker with the settings that have the highest IDF1 on the first half."""
    found = []
    for settings in settings_of(kind):
        way = theirs(kind, **settings)
        (result,) = on_half(way, people, truth, 1, first=True)
        found.append((result[1]["IDF1"], way, settings))
    _, way, settings = max(found, key=lambda one: one[0])
    return way, settings


def read(video: Path, detector: Path, pose: Path, cache: Path) -> dict[int, People]:
    """The people of every frame that are sure enough; the networks run only if need be."""
    origin = {"video": video.name, "detector": detector.name, "pose": pose.name}
    with Parts(cache / detector.stem, origin) as parts:
        if parts.latest is None or parts.latest.number + 1 < (VideoFile(video).n_frames or 0):
            extract_file(VideoFile(video), open_estimator(detector, pose), parts)
        return {
            seen.number: seen.people.select(seen.people.certain(MIN_CONFIDENCE)) for seen in parts
        }


def truth_of(rows: NDArray[np.float64]) -> Tracked:
    """The counted boxes by frame, from 0, of rows frame, id, left, top, width, height, flag."""
    rows = rows[rows[:, 6] > 0]
    boxes = np.concatenate([rows[:, 2:4], rows[:, 2:4] + rows[:, 4:6]], axis=1).astype(np.float32)
    return {
        int(number) - 1: (
            rows[rows[:, 0] == number, 1].astype(np.int64),
            boxes[rows[:, 0] == number],
        )
        for number in np.unique(rows[:, 0])
    }


def boxes_alone(frames: Sequence[int], rows: NDArray[np.float64]) -> dict[int, People]:
    """People by frame from rows frame, left, top, width, height, score: the corners as joints."""
    found = {}
    for number in frames:
        one = rows[rows[:, 0] == number + 1]
        low, high = one[:, 1:3], one[:, 1:3] + one[:, 3:5]
        corners = np.concatenate([low, high], axis=1)
        joints = np.stack([low, corners[:, [2, 1]], high, corners[:, [0, 3]]], axis=1)
        boxes = Boxes(corners, one[:, 5])
        found[number] = People(boxes, joints, np.repeat(one[:, 5:], 4, axis=1))
    return found


def made(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Detections like a network's: hidden people are missed, boxes jitter, some are false."""
    random = np.random.default_rng(0)
    seen = rows[random.random(len(rows)) < 0.97 * np.minimum(1, rows[:, 8] / 0.4)]
    boxes = seen[:, 2:6] + random.normal(0, 0.04, (len(seen), 4)) * seen[:, [5]]
    scores = np.clip(0.35 + 0.5 * seen[:, 8] + random.normal(0, 0.1, len(seen)), 0.3, 1)
    real = np.column_stack([seen[:, 0], boxes, scores])
    false = real[random.random(len(real)) < 0.05]
    false[:, 1:3] += random.normal(0, 1, (len(false), 2)) * false[:, [4]]
    false[:, 5] = random.uniform(0.3, 0.65, len(false))
    return np.concatenate([real, false])


def print_mot(file: Path, ways: Mapping[str, Way]) -> None:
    """Print the measures of every sequence, at about ten frames a second."""
    stored = np.load(file)
    for name in (*FIXED, *MADE):
        rows, (fps, n_frames, *_) = stored[f"{name}/gt"], stored[f"{name}/info"]
        counted = rows[(rows[:, 6] > 0) & (rows[:, 7] == 1)]
        if name in FIXED:
            found = stored[f"{name}/det"].copy()
            found[:, 5] = np.clip(0.4 + found[:, 5] / 100, 0, 1)
        else:
            found = made(counted)
        step = max(1, round(fps / MOT_RATE))
        people = boxes_alone(range(0, int(n_frames), step), found)
        for way, track in ways.items():
            print(row(f"{name} {way}", [measure(truth_of(counted), track(people, fps / step))]))


def print_times(video: Path, detectors: Sequence[Path]) -> None:
    """Print the time of a look in turns, by shape of the picture, beside the first detector's."""
    opened = {file.stem: open_detector(file) for file in detectors}
    for name, detector in [*opened.items()]:
        if detector.network.kind() == "rtmdet":  # as its makers export it
            port = replace(detector.network.input, shape=(1, 3, 320, 320))
            fixed = replace(detector.network, input=port)
            opened[f"{name}, fixed input"] = replace(detector, network=fixed)
    spent: dict[tuple[str, str], list[float]] = defaultdict(list)
    for frame in itertools.islice(iter(VideoFile(video)), 0, None, 8):
        height = frame.image.shape[1] * 9 // 16
        for shape, image in (("whole", frame.image), ("16:9", frame.image[:height])):
            for name, detector in opened.items():
                began = time.process_time()
                detector.detect([image])
                spent[shape, name].append(1e3 * (time.process_time() - began))
    for (shape, name), own in spent.items():
        ratio = statistics.median(
            a / b for a, b in zip(own, spent[shape, detectors[0].stem], strict=True)
        )
        print(f"{shape:6}{name:36}{statistics.median(own):7.1f} ms a frame, ratio {ratio:.2f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("video", "truth", "cache", "pose"):
        parser.add_argument(name, type=Path)
    parser.add_argument("detectors", type=Path, nargs="+")
    parser.add_argument("--mot", type=Path, help="file of MOT15's and MOT17's truth")
    given = parser.parse_args(arguments)
    truth = truth_of(np.loadtxt(given.truth, delimiter=","))
    print_times(given.video, given.detectors)
    print(f"{'':44}" + "".join(f"{column:>11}" for column in COLUMNS))
    for detector in given.detectors:
        people = read(given.video, detector, given.pose, given.cache)
        ways: dict[str, Way] = {"ours": ours}
        for kind in ("ByteTrackTracker", "OCSORTTracker"):
            ways[kind], settings = best(kind, people, truth)
            print(f"{kind}: {settings}")
        for name, way in ways.items():
            for first, step in itertools.product((True, False), STEPS):
                half = f"{'to' if first else 'from'} {HALF}"
                label = f"{detector.stem[:16]} {name[:9]} 1 of {step}, {half}"
                print(row(label, on_half(way, people, truth, step, first=first)))
    if given.mot:
        print_mot(given.mot, ways)

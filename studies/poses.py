"""Processor time from video to tracked poses: networks as published, and as they are run here.

    OMP_NUM_THREADS=1 python -m studies poses VIDEO DETECTOR POSE [--first 480] [--rounds 12]

The old way runs the files untouched on ONNX Runtime in float32, one person a call, with a square
input for the detector, and takes the people as they are detected; the new way does all that
`stepvad extract` does, following and second looks included. Both decode, find people and track
them on the same chunks of frames, in turns, each on one thread; ratios are of the same chunk.
With `--every 3` the new way looks at every third frame only. Agreement compares the people of both
ways, frame by frame. `--engine openvino --precision bfloat16` runs on any processor with AVX-512;
where it does not multiply bfloat16, it emulates it: agreement then holds, time does not.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepvad.model.engines import RunGraph
from stepvad.people import Boxes, People, iou
from stepvad.tracker import Tracker
from stepvad.video.estimators import PersonDetector, PoseNetwork, TopDown
from stepvad.video.extract import MIN_CONFIDENCE
from stepvad.video.following import Follower, Moment, detect_and_recover
from stepvad.video.networks import ImageNetwork, PoseEngine, choose_engine, open_network
from stepvad.video.source import Frame, Image, VideoFile

SIGMAS = np.array([26, 25, 25, 35, 35, 79, 79, 72, 72, 62, 62, 107, 107, 87, 87, 89, 89]) / 1000
"""COCO's spread of each joint, for the object keypoint similarity."""
SAME_PERSON = 0.5
"""Overlap from which two boxes show the same person."""


@dataclass
class Way:
    """One way from video to tracked poses, and the seconds of the processor it took."""

    name: str
    estimator: TopDown
    frames: Iterator[Frame]
    stages: dict[str, float]
    follower: Follower | None = None
    """None: people are taken as they are detected."""
    every: int = 1
    tracker: Tracker = field(default_factory=Tracker)
    tracks: set[int] = field(default_factory=set)
    chunks: list[float] = field(default_factory=list)

    def step(self, number: int) -> list[People]:
        """Process the next frames; return the certain people of those that are looked at."""
        began, found = time.process_time(), []
        for _ in range(number):
            frame = self._timed("decode", lambda: next(self.frames))
            if frame.number % self.every == 0:
                people = self._look(frame)
                sure = people.select(people.certain(MIN_CONFIDENCE))
                when = frame.pts
                poses = self._timed(
                    "track", lambda sure=sure, when=when: self.tracker.update(sure, time_s=when)
                )
                self.tracks |= {pose.track_id for pose in poses}
                found.append(sure)
        self.chunks.append((time.process_time() - began) / number)
        return found

    def detect(self, images: Sequence[Image]) -> list[Boxes]:
        """The estimator's boxes, timed."""
        found: list[Boxes] = self._timed("find boxes", lambda: self.estimator.detect(images))
        return found

    def estimate(self, images: Sequence[Image], boxes: Sequence[Boxes]) -> list[People]:
        """The estimator's joints, timed."""
        found: list[People] = self._timed(
            "find joints", lambda: self.estimator.estimate(images, boxes)
        )
        return found

    def _look(self, frame: Frame) -> People:
        images = [frame.image]
        if self.follower is None:
            return self.estimate(images, self.detect(images))[0]
        moment = Moment(frame.number if frame.pts is None else frame.pts)
        (people,) = detect_and_recover(self, images, [self.follower.last_poses(moment)])
        self.follower.update(moment, people)
        return people

    def forget(self) -> None:
        """Leave out the time so far."""
        self.chunks.clear()
        self.stages.update(dict.fromkeys(self.stages, 0.0))

    def _timed(self, stage: str, work: Any) -> Any:
        began = time.process_time()
        result = work()
        self.stages[stage] += time.process_time() - began
        return result


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("video", type=Path)
    parser.add_argument("detector", type=Path)
    parser.add_argument("pose", type=Path)
    parser.add_argument("--first", type=int, default=0, help="first frame")
    parser.add_argument("--chunk", type=int, default=10, help="frames a chunk")
    parser.add_argument("--rounds", type=int, default=12, help="chunks")
    parser.add_argument("--every", type=int, default=1, help="frames for one of the new way")
    parser.add_argument("--engine", choices=["auto", "onnxruntime", "openvino"], default="auto")
    parser.add_argument("--precision", choices=["auto", "float32", "bfloat16"], default="auto")
    given = parser.parse_args(arguments)
    if given.engine == "openvino" and given.precision == "bfloat16":
        engine = PoseEngine("openvino", "bfloat16")
    else:
        engine = choose_engine(given.engine, given.precision)
    old = opened("old", given, PoseEngine(), adapt=False)
    new = opened(str(engine), given, engine, adapt=True)
    new.follower, new.every = Follower(), given.every
    pairs: list[tuple[People, People]] = []
    for way in (old, new):  # engines compile, memory is allocated
        way.step(given.chunk)
        way.forget()
    for turn in range(given.rounds):
        order = (old, new) if turn % 2 else (new, old)
        found = {way.name: way.step(given.chunk) for way in order}
        pairs += zip(found[old.name], found[new.name], strict=given.every == 1)
    print_cost(old, new, given.rounds * given.chunk)
    if given.every == 1:
        print_agreement(old, new, pairs)


def opened(name: str, given: argparse.Namespace, engine: PoseEngine, *, adapt: bool) -> Way:
    """A way of running the networks."""
    stages = dict.fromkeys(("decode", "find boxes", "find joints", "track", "networks"), 0.0)

    def network(file: Path) -> ImageNetwork:
        made = open_network(file, runtime=engine, adapt=adapt)
        return replace(made, graph=timed(made.graph, stages))

    detector, pose = network(given.detector), network(given.pose)
    frames = itertools.islice(iter(VideoFile(given.video)), given.first, None)
    return Way(name, TopDown(PersonDetector(detector), PoseNetwork(pose)), frames, stages)


def timed(graph: RunGraph, stages: dict[str, float]) -> RunGraph:
    """The same graph, its time added up."""

    def run(inputs: Sequence[Any]) -> list[Any]:
        began = time.process_time()
        results = graph(inputs)
        stages["networks"] += time.process_time() - began
        return results

    return run


def print_cost(old: Way, new: Way, n_frames: int) -> None:
    """Print time a frame, its parts, and the ratio of both ways over chunks."""
    print(f"{'ms a frame':20}{'median':>8}" + "".join(f"{stage:>13}" for stage in old.stages))
    for way in (old, new):
        parts = "".join(f"{1e3 * spent / n_frames:13.1f}" for spent in way.stages.values())
        print(f"{way.name:20}{1e3 * statistics.median(way.chunks):8.1f}{parts}")
    ratios = [a / b for a, b in zip(old.chunks, new.chunks, strict=True)]
    share = new.stages["networks"] / n_frames / statistics.fmean(new.chunks)
    print(
        f"old / new {statistics.median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}] over "
        f"{len(ratios)} chunks; networks' share of the new way {share:.3f}"
    )


def print_agreement(old: Way, new: Way, pairs: list[tuple[People, People]]) -> None:
    """Print how far the joints of both ways are apart, and who is found in one way only."""
    apart, alike, lost, more, people = [], [], 0, 0, 0
    for here, there in pairs:
        same = matches(here, there)
        people += len(here)
        lost += len(here) - len(same)
        more += len(there) - len(same)
        for i, j in same:
            box = here.boxes.corners[i]
            distance = np.linalg.norm(here.keypoints[i] - there.keypoints[j], axis=1)
            apart.append(distance.mean() / (box[3] - box[1]))
            area = (box[2] - box[0]) * (box[3] - box[1])
            alike.append(np.exp(-(distance**2) / (2 * area * (2 * SIGMAS) ** 2)).mean())
    print(
        f"{people} people in {len(pairs)} frames: {100 * lost / people:.1f} % missing, "
        f"{100 * more / people:.1f} % new; joints apart {np.mean(apart):.4f} of the height "
        f"(median {np.median(apart):.4f}); OKS {np.mean(alike):.3f}; "
        f"{len(old.tracks)} tracks became {len(new.tracks)}"
    )


def matches(here: People, there: People) -> list[tuple[int, int]]:
    """Rows of the same people, best overlap first."""
    overlap: NDArray[np.float32] = iou(here.boxes.corners, there.boxes.corners)
    found = []
    while overlap.size and overlap.max() >= SAME_PERSON:
        i, j = np.unravel_index(overlap.argmax(), overlap.shape)
        found.append((int(i), int(j)))
        overlap[i], overlap[:, j] = 0, 0
    return found

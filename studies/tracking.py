"""How well people are followed: against people told apart by hand, at several frame rates.

    python -m studies tracking VIDEO DETECTOR POSE CACHE [--truth FILE] [--pieces 0,2]

The networks run once; what they find is kept in the directory CACHE. The tracker then gets every
frame; every second and third frame as if the video ran faster; and every second one at its true
time, from each possible first frame.

A switch is a track that goes over to another person, a fragment a person whose track changes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stepvad.people import People, iou
from stepvad.tracker import Tracker
from stepvad.video.estimators import open_estimator
from stepvad.video.extract import MIN_CONFIDENCE, Parts, extract_file
from stepvad.video.source import VideoFile

TRUTH = Path(__file__).parents[1] / "tests" / "video" / "vtest_people.json"
SAME_BOX = 0.9
"""Overlap from which a detection is one of the labelled boxes, which are rounded to pixels."""
AWAY_S = 3.0
"""Time after which somebody who was not seen comes anew."""

Ids = dict[int, int]
"""Track ids, or persons, by row of the detections of a frame."""


@dataclass(frozen=True)
class Way:
    """A way to run the video: every `step`-th frame, `speed` times as fast."""

    name: str
    step: int
    speed: float


WAYS = (
    Way("every frame", 1, 1.0),
    Way("2 x speed", 2, 2.0),
    Way("3 x speed", 3, 3.0),
    Way("every 2nd frame", 2, 1.0),
    Way("every 3rd frame", 3, 1.0),
)


@dataclass
class Measured:
    """Faults of a tracker on labelled frames."""

    switches: int = 0
    fragments: int = 0
    tracks: int = 0
    tracked: int = 0
    people: int = 0

    def add(self, other: Measured) -> None:
        """Add the counts of another piece."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def missing(self) -> float:
        """Share of the labelled people without a track."""
        return 1 - self.tracked / max(self.people, 1)


def measure(persons: dict[int, Ids], tracks: dict[int, Ids], away: int) -> Measured:
    """Compare the tracks of some frames with who is who in them; person 0 is not counted.

    Who was not seen for more than `away` frames comes anew: another track is then no fragment.
    """
    result = Measured()
    last: dict[int, tuple[int, int]] = {}
    person_of: dict[int, int] = {}
    for number in sorted(persons.keys() & tracks.keys()):
        for row, person in persons[number].items():
            if person == 0:
                continue
            result.people += 1
            if row in tracks[number]:
                track = tracks[number][row]
                before, seen = last.get(person, (track, number))
                result.tracked += 1
                result.switches += person_of.get(track, person) != person
                result.fragments += before != track and number - seen <= away
                person_of[track], last[person] = person, (track, number)
    result.tracks = len(person_of)
    return result


def labelled(truth: Path) -> list[tuple[int, list[np.ndarray]]]:
    """Pieces of a video: first frame, and for each frame the rows left, top, right, bottom, id."""
    pieces = json.loads(truth.read_text("utf-8"))["pieces"]
    return [
        (piece["first"], [np.array(rows, np.float32).reshape(-1, 5) for rows in piece["frames"]])
        for piece in pieces
    ]


def persons_of(people: People, labels: np.ndarray) -> Ids:
    """Persons by row of the detections."""
    if not len(people) or not len(labels):
        return {}
    overlap = iou(labels[:, :4], people.boxes.corners)
    best = overlap.argmax(axis=1)
    return {
        int(row): int(labels[at, 4]) for at, row in enumerate(best) if overlap[at, row] >= SAME_BOX
    }


def track(frames: dict[int, People], fps: float) -> dict[int, Ids]:
    """Track ids of the detections by frame; `fps` is the rate at which the frames follow."""
    tracker = Tracker()
    found: dict[int, Ids] = {}
    for at, (number, people) in enumerate(frames.items()):
        poses = tracker.update(people, time_s=at / fps)
        rows = [
            int(np.abs(people.keypoints - pose.keypoints).sum((1, 2)).argmin()) for pose in poses
        ]
        found[number] = {row: pose.track_id for row, pose in zip(rows, poses, strict=True)}
    return found


def read(video: Path, detector: Path, pose: Path, cache: Path) -> dict[int, People]:
    """The people of every frame that are sure enough; the networks run only if `cache` is empty."""
    origin = {"video": video.name, "detector": detector.name, "pose": pose.name}
    with Parts(cache, origin) as parts:
        if parts.latest is None or parts.latest.number + 1 < (VideoFile(video).n_frames or 0):
            extract_file(VideoFile(video), open_estimator(detector, pose), parts)
        return {
            seen.number: seen.people.select(seen.people.certain(MIN_CONFIDENCE)) for seen in parts
        }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("video", "detector", "pose", "cache"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--truth", type=Path, default=TRUTH)
    parser.add_argument("--pieces", help="only some pieces of the truth, such as 0,2")
    given = parser.parse_args(arguments)
    fps = VideoFile(given.video).fps or 10.0
    everyone = read(given.video, given.detector, given.pose, given.cache)
    pieces = labelled(given.truth)
    if given.pieces:
        pieces = [pieces[int(at)] for at in given.pieces.split(",")]
    truth = [
        {first + at: persons_of(everyone[first + at], rows) for at, rows in enumerate(frames)}
        for first, frames in pieces
    ]
    full = track(everyone, fps)
    print(
        f"{'':17}{'switches':>9}{'fragments':>10}{'length':>8}{'missing':>9}"
        f"{'tracks, all':>13}{'length, all':>12}{'missing of full rate':>22}{'ms a frame':>12}"
    )
    for way in WAYS:
        print(row_of(way, everyone, truth, full, fps))


def row_of(
    way: Way,
    everyone: dict[int, People],
    truth: list[dict[int, Ids]],
    full: dict[int, Ids],
    fps: float,
) -> str:
    """One line: counts are means over the first frames."""
    total, tracks, poses, lost, had, spent = Measured(), 0, 0, 0, 0, 0.0
    for start in range(way.step):
        frames = {n: people for n, people in everyone.items() if n % way.step == start}
        began = time.process_time()
        found = track(frames, fps / way.step * way.speed)
        spent += (time.process_time() - began) / len(frames)
        for piece in truth:
            total.add(measure(piece, found, round(AWAY_S * fps)))
        tracks += len({i for ids in found.values() for i in ids.values()})
        poses += sum(len(ids) for ids in found.values())
        had += sum(len(full[n]) for n in frames)
        lost += sum(len(full[n].keys() - found[n].keys()) for n in frames)
    n = way.step
    return (
        f"{way.name:17}{total.switches / n:9.1f}{total.fragments / n:10.1f}"
        f"{total.tracked / max(total.tracks, 1):8.1f}{100 * total.missing:7.1f} %{tracks / n:13.1f}"
        f"{poses / tracks:12.1f}{100 * lost / had:20.1f} %{1e3 * spent / n:12.2f}"
    )

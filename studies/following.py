"""How many fallen people are found with and without following.

    python -m studies following GMDCSA24 DETECTOR POSE

GMDCSA24 holds labels.json and clips/. Both ways share the detections, so a clip runs once: without
following is with the followed people left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from stepvad.video.estimators import PoseEstimator, open_estimator
from stepvad.video.extract import MIN_CONFIDENCE, FoundPeople, track
from stepvad.video.following import Follower, Moment, detect_and_recover
from stepvad.video.source import VideoFile

FIRST_S = 2.0
COLUMNS = ("found", "first 2 s", "tracked", "first 2 s")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("data", "detector", "pose"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args(arguments)
    estimator = open_estimator(given.detector, given.pose)
    clips = json.loads((given.data / "labels.json").read_text("utf-8"))
    falls = {clip["file"]: clip for clip in clips if clip["kind"] == "Fall"}
    files = {name: VideoFile(given.data / "clips" / name) for name in falls}
    print_falls({name: (begin(falls[name]), watched(estimator, files[name])) for name in falls})


def begin(clip: dict[str, list[tuple[str, float, float]]]) -> float:
    """When a fall begins, in seconds."""
    return min(start for name, start, _ in clip["intervals"] if name.startswith("Fall"))


def watched(estimator: PoseEstimator, frames: VideoFile) -> list[FoundPeople]:
    """The people of every frame."""
    follower, found = Follower(), []
    for frame in frames:
        height, width = frame.image.shape[:2]
        moment = Moment(frame.pts or 0.0)
        last = follower.last_poses(moment)
        (people,) = detect_and_recover(estimator, [frame.image], [last])
        follower.update(moment, people)
        found.append(FoundPeople(frame.number, moment.time_s, (width, height), people))
    return found


def detected(frames: Sequence[FoundPeople]) -> list[FoundPeople]:
    """The same frames without the followed people."""
    return [replace(one, people=one.people.select(~one.people.boxes.followed)) for one in frames]


def print_falls(falls: dict[str, tuple[float, list[FoundPeople]]]) -> None:
    """Print the shares of frames after the begin of every fall in which somebody is found."""
    print(f"{'':24}" + "".join(f"{column:>13}" for column in COLUMNS) + "   (without > with)")
    rows = [[shares(detected(seen), at), shares(seen, at)] for at, seen in falls.values()]
    for name, row in [*zip(falls, rows, strict=True), ("mean", np.mean(rows, axis=0))]:
        cells = [f"{100 * a:.0f} > {100 * b:.0f} %" for a, b in zip(*row, strict=True)]
        print(f"{name:24}" + "".join(f"{cell:>13}" for cell in cells))


def shares(frames: Sequence[FoundPeople], begin_s: float) -> list[float]:
    """Share of frames with a found and with a tracked person: of all, of the first seconds."""
    times = np.array([seen.time_s for seen in frames])
    clip = track(frames, "", fps=None, min_confidence=MIN_CONFIDENCE).clip
    tracked = {number for track in clip.tracks for number in track.frames.tolist()}
    is_found = np.array([seen.people.certain(MIN_CONFIDENCE).any() for seen in frames])
    is_tracked = np.array([seen.number in tracked for seen in frames])
    after = times >= begin_s
    first = after & (times < begin_s + FIRST_S)
    return [float(hit[part].mean()) for hit in (is_found, is_tracked) for part in (after, first)]

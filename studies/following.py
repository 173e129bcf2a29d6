"""How many fallen people are found with and without following, its ghosts and its cost.

    python -m studies following GMDCSA24 VIDEO DETECTOR POSE [--only falls] [--frames 200]

GMDCSA24 holds labels.json and clips/. Both ways share the detections, so a clip runs once: without
following is with the followed people left out. A followed pose is unconfirmed if nobody is detected
within half a diagonal of it, half a second before to half a second after. The cost is processor
time of the same frames, with and without following in turns, on one thread;
of the falls every third.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from stepvad.people import NOBODY, extents
from stepvad.video.estimators import PoseEstimator, open_estimator
from stepvad.video.extract import MIN_CONFIDENCE, FoundPeople, track
from stepvad.video.following import Follower, Moment, detect_and_recover
from stepvad.video.source import Frame, VideoFile

FIRST_S = 2.0
CONFIRMED_S, CONFIRMED_DIAGONALS = 0.5, 0.5
COLUMNS = ("found", "first 2 s", "tracked", "first 2 s")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("video", type=Path)
    parser.add_argument("detector", type=Path)
    parser.add_argument("pose", type=Path)
    parser.add_argument("--only", choices=["falls", "ghosts", "cost"])
    parser.add_argument("--frames", type=int, default=200, help="of VIDEO, for the cost")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    estimator = open_estimator(given.detector, given.pose)
    clips = json.loads((given.data / "labels.json").read_text("utf-8"))
    falls = [clip for clip in clips if clip["kind"] == "Fall"]
    files = {clip["file"]: given.data / "clips" / clip["file"] for clip in clips}
    if given.only in (None, "falls"):
        seen = {c["file"]: watched(estimator, VideoFile(files[c["file"]])) for c in falls}
        print_falls({clip["file"]: (begin(clip), seen[clip["file"]]) for clip in falls})
    if given.only in (None, "ghosts"):
        print(f"{'':24}{'frames':>8}{'followed':>10}{'unconfirmed':>13}{'tracks':>8}{'without':>9}")
        daily = [path for file, path in files.items() if "ADL" in file]
        print_ghosts("daily life", [watched(estimator, VideoFile(path)) for path in daily])
        print_ghosts(given.video.name, [watched(estimator, VideoFile(given.video))])
    if given.only in (None, "cost"):
        print(f"{'':24}{'without, ms':>13}{'with, ms':>10}{'ratio':>7}")
        print_cost(given.video.name, estimator, [given.video], given.frames, given.rounds)
        falling = [files[clip["file"]] for clip in falls[::3]]
        print_cost(f"{len(falling)} falls", estimator, falling, 1_000, given.rounds)


def begin(clip: dict[str, list[tuple[str, float, float]]]) -> float:
    """When a fall begins, in seconds."""
    return min(start for name, start, _ in clip["intervals"] if name.startswith("Fall"))


def watched(
    estimator: PoseEstimator, frames: Sequence[Frame] | VideoFile, *, following: bool = True
) -> list[FoundPeople]:
    """The people of every frame."""
    follower, found = Follower(), []
    for frame in frames:
        height, width = frame.image.shape[:2]
        moment = Moment(frame.pts or 0.0)
        last = follower.last_poses(moment) if following else NOBODY
        (people,) = detect_and_recover(estimator, [frame.image], [last])
        if following:
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


def print_ghosts(name: str, clips: Sequence[list[FoundPeople]]) -> None:
    """Print how many poses were followed and how many of them no detection confirms."""
    n_frames = sum(map(len, clips))
    followed = sum(int(seen.people.boxes.followed.sum()) for clip in clips for seen in clip)
    lone = sum(map(unconfirmed, clips))
    tracks = [sum(n_tracks(part(clip)) for clip in clips) for part in (list, detected)]
    print(f"{name:24}{n_frames:8}{followed:10}{lone:13}{tracks[0]:8}{tracks[1]:9}")


def n_tracks(frames: Sequence[FoundPeople]) -> int:
    """Number of tracks."""
    return len(track(frames, "", fps=None, min_confidence=MIN_CONFIDENCE).clip.tracks)


def unconfirmed(frames: Sequence[FoundPeople]) -> int:
    """Number of followed poses without a detection near in place and time."""
    times = np.array([seen.time_s for seen in frames])
    places = [middles(seen, followed=False) for seen in frames]
    lone = 0
    for at, seen in enumerate(frames):
        near = np.flatnonzero(np.abs(times - times[at]) <= CONFIRMED_S)
        others = np.concatenate([places[row] for row in near])
        for x, y, diagonal in middles(seen, followed=True):
            distance = np.hypot(others[:, 0] - x, others[:, 1] - y)
            lone += not (distance <= CONFIRMED_DIAGONALS * diagonal).any()
    return lone


def middles(
    seen: FoundPeople, *, followed: bool
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Middles and diagonals `(n, 3)` of the certain poses, followed or detected."""
    people = seen.people.select(seen.people.certain(MIN_CONFIDENCE))
    corners = extents(people.keypoints)[people.boxes.followed == followed]
    diagonals = np.linalg.norm(corners[:, 2:] - corners[:, :2], axis=1)
    return np.column_stack([(corners[:, :2] + corners[:, 2:]) / 2, diagonals])


def print_cost(
    name: str, estimator: PoseEstimator, videos: Sequence[Path], most: int, rounds: int
) -> None:
    """Print the processor time of a frame, without and with following in turns."""
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds):
        spent, n_frames = {False: 0.0, True: 0.0}, 0
        for path in videos:
            frames = [frame for frame, _ in zip(VideoFile(path), range(most), strict=False)]
            n_frames += len(frames)
            for following in spent:
                began = time.process_time()
                watched(estimator, frames, following=following)
                spent[following] += time.process_time() - began
        for following, seconds in spent.items():
            times[following].append(1e3 * seconds / n_frames)
    ratios = [b / a for a, b in zip(times[False], times[True], strict=True)]
    middle = [statistics.median(times[following]) for following in times]
    print(
        f"{name:24}{middle[0]:13.1f}{middle[1]:10.1f}{statistics.median(ratios):7.2f}"
        f"   {min(ratios):.2f} to {max(ratios):.2f}"
    )

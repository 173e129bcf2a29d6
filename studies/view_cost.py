"""What a window costs by its nearest usual motion, beside the paper's energy of 512 units.

    python -m studies view-cost

Both are fitted on the same walkers, usual motion with the place; only the training of the energy is
short, which costs the same in use. Whole clips are scored as an archive does, the energy on each
runtime, and frames with 1, 6 and 30 people as a site does. Readings alternate; times are processor
times on one thread, ratios are medians of the ratios of neighbours.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from stepvad import Config, Detector, Stream
from stepvad.config import Runtime
from stepvad.evaluation.walkers import make_clips
from stepvad.poses import Clip, Pose

READINGS = 9
CLIPS = 24
FPS = 25.0
RUNTIMES: tuple[Runtime, ...] = ("onnxruntime", "openvino", "numpy")
PEOPLE = (1, 6, 30)
FRAMES = 150


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args(arguments)
    clips = [clip for clip, _ in make_clips(CLIPS, seed=0, seconds=20.0)]
    one = Detector.fit(clips, replace(Config.footage(), max_steps=20))
    usual = Detector.fit(clips, Config.usual(FPS, ("pose", "motion", "place")))
    print(f"{'':34}{'energy, us':>14}{'usual, us':>12}{'ratio':>8}")
    for runtime in RUNTIMES:
        pair = [d.with_engine(runtime, 1) for d in (one, usual)]
        compare(f"clips, {runtime}", *[lambda d=d: whole(d, clips) for d in pair])
    pair = [d.with_engine("auto", 1) for d in (one, usual)]
    for people in PEOPLE:
        frames = crowd(clips, people)
        compare(f"live, {people} people", *[lambda d=d, f=frames: live(d, f) for d in pair])


def compare(name: str, first: Callable[[], float], second: Callable[[], float]) -> None:
    """Print the medians of both and of their ratio."""
    first(), second()
    readings = [(first(), second()) for _ in range(READINGS)]
    one, usual = (1e6 * statistics.median(column) for column in zip(*readings, strict=True))
    ratio = statistics.median(b / a for a, b in readings)
    print(f"{name:<34}{one:14.1f}{usual:12.1f}{ratio:8.2f}", flush=True)


def whole(detector: Detector, clips: list[Clip]) -> float:
    """Seconds per window of whole clips."""
    started = time.process_time()
    n = sum(len(detector.score(clip).windows) for clip in clips[:2])
    return (time.process_time() - started) / n


def live(detector: Detector, frames: list[list[Pose]]) -> float:
    """Seconds per person and frame, frame by frame."""
    stream = Stream(detector, fps=FPS)
    started = time.process_time()
    for number, poses in enumerate(frames):
        stream.update(number, poses)
    return (time.process_time() - started) / sum(map(len, frames))


def crowd(clips: list[Clip], people: int) -> list[list[Pose]]:
    """Frames with so many people, who stay."""
    longest = sorted((t for clip in clips for t in clip.tracks), key=len, reverse=True)
    chosen = [longest[i % len(longest)] for i in range(people)]
    n = min(FRAMES, *(len(track) for track in chosen))
    return [
        [Pose(i, t.keypoints[at], t.confidence[at]) for i, t in enumerate(chosen)]
        for at in range(n)
    ]

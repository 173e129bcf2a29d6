"""What extraction costs beside its networks.

    python -m studies extract VIDEO DETECTOR POSE [--frames 150] [--rounds 5] [--engine openvino]

Every round extracts the same frames into a track file, on one thread. The networks' calls are timed
where they happen, so that both times are of the same run: what is left is decoding, fitting,
cropping, reading the outputs, keeping parts, tracking and writing. Both are also given in seconds
of the processor, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stepvad.formats import tracks
from stepvad.video.estimators import PersonDetector, PoseNetwork, TopDown
from stepvad.video.extract import FrameRange, Parts, extract_file
from stepvad.video.networks import ImageNetwork, open_network
from stepvad.video.source import VideoFile


@dataclass
class Clock:
    """Seconds of the wall's clock and of the processor."""

    wall: float = 0.0
    processor: float = 0.0

    def time(self, work: Callable[[Sequence[Any]], list[Any]]) -> Callable[..., list[Any]]:
        """The same work, its time added up."""

        def timed(inputs: Sequence[Any]) -> list[Any]:
            wall, processor = time.perf_counter(), time.process_time()
            result = work(inputs)
            self.wall += time.perf_counter() - wall
            self.processor += time.process_time() - processor
            return result

        return timed


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("video", type=Path)
    parser.add_argument("detector", type=Path)
    parser.add_argument("pose", type=Path)
    parser.add_argument("--frames", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", choices=["auto", "onnxruntime", "openvino"], default="auto")
    given = parser.parse_args(arguments)
    networks = [open_network(file, runtime=given.engine) for file in (given.detector, given.pose)]
    rounds = [reading(given.video, networks, given.frames) for _ in range(given.rounds)]
    print(f"{'':12}{'networks, ms':>14}{'the rest, ms':>14}{'rest/networks':>15}")
    for name in ("wall", "processor"):
        pairs = [(getattr(inside, name), getattr(total, name)) for inside, total in rounds]
        bare = statistics.median(inside for inside, _ in pairs) / given.frames
        rest = statistics.median(total - inside for inside, total in pairs) / given.frames
        ratios = [total / inside - 1 for inside, total in pairs]
        share = statistics.median(ratios)
        print(
            f"{name:12}{1e3 * bare:14.1f}{1e3 * rest:14.1f}{100 * share:13.1f} %"
            f"   {100 * min(ratios):.1f} to {100 * max(ratios):.1f} %"
        )


def reading(video: Path, networks: list[ImageNetwork], n_frames: int) -> tuple[Clock, Clock]:
    """The time inside the networks and that of the whole extraction."""
    inside, total = Clock(), Clock()
    detector, pose = (replace(n, graph=inside.time(n.graph)) for n in networks)
    estimator = TopDown(PersonDetector(detector), PoseNetwork(pose))

    def extraction(place: Sequence[Any]) -> list[Any]:
        with Parts(place[0] / "parts", {}) as parts:
            found = extract_file(
                VideoFile(video), estimator, parts, frames=FrameRange(end=n_frames)
            )
        assert found is not None
        tracks.write([found.clip], place[0] / "out.parquet")
        return []

    with tempfile.TemporaryDirectory() as directory:
        total.time(extraction)([Path(directory)])
    return inside, total

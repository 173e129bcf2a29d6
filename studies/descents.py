"""How many people "went down and were not seen again": in falls, and by mistake per hour.

    python -m studies descents falls/*.parquet --size 854x480
    python -m studies descents HR-ShanghaiTech

Poses are track files, which do not hold the size of the picture, or the training clips of
HR-ShanghaiTech, in which nobody falls. Two seconds without people follow every track file, as the
last people of a clip would otherwise never be missed.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from stepvad.evaluation.datasets import open_dataset
from stepvad.events.down import ABSENT_S, HISTORY_S, Descent, SlotPeople, went_down
from stepvad.formats import read_clip
from stepvad.poses import Clip, Pose

SHANGHAITECH = (856, 480)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("poses", type=Path, nargs="+")
    parser.add_argument("--size", default="x".join(map(str, SHANGHAITECH)), help="of the picture")
    given = parser.parse_args(arguments)
    width, height = map(int, given.size.split("x"))
    hours, total = 0.0, 0
    for clip, more in clips(given.poses):
        fps = clip.rate()
        found = descents(clip, (width, height), round(more * fps))
        hours, total = hours + (clip.n_frames - clip.first_frame) / fps / 3600, total + len(found)
        if found:
            print(clip.name, *(f"{one.began / fps:.1f}-{one.last / fps:.1f} s" for one in found))
    print(f"{total} in {hours:.3f} hours: {total / hours:.1f} per hour")


def clips(paths: list[Path]) -> Iterator[tuple[Clip, float]]:
    """The clips, each with the seconds to go on after its end."""
    for path in paths:
        if path.is_dir():
            yield from ((clip, 0.0) for clip in open_dataset(path).train_clips())
        else:
            yield read_clip(path), ABSENT_S


def descents(clip: Clip, size: tuple[int, int], more: int) -> list[Descent]:
    """The descents that a site would find, frame by frame."""
    fps = clip.rate()
    people: dict[int, list[Pose]] = {}
    for track in clip.tracks:
        for at, frame in enumerate(track.frames.tolist()):
            pose = Pose(track.id, track.keypoints[at], track.confidence[at])
            people.setdefault(frame, []).append(pose)
    kept: deque[SlotPeople] = deque(maxlen=round((HISTORY_S + ABSENT_S + 1) * fps))
    found = []
    for frame in range(clip.n_frames + more):
        kept.append(SlotPeople(frame, tuple(people.get(frame, ()))))
        found += went_down(kept, fps, size)
    return found

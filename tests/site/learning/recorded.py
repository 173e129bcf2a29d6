"""Recorded footage of a site for tests: files as the recorder names them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stepvad.formats import write_clip
from stepvad.poses import Clip
from stepvad.site.recorder import RECORDINGS

BEGIN = 1_790_000_000.0


def name_of(camera: str, begin: float) -> str:
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(begin))
    return f"{camera}-{stamp}-{int(begin % 1 * 1000):03}"


def record_clips(
    data: Path, camera: str, clips: Sequence[Clip], begin: float = BEGIN, every_s: float = 120.0
) -> list[Path]:
    """Write clips as recordings that begin `every_s` after one another."""
    directory = data / RECORDINGS / camera
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, clip in enumerate(clips):
        name = name_of(camera, begin + number * every_s)
        paths.append(directory / f"{name}.parquet")
        write_clip(replace(clip, name=name), paths[-1])
    return paths

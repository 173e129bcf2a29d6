"""Recorded footage: a video file, or a folder of pictures."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from stepvad.video.pictures import PICTURE_RATE, PictureFolder, folder_digest
from stepvad.video.source import VideoFile, check_file

Footage = VideoFile | PictureFolder

EDGE_BYTES = 1 << 20
"""Bytes hashed at each end of a video to distinguish it from others of the same size."""


def open_footage(
    path: Path | str, *, camera: str | None = None, picture_rate: float = PICTURE_RATE
) -> Footage:
    """Open a video file, or a folder of pictures with `picture_rate` frames per second."""
    if Path(path).is_dir():
        return PictureFolder(path, camera=camera, fps=picture_rate)
    return VideoFile(path, camera=camera)


def footage_digest(path: Path) -> str:
    """Fingerprint of a video: hash of its size and both ends, without reading the whole file."""
    if path.is_dir():
        return folder_digest(path)
    check_file(path)
    size = path.stat().st_size
    sha = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        sha.update(file.read(EDGE_BYTES))
        file.seek(max(size - EDGE_BYTES, 0), os.SEEK_SET)
        sha.update(file.read(EDGE_BYTES))
    return sha.hexdigest()

"""An overlay as files: a video, and stills of moments."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stepvad.errors import StepvadError
from stepvad.poses import Clip
from stepvad.progress import Progress, Report, silent
from stepvad.video import overlay as overlays
from stepvad.video.footage import Footage
from stepvad.video.overlay import Overlay, PixelSize
from stepvad.video.pixels import Image
from stepvad.video.writing import recording, write_png

logger = logging.getLogger(__name__)

APART_S = 1.0
"""Least time between two stills of highest scores."""


@dataclass(frozen=True, slots=True)
class Stills:
    """Which frames are kept as pictures."""

    highest: int = 0
    """Moments of the highest scores."""
    at: tuple[int, ...] = ()

    def of(self, overlay: Overlay, frames: range, fps: float) -> list[int]:
        """The frames to keep among those drawn, in order."""
        for frame in self.at:
            if frame not in frames:
                raise StepvadError(
                    f"--at: expected a frame from {frames[0]} to {frames[-1]}, got {frame}",
                    hint="frames count from 0; --frames limits them",
                )
        scores = overlay.cast.highest()[frames.start : frames.stop]
        moments = overlays.highest_moments(scores, self.highest, round(APART_S * fps))
        return sorted({*(frames.start + moment for moment in moments), *self.at})


@dataclass(frozen=True, slots=True)
class Target:
    """Where an overlay goes: a video with stills beside it, or a directory of stills alone."""

    path: Path
    name: str
    """Of stills in a directory."""

    def still(self, frame: int) -> Path:
        """The picture of a frame."""
        base = self.path / self.name if self.path.is_dir() else self.path.with_suffix("")
        return base.with_name(f"{base.name}-{frame:06}.png")

    @contextmanager
    def recording(self, size: PixelSize, fps: float) -> Iterator[Callable[[Image], None]]:
        """Takes the pictures of a video; those for a directory are stills and go elsewhere."""
        if self.path.is_dir():
            yield lambda picture: None
            return
        with recording(self.path, size, fps) as record:
            yield record


def write(
    overlay: Overlay,
    target: Target,
    frames: Sequence[int],
    stills: Sequence[int],
    *,
    video: Footage | None = None,
    report: Report = silent,
) -> None:
    """Draw frames of an overlay into a video, and stills as PNG; of a directory, stills alone."""
    wanted = stills if target.path.is_dir() else frames
    with target.recording(overlay.picture_size, overlay.fps) as record:
        for done, (frame, picture) in enumerate(overlays.pictures(overlay, wanted, video), 1):
            record(picture)
            if frame in stills:
                write_png(picture, target.still(frame))
            report(Progress("drawing", done, len(wanted)))


def frame_size(
    clip: Clip, video: Footage | None = None, asked: PixelSize | None = None
) -> PixelSize:
    """The size of a frame: the video's, the one asked for, or what the poses need."""
    if video is None:
        return overlays.check_size(asked or overlays.canvas_size(clip), clip.name)
    size = overlays.video_size(video)
    overlays.check_video(clip, video, size)
    if video.n_frames is not None and video.n_frames > clip.n_frames:
        last = clip.n_frames - 1
        logger.info("the poses end with frame %d; the rest of the video is not drawn", last)
    return overlays.check_size(size, str(video.path))

"""A piece of a video, as it is, faster or backwards; its frames are reordered in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from stepvad.video.extract import ALL_FRAMES, FrameRange, PartOrigin
from stepvad.video.recordings import FileSource
from stepvad.video.source import Frame, VideoFile


@dataclass(frozen=True, slots=True)
class Piece:
    """Some frames of a video: every `speed`-th, possibly from the last to the first."""

    frames: FrameRange = ALL_FRAMES
    speed: int = 1
    backwards: bool = False

    def __str__(self) -> str:
        """As `500:600, 2x, backwards`."""
        words = [str(self.frames), f"{self.speed}x", "backwards" if self.backwards else ""]
        return ", ".join(filter(None, words))

    def takes(self, frame: Frame) -> bool:
        """Whether a frame of the video belongs to it."""
        return frame.number >= self.frames.first and (
            (frame.number - self.frames.first) % self.speed == 0
        )

    def length(self, n_frames: int) -> int:
        """Number of its frames in a video of so many."""
        end = n_frames if self.frames.end is None else min(self.frames.end, n_frames)
        return -(-max(end - self.frames.first, 0) // self.speed)


class PieceVideo(VideoFile):
    """The frames of a piece, numbered from 0; backwards they are all held in memory."""

    def __init__(self, path: Path, piece: Piece, *, camera: str) -> None:
        super().__init__(path, camera=camera)
        self._piece = piece
        if self.n_frames is not None:
            self.n_frames = piece.length(self.n_frames)

    def __iter__(self) -> Iterator[Frame]:
        taken = self._taken(super().__iter__())
        frames = reversed([*taken]) if self._piece.backwards else taken
        for number, frame in enumerate(frames):
            pts = None if self.fps is None else number / self.fps
            yield replace(frame, number=number, pts=pts)

    def _taken(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        end = self._piece.frames.end
        for frame in frames:
            if end is not None and frame.number >= end:
                return
            if self._piece.takes(frame):
                yield frame


@dataclass(frozen=True, slots=True)
class PieceSource(FileSource):
    """A piece of a video file, to extract its poses."""

    piece: Piece = field(default_factory=Piece)

    def origin(self) -> PartOrigin:
        """The file, and the piece of it."""
        return {**FileSource.origin(self), "piece": str(self.piece)}

    def open(self) -> PieceVideo:
        """The frames of the piece."""
        return PieceVideo(self.path, self.piece, camera=self.name)

"""The poses of a footage set: extracted from its videos once, then read from files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stepvad.errors import DataError, Progress, Report, silent
from stepvad.formats import read_clip
from stepvad.poses import Clip
from stepvad.video.recordings import ExtractionSettings, FileSource, extract_all
from studies.chain.footageset import FootageClip
from studies.chain.pieces import Piece, PieceSource


def extract_poses(
    clips: Sequence[FootageClip],
    settings: ExtractionSettings,
    *,
    jobs: int | None = None,
    report: Report = silent,
) -> bool:
    """Extract the poses of all videos that have none yet; False if it was stopped by Ctrl-C.

    Raises the error of the first video that failed, after all others are done.
    """
    sources = [_source(clip) for clip in clips if clip.is_video]
    if not sources:
        return True
    outcomes = extract_all(sources, settings, jobs=jobs, report=_by_clip(len(sources), report))
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return all(outcome.state != "unfinished" for outcome in outcomes)


def read_poses(
    clips: Sequence[FootageClip], settings: ExtractionSettings | None
) -> dict[str, Clip]:
    """The poses of all clips by name; those of videos were extracted with these settings."""
    return {clip.name: _read(clip, settings) for clip in clips}


def _read(clip: FootageClip, settings: ExtractionSettings | None) -> Clip:
    if not clip.is_video:
        found = read_clip(clip.path, fps=clip.fps)
    elif settings is None:
        raise DataError(
            f"clip {clip.name}: expected networks to find people in a video, got none",
            hint="name a detector and a pose estimator",
        )
    else:
        found = read_clip(settings.file(clip.name))
    found.rate()  # labels are in seconds
    return replace(found, name=clip.name)


def _source(clip: FootageClip) -> FileSource:
    if clip.is_piece:
        piece = Piece(clip.frames, clip.speed, clip.backwards)
        return PieceSource(clip.name, clip.path, piece=piece)
    return FileSource(clip.name, clip.path)


def _by_clip(n_clips: int, report: Report) -> Report:
    """Report clips instead of frames: a bar for each of many videos fills the screen."""
    seen: dict[str, bool] = {}

    def of_frames(progress: Progress) -> None:
        seen[progress.stage] = progress.done >= progress.total > 0
        note = f"{progress.stage}: frame {progress.done} of {progress.total or '?'}"
        report(Progress("extracting", sum(seen.values()), n_clips, note))

    return of_frames

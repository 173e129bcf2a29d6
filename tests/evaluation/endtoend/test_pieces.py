"""Pieces of a video: their frames, and that their poses are extracted once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stepvad.errors import DataError
from stepvad.evaluation.endtoend.footageset import FootageClip
from stepvad.evaluation.endtoend.pieces import Piece, PieceVideo
from stepvad.evaluation.endtoend.posecache import extract_poses, read_poses
from stepvad.intake.recordings import ExtractionSettings
from stepvad.progress import Progress
from stepvad.video.engine import choose_engine
from stepvad.video.extract import FrameRange
from stepvad.video.pixels import Image
from tests.video import graphs
from tests.video.clips import N_FRAMES, write_walker

pytest.importorskip("av")


def left_edges(video: PieceVideo) -> list[int]:
    """Where the box of each frame begins: 5 + the number of the frame in the whole video."""
    return [_left(frame.image) - 5 for frame in video]


def _left(image: Image) -> int:
    return int(np.flatnonzero(image[20, :, 0] > 128)[0])


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        (Piece(FrameRange(10, 14)), [10, 11, 12, 13]),
        (Piece(FrameRange(10, 15), speed=2), [10, 12, 14]),
        (Piece(FrameRange(10, 14), backwards=True), [13, 12, 11, 10]),
        (Piece(FrameRange(25, None), speed=3, backwards=True), [28, 25]),
    ],
)
def test_a_piece_has_its_frames_in_its_order(
    tmp_path: Path, piece: Piece, expected: list[int]
) -> None:
    video = PieceVideo(write_walker(tmp_path / "walker.mkv"), piece, camera="piece")
    assert left_edges(video) == expected
    frames = [*video]
    assert [frame.number for frame in frames] == [*range(len(expected))]
    assert [frame.pts for frame in frames] == pytest.approx([n / 10 for n in range(len(expected))])
    assert video.n_frames in (None, len(expected))
    assert piece.length(N_FRAMES) == len(expected)


def networks(directory: Path) -> tuple[str, str]:
    """Networks that see a person in every picture."""
    joints = np.random.default_rng(0).uniform(0.2, 0.9, (17, 3)).astype(np.float32)
    detector = graphs.yolox(directory / "d.onnx", {80: [0.5, 0.5, 0.0, 0.0, 1.0, 0.9]})
    return str(detector), str(graphs.movenet(directory / "p.onnx", joints))


def test_poses_are_extracted_once(tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    video = write_walker(tmp_path / "walker.avi")
    clips = [
        FootageClip(name="whole", path=video),
        FootageClip(name="back", path=video, frames=FrameRange(10, 20), backwards=True),
    ]
    settings = ExtractionSettings.of(
        tmp_path / "poses",
        *networks(tmp_path),
        engine=choose_engine("onnxruntime"),
        min_confidence=0.25,
        duration_s=None,
    )
    reports: list[Progress] = []
    assert extract_poses(clips, settings, jobs=1, threads=1, report=reports.append)
    assert {report.stage for report in reports} == {"extracting"}
    assert (reports[-1].done, reports[-1].total) == (2, 2)
    found = read_poses(clips, settings)
    assert [(clip.name, clip.n_frames) for clip in found.values()] == [("whole", 30), ("back", 10)]

    reports.clear()
    assert extract_poses(clips, settings, jobs=1, threads=1, report=reports.append)
    assert not reports
    other = [FootageClip(name="back", path=video, frames=FrameRange(0, 10))]
    with pytest.raises(DataError, match="expected piece 0:10, 1x, got poses made with 10:20"):
        extract_poses(other, settings, jobs=1, threads=1)


def test_a_video_that_fails_is_an_error(tmp_path: Path) -> None:
    settings = ExtractionSettings.of(
        tmp_path / "poses",
        *networks(tmp_path),
        engine=choose_engine("onnxruntime"),
        min_confidence=0.25,
        duration_s=None,
    )
    missing = FootageClip(name="missing", path=tmp_path / "missing.mp4")
    with pytest.raises(DataError, match="expected a video file, got no file"):
        extract_poses([missing], settings, jobs=1, threads=1)
    with pytest.raises(DataError, match="expected networks"):
        read_poses([missing], None)

"""Videos become tracks: resumed bit for bit, and nobody followed into another resolution."""

from __future__ import annotations

import runpy
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad.errors import DataError, Progress
from stepvad.people import Boxes, People
from stepvad.poses import Clip
from stepvad.video import extract as parts_module
from stepvad.video.estimators import PoseEstimator
from stepvad.video.extract import (
    Extraction,
    ExtractionOptions,
    FoundPeople,
    FrameRange,
    PartOrigin,
    Parts,
    extract_file,
    track,
)
from stepvad.video.source import Image, footage_digest, open_footage
from tests.processes import REASON, unreadable
from tests.video.clips import (
    N_FRAMES,
    broken,
    walking_images,
    write_images,
    write_pictures,
    write_two_sizes,
    write_video,
    write_walker,
)

pytest.importorskip("av")

ROOT = Path(__file__).parents[2]
ORIGIN: PartOrigin = {"pose": "a", "min_confidence": 0.25}


class Counting:
    """The estimator of the examples, which counts the frames that it sees and can stop."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.own: PoseEstimator = runpy.run_path(str(ROOT / "examples" / "own_estimator.py"))[
            "BrightSpot"
        ]()
        self.seen = 0
        self.stop = threading.Event()
        self._stop_at = stop_at

    def detect(self, images: Sequence[Image]) -> list[Boxes]:
        self.seen += len(images)
        if self.seen == self._stop_at:
            self.stop.set()
        return self.own.detect(images)

    def estimate(self, images: Sequence[Image], boxes: Sequence[Boxes]) -> list[People]:
        return self.own.estimate(images, boxes)


def extracted(
    path: Path, directory: Path, estimator: PoseEstimator | None = None, **options: Any
) -> Extraction | None:
    with Parts(directory, ORIGIN) as parts:
        return extract_file(open_footage(path), estimator or Counting(), parts, **options)


def finished(path: Path, directory: Path, **options: Any) -> Extraction:
    result = extracted(path, directory, **options)
    assert result is not None
    return result


def seen(number: int, x: float, *, size: int = 64, confidence: float = 1.0) -> FoundPeople:
    """A frame with one person at x, 20 pixels wide and 40 high."""
    boxes = Boxes(np.array([[x, 0, x + 20, 40]], np.float32), np.array([0.9], np.float32))
    joints = np.full((1, 17, 2), x, np.float32)
    people = People(boxes, joints, np.full((1, 17), confidence, np.float32))
    return FoundPeople(number, number / 10, (size, size), people)


def test_a_walker_becomes_a_track(tmp_path: Path) -> None:
    result = finished(write_walker(tmp_path / "a.mkv"), tmp_path / "parts")
    (track,) = result.clip.tracks
    assert track.frames.tolist() == list(range(N_FRAMES))
    assert track.keypoints[:, 0].tolist() == [[10 + i, 10] for i in range(N_FRAMES)]
    assert (result.clip.name, result.clip.fps, result.clip.n_frames) == ("a", 10, N_FRAMES)
    summary = result.summary
    assert (summary.frames, summary.tracks, summary.empty_frames) == (N_FRAMES, 1, 0)
    assert (summary.people_per_frame, summary.mean_track_length) == (1, N_FRAMES)
    assert (summary.low_confidence, summary.counts.skipped) == (0, 0)
    assert summary.frames_per_s is not None


def test_a_part_of_a_video_keeps_the_numbers_of_the_video(tmp_path: Path) -> None:
    path = write_walker(tmp_path / "a.mkv")
    head = finished(path, tmp_path / "head", frames=FrameRange(end=10))
    rest = finished(path, tmp_path / "rest", frames=FrameRange(10))
    assert head.clip.tracks[0].frames.tolist() == list(range(10))
    assert rest.clip.tracks[0].frames.tolist() == list(range(10, N_FRAMES))
    assert (head.clip.n_frames, rest.clip.n_frames) == (10, N_FRAMES)
    assert (head.summary.frames, rest.summary.frames) == (10, N_FRAMES - 10)
    assert rest.clip.tracks[0].keypoints[0, 0].tolist() == [20, 10]


def test_frames_that_a_video_does_not_have_are_refused(tmp_path: Path) -> None:
    path = write_walker(tmp_path / "a.mkv")
    with pytest.raises(DataError, match="expected frames from 99, got a video of 30"):
        extracted(path, tmp_path / "parts", frames=FrameRange(99))


@pytest.mark.parametrize("kind", ["video", "folder"])
@pytest.mark.parametrize("stop_at", [1, 5, 7, N_FRAMES])
def test_a_stopped_extraction_goes_on_to_the_same_result(
    stop_at: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "PART_FRAMES", 5)
    if kind == "folder":
        path = write_pictures(tmp_path / "a", walking_images())
    else:
        path = write_walker(tmp_path / "a.mkv")
    whole = finished(path, tmp_path / "whole")
    first = Counting(stop_at)
    assert (
        extracted(path, tmp_path / "parts", first, options=ExtractionOptions(stop=first.stop))
        is None
    )
    second = Counting()
    result = finished(path, tmp_path / "parts", estimator=second)
    assert (first.seen, second.seen) == (stop_at, N_FRAMES - stop_at)
    assert same(result.clip, whole.clip)


def same(a: Clip, b: Clip) -> bool:
    return (a.fps, a.n_frames, a.digest()) == (b.fps, b.n_frames, b.digest())


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 half a part"])
def test_a_damaged_part_is_refused_and_without_it_its_frames_are_looked_at_again(
    damage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "PART_FRAMES", 5)
    path = write_walker(tmp_path / "a.mkv")
    whole = finished(path, tmp_path / "parts")
    *kept, last = sorted((tmp_path / "parts").glob("*.npz"))
    last.write_bytes(damage)
    with pytest.raises(DataError, match=f"{last.name}: expected a part of an extraction, got: "):
        finished(path, tmp_path / "parts")
    last.unlink()
    again = Counting()
    assert same(finished(path, tmp_path / "parts", estimator=again).clip, whole.clip)
    assert again.seen == N_FRAMES - 5 * len(kept)


def test_parts_of_another_origin_are_refused(tmp_path: Path) -> None:
    Parts(tmp_path / "parts", ORIGIN)
    with pytest.raises(DataError, match="expected pose b, got poses made with a"):
        Parts(tmp_path / "parts", {**ORIGIN, "pose": "b"})
    (tmp_path / "parts" / "settings.json").write_text("[half")
    with pytest.raises(DataError, match="parts: expected JSON, got: "):
        Parts(tmp_path / "parts", ORIGIN)


def recorded(directory: Path, n_parts: int) -> None:
    """So many parts of one frame each."""
    with Parts(directory, ORIGIN) as parts:
        for number in range(n_parts):
            parts.append(seen(number, number))
            parts.flush()


@pytest.mark.parametrize("name", ["000001.npz", "settings.json"])
def test_parts_that_cannot_be_read_now_are_all_kept(tmp_path: Path, name: str) -> None:
    recorded(tmp_path, 10)
    with (
        unreadable(tmp_path / name),
        pytest.raises(DataError, match=f"expected a readable file, got: {REASON}"),
    ):
        [*Parts(tmp_path, ORIGIN)]
    assert len([*Parts(tmp_path, ORIGIN)]) == 10


def test_parts_give_back_what_was_seen(tmp_path: Path) -> None:
    nobody = seen(1, 0).people.select(np.array([], np.int64))
    with Parts(tmp_path, ORIGIN) as parts:
        parts.append(seen(0, 3))
        parts.append(FoundPeople(1, 0.1, (64, 48), nobody))
    first, second = Parts(tmp_path, ORIGIN)
    assert (first.number, first.time_s, first.size) == (0, 0.0, (64, 64))
    np.testing.assert_array_equal(first.people.boxes.corners, [[3, 0, 23, 40]])
    np.testing.assert_array_equal(first.people.keypoints, np.full((1, 17, 2), 3))
    assert (second.time_s, second.size, len(second.people)) == (0.1, (64, 48), 0)


def test_a_place_where_no_parts_can_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match="expected a place for a directory"):
        Parts(tmp_path / "file" / "parts", ORIGIN)


def test_nobody_is_followed_into_another_resolution() -> None:
    frames = [seen(i, i) for i in range(20)] + [seen(i, i, size=128) for i in range(20, 40)]
    tracks = track(frames, "a", fps=10, min_confidence=0.25).clip.tracks
    assert [track.frames.tolist() for track in tracks] == [[*range(20)], [*range(20, 40)]]
    unbroken = [seen(i, i) for i in range(40)]
    assert len(track(unbroken, "a", fps=10, min_confidence=0.25).clip.tracks) == 1


def test_people_of_low_confidence_are_left_out_and_counted() -> None:
    frames = [seen(i, i, confidence=0.3 if i % 4 else 0.2) for i in range(40)]
    result = track(frames, "a", fps=10, min_confidence=0.25)
    assert result.summary.low_confidence == 0.25
    assert result.clip.n_poses == 30 - 1  # the first one seen waits for the next picture
    assert result.summary.empty_frames == 11


def test_a_video_without_people_is_a_clip_without_tracks(tmp_path: Path) -> None:
    images = np.zeros((5, 48, 64, 3), np.uint8)
    result = finished(write_images(tmp_path / "dark.mkv", images), tmp_path / "parts")
    assert (result.clip.n_frames, result.clip.tracks) == (5, ())
    assert (result.summary.empty_frames, result.summary.low_confidence) == (5, 0)


def test_a_video_of_one_pixel_and_one_of_two_sizes_come_through(tmp_path: Path) -> None:
    pixel = write_images(tmp_path / "pixel.mkv", np.full((3, 1, 1, 3), 255, np.uint8))
    assert finished(pixel, tmp_path / "pixel").clip.n_poses == 3
    result = finished(write_two_sizes(tmp_path / "both.m2v"), tmp_path / "both")
    assert result.summary.counts.resolution_changes == 1


def test_frames_that_do_not_decode_are_counted(tmp_path: Path) -> None:
    whole = write_video(tmp_path / "whole.avi")
    result = finished(broken(whole, "noise", tmp_path), tmp_path / "parts")
    assert result.summary.counts.skipped > 0
    assert result.summary.frames < N_FRAMES


def test_progress_tells_frames_of_all_frames(tmp_path: Path) -> None:
    reports: list[Progress] = []
    path = write_video(tmp_path / "a.avi")
    options = ExtractionOptions(report=reports.append)
    extracted(path, tmp_path / "parts", frames=FrameRange(10, 25), options=options)
    assert [report.done for report in reports] == list(range(1, 16))
    assert {(report.stage, report.total) for report in reports} == {("a", 15)}


def test_a_video_is_known_by_its_ends_and_its_size(tmp_path: Path) -> None:
    data = bytearray(3 << 20)
    (tmp_path / "a").write_bytes(data)
    digests = {footage_digest(tmp_path / "a")}
    for at in (0, len(data) - 1):
        data[at] = 1
        (tmp_path / "a").write_bytes(data)
        digests.add(footage_digest(tmp_path / "a"))
    (tmp_path / "a").write_bytes(data + b"\0")
    assert len(digests | {footage_digest(tmp_path / "a")}) == 4
    with pytest.raises(DataError, match="got no file"):
        footage_digest(tmp_path / "b")

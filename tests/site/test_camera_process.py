"""What a camera process does with the frames of its cameras, and what it says of them."""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad import codec
from stepvad.errors import DataError
from stepvad.people import Boxes, People
from stepvad.poses import Pose
from stepvad.site import camera_process
from stepvad.site.camera_process import (
    BEAT,
    FRAME,
    PEOPLE,
    STATE,
    CameraSource,
    Looker,
    SentFrame,
    Source,
    SourceState,
    decode_beat,
    decode_frame,
    encode_frame,
)
from stepvad.video.source import Frame, Picture
from tests.video import graphs
from tests.video.clips import walking_images, write_images, write_pictures
from tests.video.servers import wait_until

av = pytest.importorskip("av")
pytest.importorskip("cv2")


class Site:
    """Notes what a process sends."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def send(self, *messages: bytes) -> None:
        self.heard += messages

    def frames(self) -> list[SentFrame]:
        return [decode_frame(one) for one in [*self.heard] if one[:1] == PEOPLE]

    def states(self) -> list[SourceState]:
        sent = [one[1:] for one in [*self.heard] if one[:1] == STATE]
        return [codec.decode(SourceState, one, "test") for one in sent]


class Bright:
    """Asks for bright pictures, and finds one person in each; a look may be held up."""

    held: threading.Event | None = None
    views: list[tuple[int, ...]]
    times: list[float]

    def __init__(self, estimator: object, rate: float) -> None:
        self.views, self.times = [], []

    def asks(self, luma: Any, time_s: float) -> bool:
        self.times.append(time_s)
        return bool(luma.mean() > 128)

    def look(self, image: Any, time_s: float, view: tuple[int, ...]) -> People:
        if self.held is not None:
            self.held.wait(20)
        if image[0, 0, 0] == 250:
            raise ValueError("a picture that no network takes")
        self.views.append(view)
        self.times.append(time_s)
        corners = np.array([[0, 0, 4, 8]], np.float32)
        joints = np.linspace([0, 0], [4, 8], 17, dtype=np.float32)[None]
        return People(Boxes(corners, np.ones(1, np.float32)), joints, np.ones((1, 17), np.float32))


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def looker(site: Site, monkeypatch: pytest.MonkeyPatch) -> Looker:
    monkeypatch.setattr(camera_process, "Watch", Bright)
    made: Looker = Looker(site, None, 0.25)  # type: ignore[arg-type]  # neither is a real one
    return made


def source(looker: Looker, number: int = 0, **more: Any) -> Source:
    facts = {"rate": 10.0, "picture_rate": 10.0, "loop": False, "source": Path("a.mkv"), **more}
    return Source(CameraSource(number=number, name=f"camera-{number}", **facts), looker)


def frame(number: int, grey: int = 200, epoch: int = 0, arrived: float | None = None) -> Frame:
    image = np.full((8, 8, 3), grey, np.uint8)
    picture = Picture(av.VideoFrame.from_ndarray(image))
    at = time.monotonic() if arrived is None else arrived
    return Frame("a", number, number / 10, 100 + number / 10, picture, epoch, at)


def slots(site: Site) -> list[tuple[int, int]]:
    """Slot and people of each frame."""
    return [(one.slot, len(one.poses)) for one in site.frames()]


def run(looker: Looker) -> None:
    threading.Thread(target=looker.run, daemon=True).start()


def counted(looker: Looker) -> list[tuple[int, int]]:
    return [(one.shed, one.skipped) for one in decode_beat(looker.beat()).sources]


def test_a_frame_that_nobody_asks_for_is_sent_at_once_without_people(
    looker: Looker, site: Site
) -> None:
    one = source(looker)
    for number in range(3):  # nobody looks: the looker does not run
        one._take(frame(number, grey=10))
    assert slots(site) == [(0, 0), (1, 0), (2, 0)]
    assert [sent.size for sent in site.frames()] == [(8, 8)] * 3
    assert counted(looker) == [(0, 0)]


def test_speeds_are_by_the_time_of_the_stream_though_frames_arrive_in_bursts(
    looker: Looker, site: Site
) -> None:
    one = source(looker)
    for number, arrived in enumerate([7.0, 7.01, 7.3]):
        one._take(frame(number, arrived=arrived))
        assert one.waiting is not None
        one.look(one.waiting)
    assert one.watch.times == pytest.approx([0, 0, 0.1, 0.1, 0.2, 0.2])  # type: ignore[attr-defined]


def test_frames_that_nobody_gets_to_halve_the_rate_and_a_burst_does_not(looker: Looker) -> None:
    busy, bursty = source(looker), source(looker, 1)
    for number in range(60):  # nobody looks
        busy._take(frame(number, arrived=number / 10))
        bursty._take(frame(number, arrived=number // 20 * 2 + number / 1000))
    first, second = decode_beat(looker.beat()).sources
    assert (first.divisor, second.divisor) == (2, 1)
    assert busy.waiting
    assert busy.waiting.slot == 58  # every second slot is used, and 59 is not
    assert 40 < first.shed < 55
    assert second.shed == 59


def test_the_latest_frame_replaces_one_that_waits_and_that_is_counted(
    looker: Looker, site: Site
) -> None:
    one = source(looker)
    for number in (0, 1, 1, 2):  # one time slot twice
        one._take(frame(number))
    assert counted(looker) == [(2, 1)]
    assert counted(looker) == [(0, 0)], "each is said once"
    run(looker)
    wait_until(lambda: slots(site) == [(2, 1)], 20)


def test_nobody_is_said_to_be_absent_while_a_look_goes_on(looker: Looker, site: Site) -> None:
    Bright.held = threading.Event()
    try:
        one = source(looker)
        one._take(frame(0))
        run(looker)
        wait_until(lambda: one.is_in_hand, 20)
        one._take(frame(1, grey=10))
        assert decode_beat(looker.beat()).looking_s > 0
        Bright.held.set()
        wait_until(lambda: not one.is_in_hand, 20)
        one._take(frame(2, grey=10))
    finally:
        Bright.held = None
    assert slots(site) == [(0, 1), (2, 0)]


def test_cameras_take_turns_however_often_one_of_them_asks(looker: Looker, site: Site) -> None:
    busy, other = source(looker, 1), source(looker, 2)
    busy._take(frame(0))
    other._take(frame(0))
    assert looker._next()[0] is busy
    busy._take(frame(1))
    assert looker._next()[0] is other
    assert looker._next()[0] is busy


def test_a_frame_that_fails_is_skipped_and_the_next_one_is_looked_at(
    looker: Looker, site: Site
) -> None:
    one = source(looker)
    run(looker)
    one._take(frame(0, grey=250))
    wait_until(lambda: one.skipped == 1, 20)
    one._take(frame(1))
    wait_until(lambda: slots(site) == [(1, 1)], 20)


def test_another_connection_begins_at_slot_0_with_other_people(looker: Looker, site: Site) -> None:
    one = source(looker)
    run(looker)
    for n, (number, epoch) in enumerate([(0, 0), (1, 0), (50, 1), (51, 1)], 1):
        one._take(frame(number, epoch=epoch))
        wait_until(lambda n=n: len(site.frames()) == n, 20)  # type: ignore[misc]
    assert [(sent.epoch, sent.slot) for sent in site.frames()] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    ids = [pose.track_id for sent in site.frames() for pose in sent.poses]
    assert ids == [1, 1, 2, 2]
    watch: Any = one.watch
    assert watch.views == [(0, 8, 8), (0, 8, 8), (1, 8, 8), (1, 8, 8)]


def test_a_folder_of_pictures_is_played_at_its_rate(
    looker: Looker, site: Site, tmp_path: Path
) -> None:
    folder = write_pictures(tmp_path / "frames", walking_images(12))
    began = time.monotonic()
    source(looker, source=folder, picture_rate=20.0).run()
    assert 0.5 < time.monotonic() - began < 10
    assert [sent.slot for sent in site.frames()] == list(range(7))  # every other picture
    assert [(one.state, one.over) for one in site.states()] == [
        ("online", False),
        ("offline", True),
    ]
    beats = [decode_beat(one) for one in site.heard if one[:1] == BEAT]
    assert beats[-1].sources[0].skipped == 5, "counted before the file is over"


def test_a_file_whose_timestamps_jump_is_played_on(
    looker: Looker, site: Site, tmp_path: Path
) -> None:
    numbers = [0, 1, *range(954_430, 954_440)]
    video = write_images(tmp_path / "a.mkv", walking_images(12), numbers=numbers)
    source(looker, source=video).run()
    sent = [one.slot for one in site.frames()]
    assert len(sent) >= 6, "some may be late on a busy machine"
    assert sent[-1] < 50, "seconds, not a day"


def test_a_file_that_is_closed_ends_at_once_and_says_nothing(
    looker: Looker, site: Site, tmp_path: Path
) -> None:
    video = write_images(tmp_path / "a.mkv", walking_images(40))
    one = source(looker, source=video, loop=True)
    thread = threading.Thread(target=one.run)
    thread.start()
    wait_until(lambda: bool(site.frames()), 20)
    one.close()
    thread.join(10)
    assert not thread.is_alive()
    assert [state.state for state in site.states()] == ["online"]


def pose(track_id: int = 3) -> Pose:
    joints = np.arange(34, dtype=np.float32).reshape(17, 2)
    return Pose(track_id, joints, np.linspace(0, 1, 17, dtype=np.float32))


def message(poses: Sequence[Pose] = (), **more: Any) -> SentFrame:
    facts: dict[str, Any] = {"number": 7, "epoch": 1, "slot": 5, "wall0": 1e9, "arrived": 3.5}
    return SentFrame(**facts | {"size": (640, 360), "poses": poses} | more)


def test_people_travel_as_numbers() -> None:
    sent = message([pose(1), pose(70_000)])
    found = decode_frame(encode_frame(sent))
    assert found[:-1] == sent[:-1]
    for one, other in zip(found.poses, sent.poses, strict=True):
        assert one.track_id == other.track_id
        assert (one.keypoints == other.keypoints).all()
        assert (one.confidence == other.confidence).all()
    assert decode_frame(encode_frame(message())).poses == []


GOOD = encode_frame(message([pose()]))


@pytest.mark.parametrize(
    "data",
    [
        b"P",
        GOOD[:-4],
        GOOD + bytes(4),
        GOOD[: FRAME.size],
        GOOD[:-4] + struct.pack("<f", float("nan")),
        encode_frame(message(size=(0, 360))),
        encode_frame(message(size=(640, 100_000))),
        encode_frame(message(slot=-1)),
        encode_frame(message(arrived=float("inf"))),
        encode_frame(message(wall0=float("nan"))),
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(DataError, match="camera process: expected"):
        decode_frame(data)


@pytest.mark.parametrize("data", [b"B", b"B123", b"B1234" + bytes(7)])
def test_what_is_no_beat_is_refused(data: bytes) -> None:
    with pytest.raises(DataError, match="camera process: expected a beat"):
        decode_beat(data)


LEAN = """
import sys
from stepvad.site import camera_process, processes
from stepvad.site.camera_process import Networks, Source
networks = Networks(*sys.argv[1:3], "auto", "auto", "cpu", 1, 0.25)
estimator = networks.open()
import numpy as np
image = np.zeros((64, 64, 3), np.uint8)
(boxes,) = estimator.detect([image])
(people,) = estimator.estimate([image], [boxes])
assert len(people) == 1
camera_process.Tracker().update(people, time_s=0.0)
import av
heavy = {"pydantic", "ssl", "asyncio", "sqlite3", "scipy", "onnx", "urllib.request"}
print(*sorted(heavy & {*sys.modules}))
"""


@pytest.mark.ci
def test_a_camera_process_imports_nothing_that_the_site_alone_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPVAD_CACHE", str(tmp_path / "cache"))  # empty: nothing is adapted yet
    joints = np.tile(np.array([0.5, 0.1, 0.8], np.float32), (17, 1))
    files = [
        graphs.yolox(tmp_path / "y.onnx", {70: [0.5, 0.25, 0.0, 0.0, 0.8, 0.9]}),
        graphs.movenet(tmp_path / "m.onnx", joints),
    ]
    command = [sys.executable, "-c", LEAN, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr

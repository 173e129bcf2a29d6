"""The live status of cameras: which are online, what was scored, how late."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from stepvad.errors import ConfigError
from stepvad.poses import Pose
from stepvad.site import cameras as cameras_module
from stepvad.site.app import Site
from stepvad.site.frames import CameraStates, FrameQueues, Lost
from stepvad.site.load import LoadState
from stepvad.site.settings.file import load
from stepvad.site.status import BUCKETS_S, HOUR_S, CameraView, LiveStatus
from tests.site.sites import video_camera, write_networks, write_site
from tests.video.servers import SLOWER, wait_until

SIZE = (640, 360)


class Clock:
    """A clock that stands still until told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def status(clock: Clock) -> LiveStatus:
    status = LiveStatus(clock)
    for name in ("yard", "gate"):
        status.camera(name, rate=10.0, threshold=3.0, model="walk", zones={"door": [(0.1, 0.2)]})
    return status


def person(track: int) -> Pose:
    return Pose(track, np.full((17, 2), track, np.float32), np.ones(17, np.float32))


def show(status: LiveStatus, name: str, number: int, wall: float, *scores: float) -> None:
    tracks = range(1, len(scores) + 1)
    status.frame(
        name,
        number,
        wall,
        SIZE,
        [person(n) for n in tracks],
        dict(zip(tracks, scores, strict=True)),
    )


def camera(status: LiveStatus, name: str = "yard") -> CameraView:
    (found,) = [one for one in status.snapshot().cameras if one.name == name]
    return found


def test_a_camera_is_offline_until_it_is_told_to_be_online(status: LiveStatus) -> None:
    assert (camera(status).state, camera(status).since) == ("offline", None)
    status.state("yard", "online", "", 50.0)
    assert (camera(status).state, camera(status).since) == ("online", 50.0)
    assert camera(status, "gate").state == "offline"


def test_since_is_when_the_state_changed_not_when_it_was_told_last(status: LiveStatus) -> None:
    status.state("yard", "online", "", 50.0)
    status.state("yard", "online", "", 60.0)
    assert camera(status).since == 50.0
    status.state("yard", "offline", "no route", 70.0)
    assert (camera(status).since, camera(status).reason) == (70.0, "no route")


def test_counts_add_up_for_each_camera(status: LiveStatus) -> None:
    status.count("yard", "shed", 3)
    status.count("yard", "shed")
    status.count("gate", "shed")
    assert (camera(status).counts["shed"], camera(status, "gate").counts["shed"]) == (4, 1)
    assert camera(status).counts["events"] == 0


def test_new_settings_of_a_camera_keep_what_was_counted(status: LiveStatus) -> None:
    status.count("yard", "events")
    status.state("yard", "online", "", 50.0)
    status.camera("yard", rate=15.0, threshold=4.0, model="run", zones={})
    after = camera(status)
    assert (after.rate, after.threshold, after.model, after.zones) == (15.0, 4.0, "run", {})
    assert (after.state, after.counts["events"]) == ("online", 1)


def test_a_reader_gets_only_the_latest_frame_and_each_once(status: LiveStatus) -> None:
    reader = status.subscribe()
    for number in range(5):
        show(status, "yard", number, float(number), 1.0)
    show(status, "gate", 7, 7.0, 2.0)
    assert {name: frame.number for name, frame in reader.take().items()} == {"yard": 4, "gate": 7}
    assert reader.take() == {}
    show(status, "gate", 8, 8.0)
    assert {name: frame.number for name, frame in reader.take().items()} == {"gate": 8}


def test_readers_do_not_take_frames_from_each_other(status: LiveStatus) -> None:
    first, second = status.subscribe(), status.subscribe()
    show(status, "yard", 1, 1.0, 1.0)
    assert first.take().keys() == second.take().keys() == {"yard"}


def test_frame_numbers_that_start_again_are_seen_as_well(status: LiveStatus) -> None:
    reader = status.subscribe()
    show(status, "yard", 900, 1.0)
    reader.take()
    show(status, "yard", 0, 2.0)
    assert reader.take()["yard"].number == 0


def test_a_timeline_has_the_largest_score_of_each_second(status: LiveStatus) -> None:
    for wall, score in ((10.0, 1.0), (10.4, 5.0), (10.9, 2.0), (12.0, 0.5)):
        show(status, "yard", int(10 * wall), wall, score, score - 1)
    assert status.timeline("yard") == [(10, 5.0), (12, 0.5)]
    assert status.timeline("gate") == []


def test_a_score_that_does_not_count_leaves_no_point(status: LiveStatus) -> None:
    status.frame("yard", 1, 10.0, SIZE, [person(1), person(2)], {1: 9.0, 2: 1.0}, {1: 0.3})
    status.frame("yard", 2, 12.0, SIZE, [person(1)], {1: 9.0}, {1: 0.3})
    assert status.timeline("yard") == [(10, 1.0)]


def test_frames_without_scores_leave_no_point(status: LiveStatus) -> None:
    status.frame("yard", 1, 10.0, SIZE, [person(1)], {})
    assert status.timeline("yard") == []
    assert camera(status).people == 1


def test_a_timeline_goes_back_one_hour(status: LiveStatus) -> None:
    for second in range(HOUR_S + 100):
        show(status, "yard", second, float(second), 1.0)
    times = [second for second, _ in status.timeline("yard")]
    assert times == [*range(100, HOUR_S + 100)]
    show(status, "yard", 0, 3 * HOUR_S, 1.0)
    assert status.timeline("yard") == [(3 * HOUR_S, 1.0)]


def test_a_clock_that_is_put_back_leaves_the_timeline_in_order(status: LiveStatus) -> None:
    for wall in (10.0, 20.0, 30.0, 15.0, 16.0):
        show(status, "yard", int(wall), wall, wall)
    assert [second for second, _ in status.timeline("yard")] == [10, 15, 16]


def test_the_rate_is_measured_and_falls_when_frames_stay_away(
    status: LiveStatus, clock: Clock
) -> None:
    assert camera(status).fps is None
    for number in range(20):
        clock.now += 0.1
        show(status, "yard", number, clock.now)
    assert camera(status).fps == pytest.approx(10.0)
    clock.now += 10
    rate = camera(status).fps
    assert rate is not None
    assert rate < 2.0


def test_delays_are_counted_once_and_have_quantiles(status: LiveStatus) -> None:
    for milliseconds in range(1, 101):
        status.observe_latency("yard", milliseconds / 1000)
    status.observe_latency("yard", 1000.0)
    status.observe_alert("yard", 0.4)
    latency, alerts = camera(status).latency, camera(status).alerts
    assert (latency.n, alerts.n) == (101, 1)
    assert latency.counts[0] == 5
    assert latency.counts[-1] == 1
    assert latency.total_s == pytest.approx(1005.05)
    assert latency.p50 == pytest.approx(0.051)
    assert (alerts.p50, alerts.p99) == (0.4, 0.4)
    assert camera(status, "gate").alerts.p50 is None
    assert len(latency.counts) == len(BUCKETS_S) + 1


def test_drift_and_sinks_are_told(status: LiveStatus) -> None:
    status.drift("yard", "people are larger", True)
    status.sink("mqtt", 12, 3, "refused")
    status.sink("mqtt", 0, 3, "")
    assert (camera(status).drift, camera(status).drifted) == ("people are larger", True)
    (sink,) = status.snapshot().sinks
    assert (sink.name, sink.lag, sink.failures, sink.last_error) == ("mqtt", 0, 3, "")


def test_a_camera_nobody_knows_is_refused(status: LiveStatus) -> None:
    with pytest.raises(ConfigError, match="'roof': expected a camera of the site \\(yard, gate\\)"):
        status.count("roof", "shed")


def test_a_count_nobody_knows_is_refused(status: LiveStatus) -> None:
    with pytest.raises(ConfigError, match="expected one of frames_in"):
        status.count("yard", "lost")  # type: ignore[arg-type]  # the point


def test_a_snapshot_does_not_change_afterwards(status: LiveStatus) -> None:
    before = camera(status)
    status.count("yard", "shed")
    assert before.counts["shed"] == 0


def test_memory_is_bounded_however_long_it_runs(status: LiveStatus) -> None:
    def size() -> list[int]:
        one = status._cameras["yard"]
        return [len(ring) for ring in (one.timeline.points, one.latency.recent, one.arrivals)]

    def run(first: int) -> None:
        for second in range(first, first + 2 * HOUR_S):
            show(status, "yard", second, float(second), 1.0)
            status.observe_latency("yard", 0.1)

    run(0)
    before = size()
    run(2 * HOUR_S)
    assert size() == before


def test_many_threads_lose_no_count(status: LiveStatus) -> None:
    reader = status.subscribe()
    stopped = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while not stopped.is_set():
                status.snapshot()
                reader.take()
                status.timeline("yard")
        except BaseException as error:
            failures.append(error)

    def write(track: int) -> None:
        for number in range(500):
            status.count("yard", "scored")
            show(status, "yard", number, float(number), float(track))

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(track,)) for track in range(4)]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stopped.set()
    for thread in readers:
        thread.join()
    assert failures == []
    assert camera(status).counts["scored"] == 2000


class Broker:
    """Notes what it hears of cameras."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def load(self, camera: str, state: LoadState) -> None:
        raise NotImplementedError

    def status(self, camera: str, state: Literal["online", "offline"]) -> None:
        self.heard.append((camera, state))


@pytest.fixture
def live() -> LiveStatus:
    live = LiveStatus()
    for name in ("gate", "door"):
        live.camera(name, rate=10.0, threshold=1.0, model="m", zones={})
    return live


@pytest.fixture
def frames(live: LiveStatus) -> FrameQueues:
    return FrameQueues(["gate", "door"], live)


def seen(live: LiveStatus) -> dict[str, tuple[str, str]]:
    return {view.name: (view.state, view.reason) for view in live.snapshot().cameras}


def test_a_camera_that_goes_ends_what_went_on_and_counts_when_it_is_back(
    live: LiveStatus, frames: FrameQueues
) -> None:
    states, broker = CameraStates(live, frames), Broker()
    states.listeners.append(broker)
    states.report("gate", "online", "4 x 4 pixels")
    states.report("gate", "offline", "no answer")
    states.report("gate", "online", "4 x 4 pixels")
    assert [(camera, type(item)) for camera, item in frames.next(0)] == [("gate", Lost)]
    assert seen(live)["gate"] == ("online", "")
    assert live.snapshot().cameras[0].counts["reconnects"] == 1
    assert broker.heard == [("gate", "online"), ("gate", "offline"), ("gate", "online")]


@pytest.mark.slow
def test_networks_that_come_late_are_found_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cameras_module, "LONGEST_REFUSAL_S", 1.0)
    networks = write_networks(tmp_path)
    settings = write_site(tmp_path, video_camera("left", tmp_path), networks)
    hidden = tmp_path / "movenet_tiny.onnx"
    hidden.rename(tmp_path / "later.onnx")
    site, stop = Site(load(settings)), threading.Event()
    thread = threading.Thread(target=site.run, args=[stop])
    thread.start()
    try:
        wait_until(lambda: seen(site.status)["left"][0] == "failed", 30 * SLOWER)
        assert "movenet_tiny" in seen(site.status)["left"][1]
        time.sleep(1.0)
        (tmp_path / "later.onnx").rename(hidden)
        wait_until(lambda: site.status.snapshot().cameras[0].counts["scored"] > 3, 30 * SLOWER)
        assert seen(site.status)["left"][0] == "online"
    finally:
        stop.set()
        thread.join(40)
    assert not thread.is_alive()

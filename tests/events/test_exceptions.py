"""Motion marked as normal is passed over, no right alert is hidden, and no limit moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.evaluation import walkers
from stepvad.events.calibration import ScoredFootage, read_calibration, write_calibration
from stepvad.events.exceptions import (
    MOST_WINDOWS,
    Excuse,
    MotionException,
    exceptions_for,
    judge,
)
from stepvad.events.record import Mark, Record, Review
from stepvad.events.rules import find_events
from stepvad.model.scoring import WindowScores
from stepvad.poses import Clip
from stepvad.stream import Stream

BEGIN, APART_S = 1e9, 1000.0
"""Unix time of the first clip, and time between two."""


@dataclass(frozen=True)
class Scene:
    """A camera: its detector, its limit, and its alerts with the clips in which they are."""

    detector: Detector
    limit: float
    alerts: dict[str, Record]
    clips: dict[str, Clip]

    def exceptions(self, marks: Sequence[tuple[str, Mark]]) -> tuple[MotionException, ...]:
        reviews = {id: Review(mark, float(at)) for at, (id, mark) in enumerate(marks)}
        return exceptions_for(self.detector, self.alerts.values(), reviews, self.clips)

    def is_raised(
        self, id: str, exceptions: Sequence[MotionException], limit: float | None = None
    ) -> bool:
        """Whether an alert is raised beside some exceptions of its camera."""
        alert, clip = self.alerts[id], self.clips[id]
        own = [one for one in exceptions if one.camera == alert.camera]
        scores = self.detector.score(clip)
        lowered = replace(scores, windows=Excuse(self.detector, own).in_clip(clip, scores.windows))
        found = find_events(clip, lowered, limit or self.limit)
        return any({*one.tracks} & {*alert.tracks} for one in found)

    def of_kind(self, *kinds: str) -> list[str]:
        return [id for id in self.alerts if id.split()[0] in kinds]


def alerts_in(detector: Detector, clip: Clip, limit: float, name: str, at: float) -> list[Record]:
    return [
        Record(
            id=f"{name} {number}",
            camera=clip.name[:2],
            score=event.peak,
            top_score=event.peak,
            start_time=at + event.first_s,
            end_time=at + event.last_s,
            ended_by="calm",
            model_id="walkers",
            model_sha256="0" * 64,
            track_id=event.peak_track,
            tracks=event.tracks,
            epoch=1,
            frame_seq=round(event.first_s * walkers.FPS),
            confidence=1.0,
            threshold=limit,
        )
        for number, event in enumerate(find_events(clip, detector.score(clip), limit))
    ]


def scene_of(detector: Detector, limit: float) -> Scene:
    """Walkers of four cameras who run, fall, cycle, crouch and fight."""
    alerts, clips = {}, {}
    made = walkers.make_clips(28, seed=2, seconds=8.0, anomalies=True)
    for number, (clip, labels) in enumerate(made):
        name = f"{next(iter(labels.classes), 'nothing')} {number}"
        for one in alerts_in(detector, clip, limit, name, BEGIN + APART_S * number):
            alerts[one.id], clips[one.id] = one, clip
    return Scene(detector, limit, alerts, clips)


@pytest.fixture(scope="module")
def usual() -> Scene:
    train = [clip for clip, _ in walkers.make_clips(24, seed=1, seconds=8.0)]
    return scene_of(Detector.fit(train, Config.usual(walkers.FPS)), 7.0)


@pytest.fixture(scope="module", params=["usual", "energy"])
def scene(request: pytest.FixtureRequest, small_model: Detector) -> Scene:
    is_usual = request.param == "usual"
    return request.getfixturevalue("usual") if is_usual else scene_of(small_model, 5.0)


def test_a_marked_motion_is_passed_over_when_it_comes_again(scene: Scene) -> None:
    assert len(scene.alerts) >= 15
    for id in scene.alerts:
        assert scene.is_raised(id, [])
        (made,) = scene.exceptions([(id, "normal")])
        assert not scene.is_raised(id, [made])
        assert 0 < len(made.points[0]) <= MOST_WINDOWS
        assert (made.event, made.at) == (id, scene.alerts[id].start_time)


@pytest.mark.parametrize("kind", ["run", "fall"])
def test_a_motion_of_another_kind_is_still_raised(scene: Scene, kind: str) -> None:
    made = scene.exceptions([(id, "normal") for id in scene.of_kind(kind)])
    everywhere = [replace(one, place=(-1e4, -1e4, 1e4, 1e4)) for one in made]
    assert everywhere
    others = {"run", "fall", "cycle", "crouch"} - {kind}
    assert all(scene.is_raised(id, everywhere) for id in scene.of_kind(*others))
    clip = scene.clips[scene.of_kind(*others)[0]]
    before = scene.detector.score(clip).windows
    after = Excuse(scene.detector, everywhere).in_clip(clip, before)
    assert (before.A >= after.A).all()  # no score rises


def test_no_tap_at_random_hides_a_right_alert(scene: Scene) -> None:
    rng = np.random.default_rng(0)
    ids = [*scene.alerts]
    marks: dict[str, Mark] = {}
    for tap in range(100):
        id = str(rng.choice(ids))
        marks.pop(id, None)  # a later mark takes the place of an earlier one
        marks[id] = "right" if rng.random() < 0.3 else "normal"
        if tap % 10 == 9:
            made = scene.exceptions([*marks.items()])
            assert made
            for right in (one for one in marks if marks[one] == "right"):
                assert scene.is_raised(right, made)


def near_copies(scene: Scene, id: str, n: int) -> Iterator[tuple[Record, Clip]]:
    """The motion of an alert again and again, whole or a part of it, with a little noise."""
    rng, alert, clip = np.random.default_rng(1), scene.alerts[id], scene.clips[id]
    first = round((alert.start_time - BEGIN) % APART_S * walkers.FPS)
    for number in range(n):
        tracks = []
        for track in clip.tracks:
            size = float(np.ptp(track.keypoints, axis=1).max())
            noise = rng.normal(0, rng.choice([0.0, 0.002, 0.01]) * size, track.keypoints.shape)
            moved = track.keypoints + noise + rng.normal(0, 0.02 * size, 2)
            tracks.append(replace(track, keypoints=moved.astype(np.float32)))
        if number % 3:  # the first or the second half of it: each hides one
            middle = first + 15
            spans = ((0, middle), (middle - 12, clip.n_frames))
            cut = [track.between(*spans[number % 3 - 1]) for track in tracks]
            tracks = [track for track in cut if len(track)]
        copy = replace(alert, id=f"copy {number}", start_time=alert.start_time + 1e6 * (number + 1))
        yield replace(copy, end_time=copy.start_time + 2), replace(clip, tracks=tuple(tracks))


@pytest.mark.parametrize("kind", ["run", "fall", "crouch"])
@pytest.mark.parametrize("is_first", [True, False], ids=["marked first", "marked last"])
def test_copies_of_a_right_alert_marked_as_normal_do_not_hide_it(
    scene: Scene, kind: str, is_first: bool
) -> None:
    id = scene.of_kind(kind)[0]
    copies = [*near_copies(scene, id, 20)]
    both = replace(
        scene,
        alerts=scene.alerts | {one.id: one for one, _ in copies},
        clips=scene.clips | {one.id: clip for one, clip in copies},
    )
    normal: list[tuple[str, Mark]] = [(one.id, "normal") for one, _ in copies]
    assert not both.is_raised(id, both.exceptions(normal))  # the attack works without the mark
    right: tuple[str, Mark] = (id, "right")
    made = both.exceptions([right, *normal] if is_first else [*normal, right])
    highest = judge(both.detector, [both.alerts[id]], {id: Review("right", 0.0)}, both.clips).peaks
    for limit in np.geomspace(0.5, 2.0, 8) * scene.limit:
        if limit < 0.999 * highest[id]:
            assert both.is_raised(id, made, limit)


def test_what_is_refused_names_the_right_alert(scene: Scene) -> None:
    id = scene.of_kind("fall")[0]
    copy, clip = next(near_copies(scene, id, 1))
    found = judge(
        scene.detector,
        [scene.alerts[id], copy],
        {id: Review("right", 0.0), copy.id: Review("normal", 1.0)},
        scene.clips | {copy.id: clip},
    )
    assert not found.exceptions
    assert [one.id for one in found.too_like[copy.id]] == [id]
    assert found.peaks[id] > scene.limit


def test_undo_restores_exactly_what_was(scene: Scene) -> None:
    kinds = ("run", "cycle", "fall")
    normal: list[tuple[str, Mark]] = [(id, "normal") for id in scene.of_kind(*kinds)]
    before = scene.exceptions(normal)
    # a right alert that is like one of them takes it away, and gives it back
    copy, clip = next(near_copies(scene, normal[0][0], 1))
    both = replace(
        scene, alerts=scene.alerts | {copy.id: copy}, clips=scene.clips | {copy.id: clip}
    )
    after = both.exceptions([*normal, (copy.id, "right")])
    assert {one.event for one in before} - {one.event for one in after} == {normal[0][0]}
    assert both.exceptions(normal) == before
    assert {*scene.exceptions(normal[1:])} == {*before} - {*before[:1]}
    assert scene.exceptions([]) == ()


def moved(clip: Clip, pixels: float) -> Clip:
    tracks = (replace(one, keypoints=one.keypoints + np.float32(pixels)) for one in clip.tracks)
    return replace(clip, tracks=tuple(tracks))


def test_an_exception_holds_at_its_place_and_camera_alone(scene: Scene) -> None:
    id = scene.of_kind("fall")[0]
    made = scene.exceptions([(id, "normal")])
    left, top, right, bottom = made[0].place
    at = replace(scene, clips={id: moved(scene.clips[id], 2 * max(right - left, bottom - top))})
    assert at.is_raised(id, made)
    assert scene.is_raised(id, [replace(made[0], camera="elsewhere")])
    for pixels in (-5.0, 5.0):  # less than half a body to the side is the same place
        assert not replace(scene, clips={id: moved(scene.clips[id], pixels)}).is_raised(id, made)


def test_events_from_judged_poses_are_those_of_everybody_involved(scene: Scene) -> None:
    id = scene.of_kind("fall")[0]
    alert = replace(scene.alerts[id], tracks=(999,))  # none of them has poses: everybody
    made = exceptions_for(scene.detector, [alert], {id: Review("normal", 0.0)}, scene.clips)
    assert made
    assert exceptions_for(scene.detector, [alert], {id: Review("normal", 0.0)}, {}) == ()
    assert exceptions_for(scene.detector, [alert], {id: Review(None, 0.0)}, scene.clips) == ()


def test_windows_scored_live_are_lowered_as_those_of_the_finished_clip(scene: Scene) -> None:
    id = scene.of_kind("crouch")[0]
    detector, clip = scene.detector, scene.clips[id]
    excuse = Excuse(detector, scene.exceptions([(id, "normal")]), 0.8 * scene.limit)
    offline = excuse.in_clip(clip, detector.score(clip).windows)
    stream = Stream(detector, fps=clip.fps, excuse=excuse)
    live = [stream.update(frame, poses) for frame, poses in clip.by_frame()]
    A = {key: a for one in live for key, a in zip(keys(one), one.A.tolist(), strict=True)}
    same = dict(zip(keys(offline), offline.A.tolist(), strict=True))
    assert pytest.approx(same, abs=1e-4) == A
    # only what is above the calm level is lowered
    before = detector.score(clip).windows.A
    low = before < 0.8 * scene.limit
    assert (before >= offline.A).all()
    assert (offline.A[low] == before[low]).all()
    assert (offline.A[~low] < before[~low]).any()


def keys(windows: WindowScores) -> list[tuple[int, int]]:
    return list(zip(windows.track_id.tolist(), windows.frame.tolist(), strict=True))


def test_a_mark_does_not_excuse_its_own_footage(scene: Scene) -> None:
    id = scene.of_kind("fall")[0]
    alert, clip = scene.alerts[id], scene.clips[id]
    made = scene.exceptions([(id, "normal")])
    begin = alert.start_time - alert.start_time % APART_S

    def highest(at: float, exceptions: Sequence[MotionException]) -> float:
        footage = ScoredFootage(exceptions=exceptions)
        footage.score(scene.detector, alert.camera, [clip], begin=at)
        return footage.ledgers[alert.camera][0].highest

    assert highest(begin, made) == highest(begin, []) > scene.limit
    assert highest(begin + 86400, made) < scene.limit
    assert highest(begin + 86400, [replace(made[0], camera="elsewhere")]) > scene.limit


def test_exceptions_travel_with_a_calibration(scene: Scene, tmp_path: Path) -> None:
    made = scene.exceptions([(id, "normal") for id in scene.of_kind("fall", "run")])
    footage = ScoredFootage(exceptions=made)
    clips = [clip for clip, _ in walkers.make_clips(4, seed=5, seconds=8.0)]
    footage.score(scene.detector, "01", clips)
    calibration = footage.calibrate("0" * 64, alerts_per_day=1.0)
    write_calibration(calibration, tmp_path / "a.json")
    found = read_calibration(tmp_path / "a.json")
    assert found.exceptions == made
    # no number of marks moves a limit
    bare = ScoredFootage()
    bare.score(scene.detector, "01", clips)
    assert found.threshold == bare.calibrate("0" * 64, alerts_per_day=1.0).threshold
    excuse = found.excuse(scene.detector, "02")
    assert len(excuse._known) == sum(one.camera == "02" for one in made)


def test_an_exception_of_another_model_excuses_nothing(usual: Scene, small_model: Detector) -> None:
    id = usual.of_kind("fall")[0]
    made = usual.exceptions([(id, "normal")])
    other = Scene(small_model, 5.0, usual.alerts, usual.clips)
    assert other.is_raised(id, made)

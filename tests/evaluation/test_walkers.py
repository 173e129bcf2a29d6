"""Walkers look and move like people, and the same seed makes the same bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.evaluation.datasets import Dataset, open_dataset
from stepvad.evaluation.metrics import auroc
from stepvad.evaluation.walker_motion import WalkerEvent, WalkerMotion, world_joints
from stepvad.evaluation.walkers import make, make_clips, write_dataset
from stepvad.formats.labels import FrameLabels
from stepvad.poses import Clip, Track
from stepvad.skeletons import COCO17


def assert_same_data(one: Dataset, other: Dataset) -> None:
    """Same clips in the same order, same labels and classes, same smoothing."""
    assert [c.digest() for c in one.train_clips()] == [c.digest() for c in other.train_clips()]
    assert (one.smoothing, one.left_out) == (other.smoothing, other.left_out)
    assert [*one.labels] == [*other.labels]
    for (clip, labels), (same, truth) in zip(one.test_clips(), other.test_clips(), strict=True):
        assert clip.digest() == same.digest()
        assert clip.n_frames == same.n_frames
        np.testing.assert_array_equal(labels.abnormal, truth.abnormal)
        np.testing.assert_array_equal(labels.counted, truth.counted)
        assert labels.classes.keys() == truth.classes.keys()
        for name, frames in labels.classes.items():
            np.testing.assert_array_equal(frames, truth.classes[name])


NOSE, LEFT_HIP, LEFT_ANKLE, RIGHT_ANKLE = (
    COCO17.joints.index(name) for name in ("nose", "left_hip", "left_ankle", "right_ankle")
)


def files_below(root: Path) -> dict[str, bytes]:
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def height_px(track: Track) -> NDArray[np.float32]:
    """How tall each pose stands in the picture."""
    return (
        track.keypoints[:, [LEFT_ANKLE, RIGHT_ANKLE], 1].max(axis=1) - track.keypoints[:, NOSE, 1]
    )


def eventful(kind: WalkerEvent) -> list[tuple[Track, NDArray[np.bool_]]]:
    """Who does that in clips of that event, and in which of their poses."""
    clips = make_clips(42, seed=5, anomalies=True)
    found = [(clip.tracks[0], truth) for clip, truth in clips if kind in truth.classes]
    assert len(found) == 6
    return [(track, truth.classes[kind][track.frames]) for track, truth in found]


def test_the_same_seed_makes_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("once", "again"):
        write_dataset(tmp_path / folder, seed=7, train_clips=2, test_clips=3, seconds=4)
    assert files_below(tmp_path / "once") == files_below(tmp_path / "again")


def test_another_seed_makes_other_clips() -> None:
    for one, other in zip(*(make_clips(4, seed=s, anomalies=True) for s in (0, 1)),
                          strict=True):  # fmt: skip
        assert not np.array_equal(one[1].abnormal, other[1].abnormal)
        assert not np.array_equal(one[0].tracks[0].keypoints[0], other[0].tracks[0].keypoints[0])


def test_a_clip_does_not_depend_on_how_many_are_made() -> None:
    few, many = list(make_clips(2, seed=3)), list(make_clips(6, seed=3))
    for (clip, _), (same, _) in zip(few, many, strict=False):
        assert clip.name == same.name
        for track, same_track in zip(clip.tracks, same.tracks, strict=True):
            np.testing.assert_array_equal(track.keypoints, same_track.keypoints)


def test_clips_without_anomalies_are_normal_throughout() -> None:
    for clip, truth in make_clips(4, seed=0):
        assert truth.abnormal.shape == (clip.n_frames,) == truth.counted.shape
        assert not truth.abnormal.any()
        assert truth.counted.all()


def test_six_of_seven_test_clips_hold_an_anomaly_of_one_class_that_is_not_all_of_them() -> None:
    truths = [truth for _, truth in make_clips(14, seed=0, anomalies=True)]
    events = ["run", "fall", "cycle", "backwards", "crouch", "fight"]
    assert [[*truth.classes] for truth in truths] == [*([event] for event in events), []] * 2
    for truth in truths:
        for frames in truth.classes.values():
            np.testing.assert_array_equal(frames, truth.abnormal)
            assert 25 < frames.sum() < 150
    assert 0.1 < np.mean([truth.abnormal.mean() for truth in truths]) < 0.4


def test_a_long_clip_has_people_and_events_all_along() -> None:
    clip, truth = next(make_clips(1, seed=0, seconds=60, anomalies=True))
    assert clip.n_frames == 1500
    people = clip.persons_per_frame().reshape(5, 300)
    assert (people.mean(axis=1) > 0.5).all()
    assert truth.abnormal.reshape(5, 300).any(axis=1).all()
    assert [track.id for track in clip.tracks] == [*range(1, len(clip.tracks) + 1)]


def acting(event: WalkerEvent | None, speed: float = 0.0) -> NDArray[np.float64]:
    """Joints `(n, 17, 3)` of somebody on the spot, facing along x, at full level of the event."""
    n = 100
    still, level = np.zeros(n), np.full(n, float(event is not None))
    here, seen = np.zeros((n, 2)), np.ones(n, dtype=np.bool_)
    motion = WalkerMotion(here, still, np.full(n, speed), event, level, seen)
    return world_joints(np.random.default_rng(0), motion)


def joint(joints: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """The course of one joint, `(n, 3)` ahead, left and up."""
    return joints[:, COCO17.joints.index(name)]


UPRIGHT: list[tuple[WalkerEvent | None, float]] = [
    (None, 0.0), (None, 1.3), ("run", 3.6), ("backwards", -1.0), ("crouch", 0.3), ("fight", 0.0)
]  # fmt: skip
ALL = [*UPRIGHT, ("cycle", 4.0)]


@pytest.mark.parametrize(("event", "speed"), UPRIGHT)
def test_the_lower_foot_is_on_the_ground(event: WalkerEvent | None, speed: float) -> None:
    ankles = acting(event, speed)[:, [LEFT_ANKLE, RIGHT_ANKLE], 2]
    np.testing.assert_allclose(ankles.min(axis=1), 0.06)


@pytest.mark.parametrize(("event", "speed"), ALL)
def test_bones_keep_their_length(event: WalkerEvent | None, speed: float) -> None:
    joints = acting(event, speed)
    limbs = [bone for bone in COCO17.bones if min(bone) >= COCO17.joints.index("left_shoulder")]
    for a, b in limbs:
        assert np.ptp(np.linalg.norm(joints[:, a] - joints[:, b], axis=1)) < 1e-9


@pytest.mark.parametrize(("event", "speed"), ALL)
def test_heads_are_above_shoulders_above_hips_above_feet(
    event: WalkerEvent | None, speed: float
) -> None:
    joints = acting(event, speed)
    names = ("nose", "left_shoulder", "left_hip", "left_ankle")
    heights = np.stack([joint(joints, name)[:, 2] for name in names])
    assert (np.diff(heights, axis=0) < 0).all()


@pytest.mark.parametrize(("event", "speed"), ALL)
def test_knees_bend_backwards_and_elbows_forwards(event: WalkerEvent | None, speed: float) -> None:
    joints = acting(event, speed)
    for side in ("left", "right"):
        for limb, bends in (("hip knee ankle", -1), ("shoulder elbow wrist", 1)):
            root, middle, end = (joint(joints, f"{side}_{name}") for name in limb.split())
            upper, lower = (
                np.arctan2(to[:, 0] - at[:, 0], at[:, 2] - to[:, 2])  # forward of straight down
                for at, to in ((root, middle), (middle, end))
            )
            assert (np.sin(bends * (lower - upper)) > 0).all()


def test_who_goes_backwards_moves_as_a_film_of_walking_in_reverse() -> None:
    ahead, back = (joint(acting(None, speed), "left_ankle") for speed in (1.2, -1.2))
    for course, way in ((ahead, 1), (back, -1)):
        low = course[:, 2] < np.quantile(course[:, 2], 0.3)  # the foot on the ground moves the body
        push = np.diff(course[:, 0])[low[1:] & low[:-1]]
        assert np.median(push) * way < 0


def test_who_crouches_has_the_hips_at_half_their_height() -> None:
    standing, low = (joint(acting(event), "left_hip")[:, 2].mean() for event in (None, "crouch"))
    assert 0.4 < low / standing < 0.65


def test_a_cyclists_feet_go_round_and_hands_rest_before_the_body() -> None:
    joints = acting("cycle", 4.0)
    tall = joint(joints, "left_hip")[0, 2] / 0.55
    left, right = joint(joints, "left_ankle"), joint(joints, "right_ankle")
    middle = (left + right)[:, [0, 2]] / 2
    np.testing.assert_allclose(np.ptp(middle, axis=0), 0, atol=1e-9)  # pedals are opposite
    radius = np.linalg.norm(left[:, [0, 2]] - middle, axis=1) / tall
    np.testing.assert_allclose(radius, 0.10)
    assert left[:, 2].min() > 0.06
    top = left[:, 2] > np.quantile(left[:, 2], 0.8)
    assert (np.diff(left[:, 0])[top[1:] & top[:-1]] > 0).all()  # on top a pedal moves ahead
    wrist = joint(joints, "left_wrist")
    assert np.ptp(wrist[:, 0]) < 1e-6
    assert (wrist[:, 0] > joint(joints, "left_shoulder")[:, 0] + 0.2).all()


def test_who_fights_strikes_out_with_one_arm_after_the_other() -> None:
    reach = [
        np.linalg.norm(
            joint(acting("fight"), f"{side}_wrist") - joint(acting("fight"), f"{side}_shoulder"),
            axis=1,
        )
        for side in ("left", "right")
    ]
    for arm in reach:
        assert arm.max() > 1.6 * arm.min()
        struck = np.diff((arm > arm.mean()).astype(int)) == 1
        assert 4 <= struck.sum() <= 9  # blows in four seconds
    assert np.corrcoef(reach)[0, 1] < -0.3


def test_people_stay_inside_the_picture(walkers: list[Clip]) -> None:
    middle = np.concatenate([t.keypoints.mean(axis=1) for clip in walkers for t in clip.tracks])
    assert (middle > 0).all()
    assert (middle < (1280, 720)).all()


def test_a_fall_ends_lying() -> None:
    for track, abnormal in eventful("fall"):
        standing = height_px(track)[~abnormal].mean()
        lying = np.ptp(track.keypoints[-5:, :, 1], axis=1).mean()
        assert lying < 0.75 * standing
        assert abnormal[-1]


def test_running_legs_are_wider_and_faster_than_walking_ones() -> None:
    stride = {True: [0.0], False: [0.0]}
    pace = {True: [0.0], False: [0.0]}
    for track, runs in eventful("run"):
        legs = (track.keypoints[:, LEFT_ANKLE] - track.keypoints[:, RIGHT_ANKLE])[:, 0]
        legs = legs / height_px(track)
        follows = np.diff(track.frames) == 1
        for state in (True, False):
            stride[state] += np.abs(legs[runs == state]).tolist()
            moving = follows & (runs[1:] == state)
            pace[state] += np.abs(np.diff(legs)[moving]).tolist()
    assert np.quantile(stride[True], 0.9) > 1.3 * np.quantile(stride[False], 0.9)
    assert np.quantile(pace[True], 0.9) > 1.5 * np.quantile(pace[False], 0.9)


def test_keypoints_err_more_where_confidence_is_low() -> None:
    confidence, bend = [], []
    for clip, _ in make_clips(8, seed=4):
        for track in clip.tracks:
            whole = np.diff(track.frames, n=1)[:-1] + np.diff(track.frames)[1:] == 2
            second = np.diff(track.keypoints, n=2, axis=0)[whole] / height_px(track).mean()
            bend.append(np.linalg.norm(second, axis=2).ravel())
            confidence.append(track.confidence[1:-1][whole].ravel())
    sure = np.concatenate(confidence) > 0.9
    unsure = np.concatenate(confidence) < 0.4
    jitter = np.concatenate(bend)
    assert unsure.sum() > 100
    assert np.median(jitter[unsure]) > 3 * np.median(jitter[sure])


def test_people_come_go_and_are_missed_now_and_then() -> None:
    clips = [clip for clip, _ in make_clips(8, seed=0)]
    tracks = [track for clip in clips for track in clip.tracks]
    assert any(track.frames[0] > 0 for track in tracks)
    assert any(track.frames[-1] < 299 for track in tracks)
    gaps = [(np.diff(track.frames) > 1).sum() for track in tracks]
    assert 0 < np.mean(gaps) < 10


def test_the_number_of_people_tells_little_of_the_anomalies() -> None:
    pairs = list(make_clips(60, seed=0, anomalies=True))
    people = np.concatenate([clip.persons_per_frame() for clip, _ in pairs])
    abnormal = np.concatenate([truth.abnormal for _, truth in pairs])
    assert auroc(abnormal[people > 0], people[people > 0]) == pytest.approx(0.5, abs=0.08)
    assert (people == 1).mean() > 0.2


def test_a_data_set_has_the_layout_of_shanghaitech(walker_dataset: Path) -> None:
    assert sorted(files_below(walker_dataset)) == [
        "gt/classes.csv",
        *(f"gt/test_frame_mask/{name}.npy" for name in (
            "01_0001", "01_0005", "02_0002", "03_0003", "04_0004"
        )),
        *(f"pose/test/{name}_alphapose_tracked_person.json" for name in (
            "01_0001", "01_0005", "02_0002", "03_0003", "04_0004"
        )),
        *(f"pose/train/{name}_alphapose_tracked_person.json" for name in (
            "01_0001", "02_0002", "03_0003"
        )),
    ]  # fmt: skip


def test_clips_come_in_the_order_of_files_though_cameras_take_turns(tmp_path: Path) -> None:
    made = make(seed=1, train_clips=6, test_clips=6, seconds=2.0)
    names = [clip.name for clip in made.train_clips()]
    assert names == [clip.name for clip, _ in made.test_clips()] == sorted(names)
    write_dataset(tmp_path, seed=1, train_clips=6, test_clips=6, seconds=2.0)
    assert_same_data(open_dataset(tmp_path), made)


@pytest.mark.parametrize(
    ("n_clips", "seconds", "people"),
    [(-1, 1.0, 1), (1, 0.01, 1), (1, 1.0, -1), (1, np.nan, 1), (1, np.inf, 1)],
)
def test_a_scene_that_cannot_be_is_refused(n_clips: int, seconds: float, people: int) -> None:
    with pytest.raises(DataError, match=f"got {n_clips} clips, {people} people, {seconds} s"):
        list(make_clips(n_clips, seed=0, seconds=seconds, people=people))


@pytest.mark.parametrize("seconds", [0.04, 0.1, 1.0])
def test_the_shortest_clips_can_be_made(seconds: float) -> None:
    for clip, truth in make_clips(5, seed=0, seconds=seconds, anomalies=True):
        assert clip.n_frames == len(truth.abnormal) == round(25 * seconds)


def test_an_empty_street_has_no_tracks_and_nothing_abnormal() -> None:
    clip, truth = next(make_clips(1, seed=0, people=0, anomalies=True))
    assert clip.tracks == ()
    assert isinstance(truth, FrameLabels)
    assert not truth.abnormal.any()

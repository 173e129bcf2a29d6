"""The data set is the same from the same seed, keeps people apart, and its labels fit its clips."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from stepvad.errors import ConfigError, DataError
from stepvad.evaluation.datasets import Dataset, open_dataset
from stepvad.evaluation.mocap import catalogue, joining, motions, takes, truth
from stepvad.evaluation.mocap.dataset import CAMERAS, FULL, HALVES, SMALL, Size, camera_of, make
from stepvad.evaluation.mocap.sheet import draw_sheet
from stepvad.evaluation.statistics import describe, without_labels
from stepvad.evaluation.writing import write_dataset
from stepvad.poses import Clip
from tests.evaluation.equality import assert_same_data
from tests.evaluation.mocap.conftest import TINY


def digests(clips: Iterable[Clip]) -> list[bytes]:
    return [clip.digest() for clip in clips]


def validation_of(dataset: Dataset) -> Dataset:
    assert dataset.validation is not None
    return dataset.validation()


def test_the_same_seed_makes_the_same_bytes(tiny: Dataset, archive_path: Path) -> None:
    again = make(split=1, seed=0, size=TINY, archive=archive_path)
    for one, other in ((tiny, again), (validation_of(tiny), validation_of(again))):
        assert digests(one.test()) == digests(other.test())
    assert digests(tiny.train()) == digests(again.train())
    for name, labels in tiny.labels.items():
        same = again.labels[name].classes
        assert labels.classes.keys() == same.keys()
        for kind, frames in labels.classes.items():
            np.testing.assert_array_equal(frames, same[kind])


def test_training_clips_can_be_read_again(tiny: Dataset) -> None:
    assert digests(tiny.train_clips()) == digests(tiny.train_clips())


def test_another_seed_or_split_makes_other_clips(tiny: Dataset, archive_path: Path) -> None:
    for split, seed in ((1, 1), (2, 0)):
        other = make(split=split, seed=seed, size=TINY, archive=archive_path)  # type: ignore[arg-type]  # wrong on purpose
        assert set(digests(tiny.test())).isdisjoint(digests(other.test()))


def test_a_clip_does_not_depend_on_how_many_are_made(tiny: Dataset, archive_path: Path) -> None:
    fewer = make(split=1, seed=0, size=Size(1, 1, 2, TINY.seconds), archive=archive_path)
    assert digests(fewer.test()) == digests(tiny.test())[:2]


def test_nobody_is_on_both_sides_of_a_split(archive_path: Path) -> None:
    archive = motions.open_archive(archive_path)
    for halves in HALVES.values():
        persons = [
            takes.split_takes(archive, half, abnormal=True).persons() for half in halves.values()
        ]
        assert sum(map(len, persons)) == len(set.union(*persons))


def test_the_splits_swap_training_and_test() -> None:
    assert HALVES[1]["train"] == HALVES[2]["test"]
    assert HALVES[1]["test"] == HALVES[2]["train"]
    assert HALVES[1]["validation"] == HALVES[2]["validation"]


def test_labels_and_classes_fit_the_clips(tiny: Dataset) -> None:
    for dataset in (tiny, validation_of(tiny)):
        for clip, labels in dataset.test_clips():
            assert labels.abnormal.shape == (clip.n_frames,)
            named = np.zeros(clip.n_frames, dtype=np.bool_)
            for frames in labels.classes.values():
                named |= frames
            np.testing.assert_array_equal(labels.abnormal, named)
            assert labels.counted.all()
            assert clip.fps == camera_of(0, int(clip.name[:2]) - 1).fps


def test_abnormal_frames_show_somebody(tiny: Dataset) -> None:
    shown = np.concatenate([
        clip.persons_per_frame()[labels.abnormal] for clip, labels in tiny.test_clips()
    ])  # fmt: skip
    assert len(shown) > 30
    assert (shown > 0).mean() > 0.8  # the rest was missed by the estimator


def test_clip_names_are_distinct_over_all_parts(tiny: Dataset) -> None:
    clips = [*tiny.train(), *tiny.test(), *validation_of(tiny).test()]
    assert len({clip.name for clip in clips}) == len(clips) == TINY.train + 6 + 3


def test_people_stand_upright(tiny: Dataset) -> None:
    for clip in tiny.train_clips():
        assert clip.n_upright() == clip.n_poses


def test_training_takes_show_no_sign(archive_path: Path) -> None:
    cast = takes.split_takes(motions.open_archive(archive_path), "a", abnormal=False)
    assert cast.abnormal == {}
    assert all(not take.abnormal.any() and take.kind is None for take in cast.normal)
    assert all(truth.ordinary(take.joints).mean() > 0.9 for take in cast.normal)


def test_an_event_is_led_in_and_out_by_normal_motion(archive_path: Path) -> None:
    cast = takes.split_takes(motions.open_archive(archive_path), "a", abnormal=True)
    run = cast.abnormal["run"][0]
    longer = joining.embedded(np.random.default_rng(0), cast, run, 60)
    events = np.flatnonzero(longer.abnormal)
    assert longer.kind == "run"
    assert len(longer) > len(run)
    assert events[0] > 10 or len(longer) - events[-1] > 10
    step = np.linalg.norm(np.diff(longer.joints, axis=0), axis=2).max()
    assert step < motions.MAX_STEP_M


def test_joined_takes_go_on_where_the_first_stops(archive_path: Path) -> None:
    cast = takes.split_takes(motions.open_archive(archive_path), "a", abnormal=False)
    walk = cast.normal[0]
    joined = joining.join(walk, walk)
    assert joined is not None
    steps = np.linalg.norm(np.diff(joined.joints[:, motions.HIPS, :2], axis=0), axis=1) * 30
    assert len(joined) > len(walk)
    assert steps.min() > 0.5  # never stops, never jumps
    assert steps.max() < 1.6


def test_an_unknown_split_is_refused(archive_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected 1 or 2, got 3"):
        make(split=3, archive=archive_path)  # type: ignore[arg-type]  # wrong on purpose


def test_an_archive_without_the_listed_motions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "few.npz"
    np.savez(
        path,
        xyz=np.zeros((5, 15, 3), np.float16),
        lengths=[5],
        names=["00_01"],
        joints=motions.JOINTS,
    )
    with pytest.raises(DataError, match="expected normal motions of half"):
        make(split=1, archive=path)


def test_a_written_data_set_reads_as_it_was_made(tiny: Dataset, tmp_path: Path) -> None:
    write_dataset(tiny, tmp_path)
    read = open_dataset(tmp_path)
    assert_same_data(read, tiny)
    assert_same_data(validation_of(read), validation_of(tiny))


def test_clips_come_in_the_order_in_which_files_are_read(archive_path: Path) -> None:
    made = make(split=1, size=Size(14, 0, 14, TINY.seconds), archive=archive_path)
    for clips in (made.train(), made.test()):
        names = [clip.name for clip in clips]
        assert names == sorted(names)
        assert len(names) == 14


def test_validation_has_its_own_clips_and_the_same_training(tiny: Dataset, tmp_path: Path) -> None:
    write_dataset(tiny, tmp_path)
    for dataset in (tiny, open_dataset(tmp_path)):
        clips = [clip for clip, _ in dataset.validation_clips()]
        assert len(clips) == TINY.validation
        assert not {clip.name for clip in clips} & dataset.labels.keys()
        inner = validation_of(dataset)
        assert inner.name == f"{dataset.name} validation"
        assert digests(inner.train_clips()) == digests(dataset.train_clips())


def test_events_are_listed_with_their_class(tiny: Dataset, tmp_path: Path) -> None:
    write_dataset(tiny, tmp_path)
    read = open_dataset(tmp_path).labels
    assert read.keys() == tiny.labels.keys()
    for name, labels in tiny.labels.items():
        assert read[name].classes.keys() == labels.classes.keys()
        for kind, frames in labels.classes.items():
            np.testing.assert_array_equal(read[name].classes[kind], frames)
    listed = describe(tiny.test_clips()).classes
    abnormal = sum(int(labels.abnormal.sum()) for labels in read.values())
    assert sum(events.frames for events in listed.values()) == abnormal


def test_a_contact_sheet_is_drawn(tiny: Dataset, tmp_path: Path) -> None:
    draw_sheet(tiny, tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").stat().st_size > 5000


def test_the_sizes_are_what_the_names_say() -> None:
    assert FULL.test >= 150
    assert FULL.test * FULL.seconds * 20 > 60_000
    assert SMALL.test >= len(catalogue.KINDS)


@pytest.fixture(scope="module")
def real(data_dir: Path) -> motions.Archive:
    return motions.open_archive(data_dir / "CMU-mocap" / "mocap_30fps_15j.npz")


@pytest.mark.data
@pytest.mark.parametrize("half", ["a", "b", "validation"])
def test_every_listed_motion_is_in_the_archive_and_used(
    real: motions.Archive, half: catalogue.Half
) -> None:
    cast = takes.split_takes(real, half, abnormal=True)
    assert {take.name for take in cast.normal} == set(catalogue.normal_names(half))
    for kind in catalogue.KINDS:
        used = {take.name for take in cast.abnormal.get(kind, ())}
        assert used == set(catalogue.abnormal_names(half, kind))


@pytest.mark.data
def test_no_listed_motion_is_a_copy_of_another(real: motions.Archive) -> None:
    lines = [*catalogue.NORMAL.values(), *catalogue.ABNORMAL.values()]
    names = [name for line in lines for name in catalogue.names(line)]
    stored = {name: real.xyz[real.first[name] :][: real.length[name]].tobytes() for name in names}
    assert len(set(stored.values())) == len(stored)


@pytest.mark.data
@pytest.mark.slow
def test_confidence_follows_poselift(real: motions.Archive) -> None:
    made = make(split=1, seed=1, size=Size(CAMERAS, 0, 0), archive=real.path)
    found = describe(without_labels(made.train_clips()))
    poselift = (0.053, 0.043, 0.045, 0.056, 0.066, 0.085, 0.136, 0.222, 0.250, 0.045)
    np.testing.assert_allclose(found.confidence, poselift, atol=0.05)
    assert found.confidence_mean == pytest.approx(0.626, abs=0.05)
    assert found.confidence_correlation == pytest.approx(0.936, abs=0.03)
    assert 0.9 < found.covered < 1

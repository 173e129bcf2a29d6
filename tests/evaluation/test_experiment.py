"""What an experiment fits on, how its epoch is rated, what it shares, and the key of its result."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

import stepvad
from stepvad import Detector, executors
from stepvad.config import Aggregation, Checkpoint, Compute, Config, Runtime
from stepvad.errors import ConfigError, DataError, ModelFileError, Progress, StepvadError
from stepvad.evaluation import experiment as module
from stepvad.evaluation import runs as sweeps
from stepvad.evaluation.baselines import DistanceDetector
from stepvad.evaluation.datasets import Dataset, of_clips, open_dataset
from stepvad.evaluation.experiment import (
    Experiment,
    Jittered,
    SampledScorer,
    sampled_rows,
    validation_auroc,
    without_unsure,
)
from stepvad.evaluation.protocol import evaluate
from stepvad.evaluation.runs import SweepPlace, SweepTask, digest_of, run_fit, sweep
from stepvad.evaluation.walkers import make, write_dataset
from stepvad.formats.labels import FrameLabels
from stepvad.model import training
from stepvad.model.scoring import WindowScores, score_clip
from stepvad.poses import Clip, Track
from stepvad.skeletons import Skeleton
from stepvad.windows.views import ViewSettings, Windows

TINY = Config(K=12, width=16, max_steps=6, ema_warmup=True)
DISTANCE = Experiment(method="mahalanobis", config=TINY)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("experiment") / "people"
    write_dataset(root, seed=1, train_clips=2, test_clips=2, seconds=4.0)
    return root


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("experiment") / "others"
    write_dataset(root, seed=2, train_clips=3, test_clips=1, seconds=4.0)
    return root


def clip_of(*confidences: list[list[float]]) -> Clip:
    """A clip of tracks with these confidences; the poses of a track are one frame apart."""
    tracks = []
    for number, confidence in enumerate(confidences):
        c = np.repeat(np.array(confidence, np.float32), [9, 8], axis=1)
        keypoints = np.arange(c.size * 2, dtype=np.float32).reshape(*c.shape, 2)
        tracks.append(Track(number, np.arange(len(c)), keypoints, c))
    return Clip("some", 25.0, 40, tuple(tracks))


def test_poses_of_low_mean_confidence_are_left_out_and_nothing_else() -> None:
    clip = clip_of([[0.9, 0.9], [0.1, 0.1], [0.2, 0.2], [0.0, 0.6]], [[0.1, 0.0], [0.1, 0.1]])
    kept = without_unsure(clip, 0.2)
    (track,) = kept.tracks
    assert (track.id, track.frames.tolist()) == (0, [0, 2, 3])
    np.testing.assert_array_equal(track.keypoints, clip.tracks[0].keypoints[[0, 2, 3]])
    np.testing.assert_array_equal(track.confidence, clip.tracks[0].confidence[[0, 2, 3]])
    assert (kept.name, kept.fps, kept.n_frames) == (clip.name, clip.fps, clip.n_frames)
    assert len(clip.tracks[0]) == 4
    assert without_unsure(clip, 0.0) is clip


def test_nan_confidence_counts_as_nothing_and_others_are_clipped() -> None:
    nan = float("nan")
    clip = clip_of([[nan, nan], [nan, 0.9], [5.0, 0.0], [-9.0, 1.0], [2.0, nan]])
    (track,) = without_unsure(clip, 0.45).tracks  # means 0, 0.42, 0.53, 0.47 and 0.53
    assert track.frames.tolist() == [2, 3, 4]


@pytest.mark.parametrize("drop_below", [0.1, 0.2, 0.4, 0.7, 1.0])
def test_a_pose_exactly_at_the_threshold_stays(drop_below: float) -> None:
    clip = clip_of([[drop_below, drop_below]])
    assert without_unsure(clip, drop_below).n_poses == 1


def test_unsure_poses_are_left_out_of_training_and_kept_in_the_test(people: Path) -> None:
    dataset = open_dataset(people)
    mean = np.concatenate([t.confidence.mean(1) for c in dataset.train_clips() for t in c.tracks])
    experiment = replace(DISTANCE, drop_below=float(np.median(mean)))
    kept = sum(clip.n_poses for clip in experiment.train_clips(dataset))
    assert 0.4 * len(mean) < kept < 0.6 * len(mean)
    whole, part = DISTANCE.fit(dataset), experiment.fit(dataset)
    assert part.origin.data_sha256 != whole.origin.data_sha256
    clip, _ = next(dataset.test_clips())
    assert len(experiment.scorer(part).score(clip).A) == len(whole.score(clip).A)


def test_it_fits_on_the_data_sets_it_names_and_on_its_own_if_named(
    people: Path, others: Path
) -> None:
    dataset = open_dataset(people)
    own = [clip.digest() for clip in dataset.train_clips()]
    foreign = [clip.digest() for clip in open_dataset(others).train_clips()]

    def fitted_on(*directories: Path) -> list[bytes]:
        experiment = replace(DISTANCE, fit_on=tuple(map(str, directories)))
        return [clip.digest() for clip in experiment.train_clips(dataset)]

    assert fitted_on() == own
    assert fitted_on(others) == foreign
    assert fitted_on(others, people) == [*foreign, *own]
    assert replace(DISTANCE, fit_on=(str(others),)).fit(dataset).origin.clips == len(foreign)


def test_the_name_of_a_result_covers_the_clips_fitted_on_and_not_where_they_are(
    people: Path, others: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved, changed = tmp_path / "moved", tmp_path / "changed"
    write_dataset(moved, seed=2, train_clips=3, test_clips=1, seconds=4.0)
    write_dataset(changed, seed=3, train_clips=3, test_clips=1, seconds=4.0)
    place = SweepPlace(data=people, results=tmp_path / "results")
    choices = [(), (others,), (moved,), (changed,), (others, people), (people, others)]
    experiments = [replace(DISTANCE, fit_on=tuple(map(str, choice))) for choice in choices]
    read: list[str] = []

    def counting(directory: str) -> Dataset:
        read.append(directory)
        return open_dataset(directory)

    monkeypatch.setattr(sweeps, "open_dataset", counting)
    digests = sweeps._digests(experiments, open_dataset(people))
    assert sorted(read) == sorted(map(str, (others, moved, changed, people)))
    none, first, same, *different = (place.file(e, digests[e.fit_on]) for e in experiments)
    assert first == same
    assert len({none, first, *different}) == 5


def test_looks_at_one_fit_share_it_and_other_fits_do_not() -> None:
    some = Experiment(config=TINY)
    looks = [
        replace(some, jitter=0.2),
        *(replace(some, config=replace(TINY, aggregation=a)) for a in ("sum", "top3", 4)),
    ]
    assert {look.fitting for look in looks} == {some.fitting}
    fits = [
        replace(some, method="raw"),
        replace(some, k=2),
        replace(some, drop_below=0.1),
        replace(some, fit_on=("there",)),
        replace(some, config=replace(TINY, seed=1)),
        replace(some, config=replace(TINY, confidence=False)),
    ]
    assert len({fit.fitting for fit in (some, *fits)}) == 7


def test_a_shared_fit_gives_every_look_the_result_of_a_fit_of_its_own(
    people: Path, tmp_path: Path
) -> None:
    aggregations: list[Aggregation] = ["top3", "max", "sum", 2]
    experiments = [
        Experiment(config=replace(TINY, aggregation=aggregation), jitter=jitter)
        for aggregation in aggregations
        for jitter in (0.0, 0.2)
    ]
    together = SweepPlace(data=people, results=tmp_path / "together")
    alone = SweepPlace(data=people, results=tmp_path / "alone")
    digest = digest_of(together.open())
    for place in (together, alone):
        place.results.mkdir()
    assert run_fit(SweepTask(tuple(experiments), together, digest)) == 8
    for experiment in experiments:
        run_fit(SweepTask((experiment,), alone, digest))
    scores = set()
    for a, b in zip(sweep(experiments, together), sweep(experiments, alone), strict=True):
        assert a.facts["config"] == b.facts["config"]
        assert a.facts["config"]["aggregation"] == a.facts["experiment"]["config"]["aggregation"]
        for left, right in zip(a.clips, b.clips, strict=True):
            np.testing.assert_array_equal(left.scores.A, right.scores.A)
        scores.add(a.clips[0].scores.A.tobytes())
    assert len(scores) == 8


def test_a_distance_has_one_energy_whatever_the_aggregation(people: Path) -> None:
    dataset = open_dataset(people)
    experiment = replace(DISTANCE, config=replace(TINY, aggregation="top3"))
    fitted = experiment.fit(dataset)
    assert isinstance(fitted, DistanceDetector)
    assert experiment.scorer(fitted) is fitted


def test_a_sweep_runs_one_task_for_each_fit(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []

    def here(work: Callable[[SweepTask], int], tasks: list[SweepTask], **_: object) -> list[int]:
        ran.extend(work(task) for task in tasks)
        return ran

    monkeypatch.setattr(executors, "run", here)
    calm = [replace(DISTANCE, config=replace(TINY, aggregation=a)) for a in ("max", "sum")]
    looks = [*calm, *(replace(e, jitter=0.1) for e in calm), replace(DISTANCE, drop_below=0.1)]
    found = sweep([*looks, looks[0]], SweepPlace(data=people, results=tmp_path))
    assert ran == [4, 1]
    assert len(found) == 6
    assert len([*tmp_path.iterdir()]) == 5


def test_what_no_fit_can_do_is_refused() -> None:
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConfigError, match="drop_below: expected a number from 0 to 1, got"):
            Experiment(drop_below=wrong)
    for wrong in (-0.1, float("inf"), float("nan")):
        with pytest.raises(
            ConfigError, match="jitter: expected a finite number of at least 0, got"
        ):
            Experiment(jitter=wrong)
    with pytest.raises(ConfigError, match="fit_on: expected different directories, got a, b, a"):
        Experiment(fit_on=("a", "b", "a"))


@dataclass
class Listener:
    """A fitted method that keeps the windows it is given."""

    fitted: DistanceDetector
    heard: list[Windows] = field(default_factory=list)

    @property
    def view_settings(self) -> tuple[ViewSettings, ...]:
        return self.fitted.view_settings

    @property
    def skeleton(self) -> Skeleton:
        return self.fitted.skeleton

    def score_windows(self, windows: Windows) -> WindowScores:
        self.heard.append(windows)
        return self.fitted.score_windows(windows)


def test_jitter_is_independent_in_every_frame_joint_axis_window_and_clip(people: Path) -> None:
    dataset = open_dataset(people)
    fitted = DISTANCE.fit(dataset)
    assert isinstance(fitted, DistanceDetector)
    clip = next(iter(dataset.train_clips()))
    noises = []
    for named in (clip, replace(clip, name="another")):
        calm, noisy = Listener(fitted), Listener(fitted)
        score_clip(named, fitted.view_settings, fitted.skeleton, calm.score_windows)
        Jittered(noisy, 0.2).score(named)  # type: ignore[arg-type]  # a listener stands for it
        pairs = zip(noisy.heard, calm.heard, strict=True)
        noises.append(np.concatenate([(one.x - two.x) / 0.2 for one, two in pairs]))
    noise, other = noises
    assert noise.std() == pytest.approx(1.0, abs=0.02)
    assert noise.mean() == pytest.approx(0.0, abs=0.02)
    assert np.corrcoef(noise.ravel(), other.ravel())[0, 1] == pytest.approx(0.0, abs=0.02)
    for axis in range(noise.ndim):  # windows, coordinates, joints, frames
        one, two = (np.delete(noise, end, axis).ravel() for end in (0, -1))
        assert np.corrcoef(one, two)[0, 1] == pytest.approx(0.0, abs=0.02), axis


def rows(track: list[int], frame: list[int], every: int) -> list[int]:
    return sampled_rows(np.array(track, np.int64), np.array(frame, np.int64), every).tolist()


def test_a_run_is_sampled_at_its_ends_and_every_few_frames() -> None:
    assert rows([1] * 8, [*range(9, 17)], 4) == [0, 3, 7]
    # another person, and a gap of the same one, begin a run
    assert rows([1, 1, 1, 2, 2, 2, 2], [1, 2, 3, 4, 5, 9, 10], 4) == [0, 2, 3, 4, 5, 6]
    assert rows([1, 1, 1], [1, 2, 3], 1) == [0, 1, 2]
    assert rows([], [], 4) == []


def test_sampled_scores_are_exact_where_sampled_and_between_their_neighbours_elsewhere(
    small_model: Detector, walkers: list[Clip]
) -> None:
    exact, some = (
        scorer.score(walkers[0]) for scorer in (small_model, SampledScorer(small_model, 4))
    )
    windows = exact.windows
    taken = sampled_rows(windows.track_id, windows.frame, 4)
    assert 0 < len(taken) < 0.5 * len(windows)
    np.testing.assert_allclose(some.A[taken], exact.A[taken], atol=1e-5)
    between = np.setdiff1d(np.arange(len(windows)), taken)
    place = np.searchsorted(taken, between)
    sides = np.stack([exact.A[taken[place - 1]], exact.A[taken[place]]])
    assert (some.A[between] >= sides.min(axis=0) - 1e-5).all()
    assert (some.A[between] <= sides.max(axis=0) + 1e-5).all()
    np.testing.assert_array_equal(some.windows.frame, windows.frame)
    assert some.counts == exact.counts


def test_one_window_in_one_gives_the_exact_rating(
    small_model: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = make(seed=3, train_clips=1, test_clips=4, seconds=6.0)
    exact = evaluate(small_model, people).row().auroc
    rate = validation_auroc(people)
    assert rate(small_model) == pytest.approx(exact, abs=0.02)
    assert rate(small_model) != exact
    monkeypatch.setattr(module, "RATED_EVERY", 1)
    assert rate(small_model) == pytest.approx(exact, abs=1e-9)


def test_a_rating_has_a_digest_of_its_clips_their_labels_and_their_smoothing() -> None:
    people = make(seed=3, train_clips=1, test_clips=4, seconds=3.0)
    clips = [*people.test()]
    name = clips[0].name
    swapped = FrameLabels.all_counted(~people.labels[name].abnormal)
    others = [
        replace(people, test=lambda: clips[1:]),
        replace(people, labels={**people.labels, name: swapped}),
        replace(people, smoothing=replace(people.smoothing, frame_sigma=99.0)),
    ]
    digest = validation_auroc(people).digest
    assert validation_auroc(replace(people, test=lambda: clips)).digest == digest
    assert len({digest, *(validation_auroc(other).digest for other in others)}) == 4


def test_a_fit_does_not_resume_on_other_validation_clips(
    walkers: list[Clip], tmp_path: Path
) -> None:
    config = Config(T=4, K=8, width=16, blocks=2, L=4, max_steps=4)
    these, others = (
        validation_auroc(make(seed=seed, train_clips=1, test_clips=4, seconds=3.0))
        for seed in (3, 4)
    )
    for resume in (False, True):
        Detector.fit(
            walkers, config, keep_best=these, checkpoint=Checkpoint(tmp_path / "c", resume)
        )
    with pytest.raises(ModelFileError, match="the same validation clips, got another"):
        Detector.fit(
            walkers, config, keep_best=others, checkpoint=Checkpoint(tmp_path / "c", resume=True)
        )


WIDE = replace(TINY, width=training.BFLOAT16_FROM)
Labelled = tuple[Clip, FrameLabels]
PACKAGE = Path(stepvad.__file__).parent


def test_results_of_another_engine_are_not_reused(people: Path, tmp_path: Path) -> None:
    place = SweepPlace(data=people, results=tmp_path)
    experiments = [Experiment(config=TINY), Experiment(method="knn", config=TINY)]
    engines: dict[Runtime, str] = {
        "numpy": "numpy", "openvino": "openvino", "auto": "onnxruntime"
    }  # fmt: skip
    for runtime, engine in engines.items():
        own = replace(place, compute=Compute(runtime=runtime))
        step, knn = sweep(experiments, own)
        assert (step.facts["runtime"], knn.facts["runtime"]) == (engine, "numpy")
    assert len([*tmp_path.glob("*.parquet")]) == 3 + 1  # kNN has no engine


def test_auto_is_named_by_what_it_means_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def name(compute: Compute) -> str:
        place = SweepPlace(data=tmp_path, results=tmp_path, compute=compute)
        return place.file(Experiment(config=WIDE), "data").name

    found = {}
    for quick in (False, True):
        monkeypatch.setattr(training, "has_bfloat16", lambda _, quick=quick: quick)
        found[quick] = name(Compute())
    assert found[False] == name(Compute(precision="float32", runtime="onnxruntime"))
    assert found[True] == name(Compute(precision="bfloat16"))
    assert found[False] != found[True] != name(Compute(precision="bfloat16", runtime="numpy"))


def test_a_device_of_other_machines_is_part_of_the_name(tmp_path: Path) -> None:
    place = SweepPlace(data=tmp_path, results=tmp_path, compute=Compute(device="cuda:1"))
    assert place.file(Experiment(config=WIDE), "data").stem.endswith("-cuda-onnxruntime-auto")


def test_changed_code_makes_other_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copy = shutil.copytree(PACKAGE, tmp_path / "stepvad")
    before = module.code_digest(copy)
    assert before == module.code_digest(PACKAGE)
    for part in module.SCORING_CODE:
        assert (copy / part).exists(), part
    (copy / "cli" / "fit.py").write_text("# help", encoding="utf-8")
    assert module.code_digest(copy) == before
    with (copy / "windows" / "gaps.py").open("a", encoding="utf-8") as file:
        file.write("# gaps")
    assert module.code_digest(copy) != before

    key = Experiment().key("data")
    monkeypatch.setattr(module, "code_version", lambda: "of another day")
    assert Experiment().key("data") != key


def test_the_rate_of_clips_is_part_of_their_digest(people: Path) -> None:
    dataset = open_dataset(people)
    faster = [clip.with_rate(50.0) for clip in dataset.train_clips()]
    assert digest_of(replace(dataset, train=lambda: faster)) != digest_of(dataset)


def test_a_clip_for_tuning_is_not_one_of_the_test(people: Path) -> None:
    dataset = open_dataset(people)
    first, second = dataset.test_clips()

    def divided(*test: Labelled, tuning: list[Labelled]) -> Dataset:
        others = of_clips("tuning", train=dataset.train, test=tuning)
        return of_clips("people", train=dataset.train, test=[*test], validation=others)

    alike = divided(first, second, tuning=[]), divided(first, tuning=[second])
    assert digest_of(alike[0]) != digest_of(alike[1])


def test_data_that_change_during_a_run_leave_no_result(people: Path, tmp_path: Path) -> None:
    place = SweepPlace(data=people, results=tmp_path)
    task = SweepTask((Experiment(config=TINY),), place, "digest of the data at the start")
    with pytest.raises(DataError, match="expected the same poses and labels from start to end"):
        run_fit(task)
    assert [*tmp_path.iterdir()] == []


def test_a_directory_that_cannot_hold_results_is_found_before_the_first_fit(people: Path) -> None:
    reports: list[Progress] = []
    place = SweepPlace(data=people, results=Path("/proc/self"))
    with pytest.raises(StepvadError, match="expected a place that can be written"):
        sweep([Experiment(config=TINY)], place, report=reports.append)
    assert reports == []

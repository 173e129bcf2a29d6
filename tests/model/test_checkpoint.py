"""A training goes on from its checkpoint as if it had not been stopped, or says why it cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepvad.config import Compute, Config, Precision
from stepvad.errors import ModelFileError, Progress, Report, silent
from stepvad.model import modelfile
from stepvad.model.folded import Weights
from stepvad.model.training import TrainingCheckpoint, train
from tests.model.test_training import CONFIG, gaussian, same


class StoppedError(Exception):
    pass


def fit(
    config: Config = CONFIG,
    *,
    digest: str = "gaussian",
    checkpoint: Path | None = None,
    resume: bool = False,
    report: Report = silent,
    validate: Callable[[Weights, int], float] | None = None,
) -> tuple[Weights, int]:
    """Train on the same points."""
    kept = TrainingCheckpoint(checkpoint, resume=resume) if checkpoint else None
    return train(gaussian(digest=digest), config, report=report, validate=validate, checkpoint=kept)


@pytest.mark.parametrize("stop_at", [5, 8, 9])  # in the middle, at the end and at the start
def test_a_resumed_training_ends_at_the_same_bytes(tmp_path: Path, stop_at: int) -> None:
    checkpoint = tmp_path / "c"
    config = replace(CONFIG, block_jitter=0.05, patience=3)

    def validate(weights: object, epoch: int) -> float:
        return {1: 0.5, 2: 0.4, 3: 0.3, 4: 0.2}[epoch]

    def stop(progress: Progress) -> None:
        if progress.done == stop_at:
            raise StoppedError

    whole = fit(config, validate=validate)
    with pytest.raises(StoppedError):
        fit(config, report=stop, validate=validate, checkpoint=checkpoint)
    resumed = fit(config, validate=validate, checkpoint=checkpoint, resume=True)
    assert same(whole[0], resumed[0])
    assert whole[1] == resumed[1]


def test_a_checkpoint_of_other_settings_or_poses_is_refused(tmp_path: Path) -> None:
    checkpoint = tmp_path / "c"
    fit(checkpoint=checkpoint)
    with pytest.raises(ModelFileError, match="the same settings"):
        fit(replace(CONFIG, K=3, seed=1), checkpoint=checkpoint, resume=True)
    with pytest.raises(ModelFileError, match="the same use of validation"):
        fit(validate=lambda weights, epoch: 0.0, checkpoint=checkpoint, resume=True)
    with pytest.raises(ModelFileError, match="the same poses"):
        fit(digest="x", checkpoint=checkpoint, resume=True)
    with pytest.raises(ModelFileError, match="cannot be read"):
        fit(checkpoint=tmp_path / "none", resume=True)


@pytest.mark.parametrize("kept", [0, 4, -100])
def test_a_damaged_checkpoint_is_refused_with_the_way_to_start_over(
    tmp_path: Path, kept: int
) -> None:
    checkpoint = tmp_path / "c"
    fit(checkpoint=checkpoint)
    checkpoint.write_bytes(checkpoint.read_bytes()[:kept])
    with pytest.raises(ModelFileError, match="expected the checkpoint of a training") as error:
        fit(checkpoint=checkpoint, resume=True)
    assert (
        error.value.hint == "delete this file to start over if it is damaged, or name another one"
    )


def test_a_model_is_not_a_checkpoint(tmp_path: Path) -> None:
    modelfile.write_tensors({"a": np.zeros(1, np.float32)}, {"kind": "model"}, tmp_path / "c")
    with pytest.raises(ModelFileError, match="expected the checkpoint of a training") as error:
        fit(checkpoint=tmp_path / "c", resume=True)
    assert error.value.hint == "name another file as the checkpoint"


def rated_by(digest: str, checkpoint: TrainingCheckpoint, precision: Precision = "auto") -> None:
    """A training that is rated by the clips of this digest."""
    train(
        gaussian(),
        CONFIG,
        report=silent,
        validate=lambda weights, epoch: float(epoch),
        rated_by=digest,
        checkpoint=checkpoint,
        compute=Compute(precision=precision),
    )


def test_a_checkpoint_of_other_validation_clips_or_of_another_precision_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "c"
    rated_by("these", TrainingCheckpoint(path))
    again = TrainingCheckpoint(path, resume=True)
    rated_by("these", again)
    rated_by("these", again, "float32")  # what auto is at this width
    with pytest.raises(ModelFileError, match="the same validation clips, got another"):
        rated_by("others", again)
    with pytest.raises(ModelFileError, match="precision bfloat16, got float32") as error:
        rated_by("these", again, "bfloat16")
    assert (
        error.value.hint
        == "resume with Compute(precision='float32'), or delete this file to start over"
    )


@pytest.mark.parametrize("max_steps", [None, 14])  # whole epochs, and a part of the last
@pytest.mark.parametrize("stop_at", [1, 2, 3, 4])
def test_a_training_stopped_while_it_is_validated_resumes_to_the_same_bytes(
    tmp_path: Path, stop_at: int, max_steps: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepvad.model.training.CHECKPOINT_S", -1.0)  # a checkpoint per step
    checkpoint, config = tmp_path / "c", replace(CONFIG, max_steps=max_steps)
    asked: list[int] = []
    steps: list[int] = []

    def validate(weights: object, epoch: int) -> float:
        asked.append(epoch)
        return float(epoch)

    def stop(weights: object, epoch: int) -> float:
        if epoch == stop_at:
            raise StoppedError
        return float(epoch)

    whole = fit(config, validate=validate)
    asked.clear()
    with pytest.raises(StoppedError):
        fit(config, validate=stop, checkpoint=checkpoint)

    def heard(progress: Progress) -> None:
        steps.append(progress.done)

    resumed = fit(config, report=heard, validate=validate, checkpoint=checkpoint, resume=True)
    assert asked == list(range(stop_at, 5))
    assert same(whole[0], resumed[0])
    assert whole[1] == resumed[1] == 4
    assert steps == list(range(4 * stop_at + 1, (max_steps or 16) + 1))


@pytest.mark.parametrize("seconds", [300.0, -1.0])  # a checkpoint per epoch, and per step
@pytest.mark.parametrize("stop_at", [5, 8, 9, 16])
def test_a_training_without_validation_resumes_to_the_same_bytes(
    tmp_path: Path, stop_at: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepvad.model.training.CHECKPOINT_S", seconds)
    checkpoint = tmp_path / "c"
    config = replace(CONFIG, block_jitter=0.05)
    steps: list[int] = []

    def stop(progress: Progress) -> None:
        if progress.done == stop_at:
            raise StoppedError

    whole = fit(config)
    with pytest.raises(StoppedError):
        fit(config, report=stop, checkpoint=checkpoint)
    resumed = fit(
        config,
        report=lambda progress: steps.append(progress.done),
        checkpoint=checkpoint,
        resume=True,
    )
    assert same(whole[0], resumed[0])
    assert whole[1] == resumed[1]
    per_epoch = gaussian().steps_per_epoch(config)
    kept = stop_at - 1 if seconds < 0 else (stop_at - 1) // per_epoch * per_epoch
    assert steps == list(range(kept + 1, 17))


def test_a_finished_training_resumes_to_what_it_was(tmp_path: Path) -> None:
    checkpoint = tmp_path / "c"
    whole = fit(checkpoint=checkpoint)
    again = fit(checkpoint=checkpoint, resume=True)
    assert same(whole[0], again[0])
    assert whole[1] == again[1] == 4


def test_the_best_weights_survive_a_break(tmp_path: Path) -> None:
    checkpoint = tmp_path / "c"
    qualities = {1: 0.2, 2: 0.9, 3: 0.3, 4: 0.5}

    def validate(weights: object, epoch: int) -> float:
        return qualities[epoch]

    def stop(progress: Progress) -> None:
        if progress.done == 13:  # in the last epoch
            raise StoppedError

    whole, _ = fit(validate=validate)
    with pytest.raises(StoppedError):
        fit(report=stop, validate=validate, checkpoint=checkpoint)
    resumed, _ = fit(validate=validate, checkpoint=checkpoint, resume=True)
    assert same(whole, resumed)

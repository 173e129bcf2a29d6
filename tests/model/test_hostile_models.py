"""Model files and checkpoints that were damaged or made up: a clear error or a model that works."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import ModelFileError, StepvadError, silent
from stepvad.model.modelfile import FORMAT, read_tensors, write_tensors
from stepvad.model.training import TrainingCheckpoint, TrainingSet, train
from stepvad.poses import Clip, Track
from stepvad.skeletons import of_size

V = 3
CONFIG = Config(T=2, K=4, width=8, blocks=2, sigma_width=4, L=3, max_steps=2)
Tensors = dict[str, NDArray[Any]]


@pytest.fixture(scope="module")
def clip() -> Clip:
    rng = np.random.default_rng(0)
    walk = 100 + rng.normal(size=(60, V, 2)).cumsum(axis=0).astype(np.float32)
    track = Track(0, np.arange(60), walk, np.full((60, V), 0.9, np.float32))
    return Clip("walk", None, 60, (track,), of_size(V))


@pytest.fixture(scope="module")
def model(clip: Clip, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    Detector.fit([clip], CONFIG).save(path)
    return path


def rewritten(
    model: Path, target: Path, spoil: Callable[[Tensors, dict[str, Any]], object]
) -> Path:
    """The model with its tensors and settings changed."""
    tensors, meta = read_tensors(model)
    tensors = {name: value.copy() for name, value in tensors.items()}
    spoil(tensors, meta)
    write_tensors(tensors, meta, target)
    return target


def test_bytes_flipped_anywhere_give_finite_scores_or_a_clear_error(
    model: Path, clip: Clip, tmp_path: Path
) -> None:
    whole, target = model.read_bytes(), tmp_path / "flipped"
    anywhere = st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255))

    @settings(max_examples=200)
    @given(st.lists(anywhere, min_size=1, max_size=5))
    def check(flips: list[tuple[int, int]]) -> None:
        spoilt = bytearray(whole)
        for at, byte in flips:
            spoilt[at] = byte
        target.write_bytes(spoilt)
        with contextlib.suppress(StepvadError):  # other joint names no longer fit the clip
            assert np.isfinite(Detector.load(target).score(clip).A).all()

    check()


def test_an_exponent_flipped_in_any_tensor_gives_finite_scores_or_a_clear_error(
    model: Path, clip: Clip, tmp_path: Path
) -> None:
    whole, target = model.read_bytes(), tmp_path / "flipped"
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    ends = [8 + length + header[name]["data_offsets"][1] for name in header if name[0] != "_"]
    assert max(ends) == len(whole)
    for end in ends:
        for byte in (0x00, 0x7E):  # the last value becomes tiny or huge
            target.write_bytes(whole[: end - 1] + bytes([byte]) + whole[end:])
            with contextlib.suppress(ModelFileError):
                assert np.isfinite(Detector.load(target).score(clip).A).all()


@pytest.mark.parametrize(
    "setting",
    [
        {"sigma_low": 10**400, "sigma_high": 10**401},
        {"sigma_high": 10**400},
        {"learning_rate": 10**400},
        {"spread_floor": 10**400},
        {"width": 10**30},
        {"T": 10**30},
        {"L": 10**30},
        {"blocks": 10**3},
        {"seed": 10**30},
    ],
)
def test_settings_of_absurd_size_are_refused(
    model: Path, tmp_path: Path, setting: dict[str, Any]
) -> None:
    path = rewritten(model, tmp_path / "m", lambda _, meta: meta["config"].update(setting))
    with pytest.raises(ModelFileError) as error:
        Detector.load(path)
    assert error.value.hint


@pytest.mark.parametrize("number", [1.0, "1", None, FORMAT + 1, 0])
def test_only_known_formats_are_read(model: Path, tmp_path: Path, number: object) -> None:
    path = rewritten(model, tmp_path / "m", lambda _, meta: meta.update(format=number))
    with pytest.raises(ModelFileError, match=r"m: expected format 1, got "):
        Detector.load(path)


@pytest.mark.parametrize(
    "change",
    [{"clips": "many"}, {"library": [1]}, {"windows": 0.5}, {"epochs": None}, {"counts": [1]}],
)
def test_an_origin_of_other_types_is_refused(
    model: Path, tmp_path: Path, change: dict[str, object]
) -> None:
    path = rewritten(model, tmp_path / "m", lambda _, meta: meta["origin"].update(change))
    with pytest.raises(ModelFileError):
        Detector.load(path)


def test_a_model_can_be_saved_nowhere_but_in_a_directory(model: Path, tmp_path: Path) -> None:
    detector = Detector.load(model)
    file = tmp_path / "file"
    file.touch()
    for place in (file / "inside", tmp_path / ("x" * 300), tmp_path / "none" / "m", tmp_path, "."):
        with pytest.raises(ModelFileError, match="expected a place that can be written") as error:
            detector.save(place)
        assert error.value.hint
    assert sorted(tmp_path.iterdir()) == [file]


def test_a_model_is_no_checkpoint_and_a_checkpoint_no_model(
    model: Path, clip: Clip, tmp_path: Path
) -> None:
    with pytest.raises(
        ModelFileError, match="expected the checkpoint of a training, got another file"
    ):
        Detector.fit([clip], CONFIG, checkpoint=model, resume=True)
    checkpoint = tmp_path / "checkpoint"
    Detector.fit([clip], CONFIG, checkpoint=checkpoint)
    with pytest.raises(ModelFileError):
        Detector.load(checkpoint)


def points() -> TrainingSet:
    pi_x = np.random.default_rng(0).standard_normal((64, 4), dtype=np.float32)
    return TrainingSet(64, lambda rows: (pi_x[rows], np.ones(len(rows), np.float32)), "points")


SPOILT: dict[str, Callable[[Tensors, dict[str, Any]], object]] = {
    "no generator": lambda tensors, _: tensors.pop("generator"),
    "short generator": lambda tensors, _: tensors.update(generator=tensors["generator"][:9]),
    "no weight": lambda tensors, _: tensors.pop("f.head.bias"),
    "short weight": lambda tensors, _: tensors.update({"ema.head.bias": np.zeros(2, np.float32)}),
    "no epoch": lambda _, meta: meta.pop("epoch"),
    "epoch as text": lambda _, meta: meta.update(epoch="1"),
    "best as text": lambda _, meta: meta.update(best="1"),
}


@pytest.mark.parametrize("fault", SPOILT)
def test_a_checkpoint_that_is_not_whole_is_refused(tmp_path: Path, fault: str) -> None:
    checkpoint = tmp_path / "checkpoint"
    config = Config(**(asdict(CONFIG) | {"max_steps": None, "epochs": 2}))
    train(points(), config, report=silent, checkpoint=TrainingCheckpoint(checkpoint))
    rewritten(checkpoint, checkpoint, SPOILT[fault])
    with pytest.raises(ModelFileError) as error:
        train(
            points(), config, report=silent, checkpoint=TrainingCheckpoint(checkpoint, resume=True)
        )
    assert error.value.hint


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    config = Config(**(asdict(CONFIG) | {"max_steps": None, "epochs": 2}))
    train(points(), config, report=silent, checkpoint=TrainingCheckpoint(checkpoint))
    again = TrainingCheckpoint(checkpoint, resume=True)
    rewritten(checkpoint, checkpoint, lambda _, meta: meta.update(version=2))
    with pytest.raises(ModelFileError, match="checkpoint: expected version 1, got 2"):
        train(points(), config, report=silent, checkpoint=again)

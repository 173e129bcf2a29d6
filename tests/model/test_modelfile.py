from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import save_file

from stepvad import Config, Detector, __version__
from stepvad.errors import ModelFileError
from stepvad.model.modelfile import (
    FORMAT,
    KEY,
    Model,
    read,
    read_tensors,
    sha256,
    space_tensors,
    write,
    write_tensors,
)
from stepvad.poses import Clip


@pytest.fixture(scope="module")
def detector(walkers: list[Clip]) -> Detector:
    config = Config(T=3, K=5, width=8, sigma_width=4, blocks=2, L=3, max_steps=2, patience=9)
    return Detector.fit(walkers[:1], config)


@pytest.fixture
def file(detector: Detector, tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    detector.save(path)
    return path


def equal(a: Model, b: Model) -> bool:
    arrays: list[tuple[NDArray[Any], NDArray[Any]]] = [(a.E_mean, b.E_mean), (a.E_var, b.E_var)]
    spaces = space_tensors(a.space), space_tensors(b.space)
    arrays += [(spaces[0][name], spaces[1][name]) for name in {**spaces[0], **spaces[1]}]
    arrays += [(a.weights[name], b.weights[name]) for name in (*a.weights, *b.weights)]
    return (a.config, a.skeleton, a.origin) == (b.config, b.skeleton, b.origin) and all(
        x.dtype == y.dtype and np.array_equal(x, y) for x, y in arrays
    )


def test_a_model_comes_back_as_it_was(detector: Detector, file: Path) -> None:
    assert equal(read(file), detector.model)
    assert not list(file.parent.glob("*.part"))


def test_the_same_model_gives_the_same_bytes(detector: Detector, tmp_path: Path) -> None:
    for name in "ab":
        write(detector.model, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sha256(tmp_path / "a") == sha256(tmp_path / "b")


def test_the_file_tells_settings_skeleton_and_origin(detector: Detector, file: Path) -> None:
    meta: Any = read_tensors(file)[1]
    assert meta["format"] == FORMAT == 1
    assert meta["config"] == detector.config.facts()
    assert meta["skeleton"]["joints"][1] == "neck"
    assert meta["origin"]["library"] == __version__
    assert len(meta["origin"]["data_sha256"]) == 64
    assert meta["origin"]["counts"]["poses"] > 0


def test_a_cut_file_is_refused_wherever_it_is_cut(file: Path) -> None:
    whole = file.read_bytes()
    for length in {*range(40), *range(40, len(whole), 997), len(whole) - 1}:
        file.write_bytes(whole[:length])
        with pytest.raises(ModelFileError, match=r"model\.safetensors") as error:
            Detector.load(file)
        assert error.value.hint


def test_a_pickle_with_another_name_is_refused_and_never_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
            return (Path.touch, (str(tmp_path / "sprung"),))

    path = tmp_path / "model.safetensors"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ModelFileError, match=r"expected a \.safetensors file"):
        Detector.load(path)
    assert not (tmp_path / "sprung").exists()


def test_a_foreign_safetensors_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "foreign.safetensors"
    for metadata in (None, {"format": "pt"}, {KEY: "[]"}, {KEY: "{"}, {KEY: '{"format": "1"}'}):
        save_file({"w": np.zeros(3, np.float32)}, path, metadata=metadata)
        with pytest.raises(ModelFileError) as error:
            Detector.load(path)
        assert "Traceback" not in str(error.value)


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.safetensors", tmp_path):
        with pytest.raises(ModelFileError, match="cannot be read"):
            Detector.load(path)
    with pytest.raises(ModelFileError, match="expected a place that can be written"):
        write_tensors({}, {}, tmp_path / "no" / "such" / "place")


def test_another_format_is_refused(file: Path) -> None:
    tensors, meta = read_tensors(file)
    write_tensors(tensors, meta | {"format": FORMAT + 1}, file)
    with pytest.raises(ModelFileError, match="expected format 1, got 2") as error:
        read(file)
    assert "fit it again" in error.value.hint


BROKEN: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], object], str]] = {
    "no mean": (lambda t, m: t.pop("mu"), "'mu' is missing"),
    "short mean": (lambda t, m: t.update(mu=t["mu"][1:]), "tensor mu must be float32 of shape"),
    "wide mean": (lambda t, m: t.update(mu=t["mu"].astype(np.float64)), "must be float32"),
    "NaN weight": (
        lambda t, m: t.update({"network.head.bias": np.array([np.nan], np.float32)}),
        "tensor network.head.bias must be finite",
    ),
    "eigenvalue 0": (lambda t, m: t["Lambda_K"].fill(0), "tensor Lambda_K must be positive"),
    "variance 0": (lambda t, m: t["E_var"].fill(0), "tensor E_var must be positive"),
    "no setting": (lambda t, m: m["config"].pop("K"), "expected a complete"),
    "unknown setting": (lambda t, m: m["config"].update(wings=2), "wings"),
    "setting of another type": (lambda t, m: m["config"].update(K="5"), "K: expected int, got '5'"),
    "truth as number": (lambda t, m: m["config"].update(T=True), "T: expected int, got True"),
    "impossible setting": (lambda t, m: m["config"].update(T=0), "T: expected at least 1"),
    "no joints": (lambda t, m: m["skeleton"].update(joints=[]), "at least one joint"),
    "bones as words": (lambda t, m: m["skeleton"].update(bones=["a"]), "expected a complete"),
    "no origin": (lambda t, m: m.pop("origin"), "'origin' is missing"),
    "settings as list": (lambda t, m: m.update(config=[]), "expected a complete"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_model_that_is_not_whole_is_refused(file: Path, fault: str) -> None:
    tensors, meta = read_tensors(file)
    tensors = {name: value.copy() for name, value in tensors.items()}
    spoil, message = BROKEN[fault]
    spoil(tensors, meta)
    write_tensors(tensors, meta, file)
    with pytest.raises(ModelFileError) as error:
        read(file)
    assert message in error.value.problem
    assert str(file) in error.value.problem


def test_every_setting_survives_json() -> None:
    odd = replace(
        Config(), T=5, patience=3, max_steps=9, aggregation=2, sigma_low=0.05, confidence=False
    )
    assert Config.of_facts(json.loads(json.dumps(odd.facts()))) == odd


def test_flipped_bytes_give_a_model_or_a_clear_error(file: Path) -> None:
    whole = file.read_bytes()
    header = int.from_bytes(whole[:8], "little") + 8

    @settings(max_examples=150)
    @given(st.lists(st.tuples(st.integers(0, header - 1), st.integers(0, 255)), min_size=1))
    def check(flips: list[tuple[int, int]]) -> None:
        spoilt = bytearray(whole)
        for at, byte in flips:
            spoilt[at] = byte
        file.write_bytes(spoilt)
        with contextlib.suppress(ModelFileError):
            assert isinstance(read(file), Model)

    check()


def test_a_file_that_cannot_be_read_keeps_the_words_of_an_error_without_a_number(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> bytes:
        raise OSError("the drive is asleep")

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(ModelFileError, match="cannot be read: the drive is asleep"):
        Detector.load(file)

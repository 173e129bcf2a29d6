"""Model files: read back as written, refused when hostile, and fetched from a hub."""

from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import save_file

from stepvad import __version__
from stepvad.config import Checkpoint, Config, Reference
from stepvad.detector import Detector
from stepvad.errors import ModelFileError, StepvadError, silent
from stepvad.model.modelfile import (
    FORMAT,
    KEY,
    read,
    read_with_digest,
    sha256,
    space_tensors,
    write_tensors,
)
from stepvad.model.scoring import View
from stepvad.model.training import TrainingSet, train
from stepvad.poses import Clip, Track
from stepvad.skeletons import of_size


@pytest.fixture(scope="module")
def detector(walkers: list[Clip]) -> Detector:
    config = Config(T=3, K=5, width=8, sigma_width=4, blocks=2, L=3, max_steps=2, patience=9)
    return Detector.fit(walkers[:1], config)


@pytest.fixture
def file(detector: Detector, tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    detector.save(path)
    return path


def equal(one: View, other: View) -> bool:
    a, b = one.model.energy, other.model.energy
    arrays: list[tuple[NDArray[Any], NDArray[Any]]] = [(a.E_mean, b.E_mean), (a.E_var, b.E_var)]
    spaces = space_tensors(one.model.space), space_tensors(other.model.space)
    arrays += [(spaces[0][name], spaces[1][name]) for name in {**spaces[0], **spaces[1]}]
    arrays += [(a.weights[name], b.weights[name]) for name in (*a.weights, *b.weights)]
    same = one.config == other.config and one.model.noise == other.model.noise
    return same and all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in arrays)


def test_a_model_comes_back_as_it_was(detector: Detector, file: Path) -> None:
    views, skeleton, origin, digest = read(file)
    assert (skeleton, origin) == (detector.skeleton, detector.origin)
    assert digest == sha256(file)
    assert [equal(one, own) for one, own in zip(views, detector.views, strict=True)] == [True]
    assert not list(file.parent.glob("*.part"))


def test_the_same_model_gives_the_same_bytes(detector: Detector, tmp_path: Path) -> None:
    for name in "ab":
        detector.save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sha256(tmp_path / "a") == sha256(tmp_path / "b")


def test_the_file_tells_settings_skeleton_and_origin(detector: Detector, file: Path) -> None:
    meta: Any = read_with_digest(file)[1]
    assert meta["format"] == FORMAT == 3
    assert meta["views"] == [asdict(detector.config)]
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
    tensors, meta, _ = read_with_digest(file)
    write_tensors(tensors, meta | {"format": FORMAT + 1}, file)
    with pytest.raises(ModelFileError, match="expected format 3, got 4") as error:
        read(file)
    assert "fit it again" in error.value.hint


BROKEN: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], object], str]] = {
    "no mean": (lambda t, m: t.pop("view0.mu"), "'view0.mu' is missing"),
    "short mean": (
        lambda t, m: t.update({"view0.mu": t["view0.mu"][1:]}),
        "tensor view0.mu must be float32 of shape",
    ),
    "wide mean": (
        lambda t, m: t.update({"view0.mu": t["view0.mu"].astype(np.float64)}),
        "must be float32",
    ),
    "NaN weight": (
        lambda t, m: t.update({"view0.network.head.bias": np.array([np.nan], np.float32)}),
        "tensor view0.network.head.bias must be finite",
    ),
    "eigenvalue 0": (
        lambda t, m: t["view0.Lambda_K"].fill(0),
        "tensor view0.Lambda_K must be positive",
    ),
    "variance 0": (lambda t, m: t["view0.E_var"].fill(0), "tensor view0.E_var must be positive"),
    "no setting": (lambda t, m: m["views"][0].pop("K"), "expected a complete"),
    "unknown setting": (lambda t, m: m["views"][0].update(wings=2), "wings"),
    "setting of another type": (
        lambda t, m: m["views"][0].update(K="5"),
        "K: expected int, got '5'",
    ),
    "truth as number": (lambda t, m: m["views"][0].update(T=True), "T: expected int, got True"),
    "impossible setting": (lambda t, m: m["views"][0].update(T=0), "T: expected at least 1"),
    "no joints": (lambda t, m: m["skeleton"].update(joints=[]), "at least one joint"),
    "bones as words": (lambda t, m: m["skeleton"].update(bones=["a"]), "expected a complete"),
    "no origin": (lambda t, m: m.pop("origin"), "'origin' is missing"),
    "settings as list": (lambda t, m: m.update(views=[]), "expected a complete"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_model_that_is_not_whole_is_refused(file: Path, fault: str) -> None:
    tensors, meta, _ = read_with_digest(file)
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
    odd = replace(odd, joints="middle", reference=Reference(projection="raw", smooth=0.5))
    assert Config.from_facts(json.loads(json.dumps(asdict(odd)))) == odd


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
            assert isinstance(read(file)[0][0], View)

    check()


def test_a_file_that_cannot_be_read_keeps_the_words_of_an_error_without_a_number(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> bytes:
        raise OSError("the drive is asleep")

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(ModelFileError, match="cannot be read: the drive is asleep"):
        Detector.load(file)


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
    tensors, meta, _ = read_with_digest(model)
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
        {"reference": asdict(Reference()) | {"spread_floor": 10**400}},
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
    path = rewritten(model, tmp_path / "m", lambda _, meta: meta["views"][0].update(setting))
    with pytest.raises(ModelFileError) as error:
        Detector.load(path)
    assert error.value.hint


@pytest.mark.parametrize("number", [1.0, "1", None, FORMAT + 1, 0])
def test_only_known_formats_are_read(model: Path, tmp_path: Path, number: object) -> None:
    path = rewritten(model, tmp_path / "m", lambda _, meta: meta.update(format=number))
    with pytest.raises(ModelFileError, match=r"m: expected format 3, got "):
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
        Detector.fit([clip], CONFIG, checkpoint=Checkpoint(model, resume=True))
    checkpoint = tmp_path / "checkpoint"
    Detector.fit([clip], CONFIG, checkpoint=Checkpoint(checkpoint))
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
    config = replace(CONFIG, max_steps=None, epochs=2)
    train(points(), config, report=silent, checkpoint=Checkpoint(checkpoint))
    rewritten(checkpoint, checkpoint, SPOILT[fault])
    with pytest.raises(ModelFileError) as error:
        train(points(), config, report=silent, checkpoint=Checkpoint(checkpoint, resume=True))
    assert error.value.hint


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    config = replace(CONFIG, max_steps=None, epochs=2)
    train(points(), config, report=silent, checkpoint=Checkpoint(checkpoint))
    again = Checkpoint(checkpoint, resume=True)
    rewritten(checkpoint, checkpoint, lambda _, meta: meta.update(version=2))
    with pytest.raises(ModelFileError, match="checkpoint: expected version 1, got 2"):
        train(points(), config, report=silent, checkpoint=again)

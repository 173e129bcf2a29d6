"""An exported file scores raw windows as the library does, without the library."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from stepvad.config import Reference
from stepvad.detector import Detector
from stepvad.errors import StepvadError
from stepvad.formats import write_clip
from stepvad.model import export as exporting
from stepvad.model.engines import usable
from stepvad.model.export import probes
from stepvad.poses import Clip, Track
from stepvad.skeletons import COCO17, STEP18, Skeleton
from stepvad.windows.body import standardise
from stepvad.windows.views import Windows
from tests.pages import ROOT
from tests.tracks import with_config

Trained = Callable[..., Detector]
EXAMPLE = ROOT / "examples" / "score_onnx.py"


def scores_of_file(
    path: Path, x: NDArray[np.float32], c: NDArray[np.float32]
) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    given = {"x": x, "c": c}
    names = [value.name for value in session.get_inputs()]
    scores: NDArray[np.float32] = session.run(["A"], {name: given[name] for name in names})[0]
    return scores


def score_raw(
    detector: Detector, x: NDArray[np.float32], c: NDArray[np.float32]
) -> NDArray[np.float32]:
    standardised, flat = standardise(x, detector.config)
    nobody = np.zeros(len(x), dtype=np.int64)
    return detector.score_windows(Windows(standardised, c, nobody, nobody, flat)).A


@pytest.mark.parametrize("kind", ["step", "vanilla", "raw", "one block"])
def test_an_exported_file_scores_pixels_as_the_detector_does(
    kind: str, trained: Trained, tmp_path: Path
) -> None:
    detector, path = trained(kind), tmp_path / "model.onnx"
    assert detector.export(path).deviation < 1e-4
    x, c = probes(detector.config, detector.skeleton.V)
    expected = score_raw(detector, x, c)
    np.testing.assert_allclose(scores_of_file(path, x, c), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"aggregation": "sum"},
        {"aggregation": "top2"},
        {"aggregation": "top3"},
        {"aggregation": 4},
        {"confidence": False},
        {"reference": Reference(spread_floor=0.5)},
    ],
    ids=str,
)
def test_the_file_follows_the_settings(
    settings: dict[str, object], trained: Trained, tmp_path: Path
) -> None:
    plain, path = trained(), tmp_path / "model.onnx"
    detector = with_config(plain, replace(plain.config, **settings))  # type: ignore[arg-type]
    detector.export(path)
    x = probes(plain.config, plain.skeleton.V)[0]
    c = np.linspace(0.1, 1, len(x), dtype=np.float32)
    got = scores_of_file(path, x, c)
    np.testing.assert_allclose(got, score_raw(detector, x, c), rtol=1e-4, atol=1e-4)
    assert np.abs(got - score_raw(plain, x, c)).max() > 1e-2


def test_windows_without_spread_have_finite_scores_and_there_may_be_none(
    trained: Trained, tmp_path: Path
) -> None:
    detector, path = trained(), tmp_path / "model.onnx"
    detector.export(path)
    x = np.full((3, 2, 18, 12), 1234.5, dtype=np.float32)
    x[1, 0] += np.arange(12)  # moves in x alone
    x[2] *= 1 + np.float32(1e-7)
    got = scores_of_file(path, x, np.ones(3, np.float32))
    assert np.isfinite(got).all()
    np.testing.assert_allclose(got, score_raw(detector, x, np.ones(3, np.float32)), rtol=1e-4)
    nothing = scores_of_file(path, x[:0], np.ones(0, np.float32))
    assert nothing.shape == (0,)


@pytest.mark.skipif(not usable("openvino"), reason="needs the openvino extra")
@pytest.mark.parametrize("kind", ["step", "vanilla"])
def test_openvino_reads_the_file_and_scores_the_same(
    kind: str, trained: Trained, tmp_path: Path
) -> None:
    import openvino

    detector, path = trained(kind), tmp_path / "model.onnx"
    detector.export(path)
    x, c = probes(detector.config, detector.skeleton.V)
    compiled = openvino.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    np.testing.assert_allclose(compiled([x, c])[0], score_raw(detector, x, c), rtol=1e-4, atol=1e-4)


def test_the_same_model_gives_the_same_bytes(trained: Trained, tmp_path: Path) -> None:
    for name in ("a.onnx", "b.onnx"):
        trained().export(tmp_path / name)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    onnx.checker.check_model(onnx.load(tmp_path / "a.onnx"), full_check=True)


def test_a_file_that_deviates_is_not_written(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "ROUNDING", 1.0)  # every window counts as still
    with pytest.raises(StepvadError, match="export: expected a deviation below"):
        trained().export(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_other_suffixes_are_refused(trained: Trained, tmp_path: Path) -> None:
    with pytest.raises(StepvadError, match=r"expected a name that ends in \.onnx, got"):
        trained().export(tmp_path / "model.pt")


def run_example(model: Path, poses: Path) -> list[list[str]]:
    done = subprocess.run(
        [sys.executable, EXAMPLE, model, poses],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.split(",") for line in done.stdout.splitlines()]


@pytest.mark.parametrize("skeleton", [STEP18, COCO17], ids=lambda skeleton: skeleton.name)
def test_the_example_scores_a_track_without_stepvad(
    skeleton: Skeleton, trained: Trained, tmp_path: Path
) -> None:
    detector = trained()
    rng = np.random.default_rng(0)
    keypoints = (rng.normal(size=(30, skeleton.V, 2)).cumsum(axis=0) * 5 + 500).astype(np.float32)
    confidence = rng.uniform(0.1, 1, (30, skeleton.V)).astype(np.float32)
    detector.export(tmp_path / "model.onnx")
    np.savez(tmp_path / "track.npz", keypoints=keypoints, confidence=confidence)
    rows = run_example(tmp_path / "model.onnx", tmp_path / "track.npz")
    clip = Clip("one", None, 30, (Track(0, np.arange(30), keypoints, confidence),), skeleton)
    expected = detector.score(clip)
    assert [int(frame) for frame, _ in rows] == expected.windows.frame.tolist()
    np.testing.assert_allclose([float(A) for _, A in rows], expected.A, rtol=1e-4, atol=1e-4)
    assert "stepvad" not in [
        line.split()[1] for line in EXAMPLE.read_text().splitlines() if "import " in line
    ]


def test_the_example_scores_the_file_of_an_extraction(trained: Trained, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    detector = trained()
    rng = np.random.default_rng(0)
    frames = [np.arange(30), np.array([*range(4, 20), *range(60, 80)]), np.arange(5)]
    tracks = tuple(
        Track(
            number,
            some,
            rng.normal(size=(len(some), 17, 2)).cumsum(axis=0) * 5 + 500,
            rng.uniform(0.1, 1, (len(some), 17)).astype(np.float32),
        )
        for number, some in enumerate(frames)
    )
    clip = Clip("lobby", 25.0, 90, tracks, COCO17)
    detector.export(tmp_path / "model.onnx")
    write_clip(clip, tmp_path / "lobby.parquet")
    rows = run_example(tmp_path / "model.onnx", tmp_path / "lobby.parquet")
    expected = detector.score(clip)
    assert {row[0] for row in rows} == {"lobby"}
    places = [(int(track), int(frame)) for _, track, frame, _ in rows]
    windows = expected.windows
    assert places == [*zip(windows.track_id.tolist(), windows.frame.tolist(), strict=True)]
    np.testing.assert_allclose([float(row[3]) for row in rows], expected.A, rtol=1e-4, atol=1e-4)


def test_a_detector_exports_itself(trained: Trained, tmp_path: Path) -> None:
    parity = trained().export(str(tmp_path / "a.onnx"))
    assert parity == trained().export(tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()

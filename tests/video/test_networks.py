"""What runs the pose networks: the rule of `auto`, and what a machine does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from stepvad.config import PoseDevice, PoseRuntime, Precision
from stepvad.errors import ConfigError, MissingExtraError
from stepvad.model.engines import (
    Graph,
    import_onnxruntime,
    import_openvino,
    onnxruntime_graph,
    openvino_by_shape,
)
from stepvad.video import networks as poses
from stepvad.video.networks import PROVIDERS, PoseEngine, choose_engine
from tests.video import graphs


@pytest.mark.parametrize("multiplies", [True, False])
def test_auto_takes_bfloat16_where_the_processor_multiplies_it(
    multiplies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openvino")
    monkeypatch.setattr(poses, "usable", lambda engine: multiplies)
    best = PoseEngine("openvino", "bfloat16") if multiplies else PoseEngine("onnxruntime")
    assert choose_engine() == best
    assert choose_engine("openvino") == PoseEngine("openvino", best.precision)
    assert choose_engine("openvino", "float32") == PoseEngine("openvino")
    assert choose_engine("auto", "float32") == PoseEngine("onnxruntime")
    assert choose_engine("onnxruntime") == PoseEngine("onnxruntime")


def test_an_engine_is_named_by_what_changes_its_poses() -> None:
    assert str(PoseEngine()) == "onnxruntime"
    assert str(PoseEngine("openvino", "bfloat16")) == "openvino-bfloat16"
    assert str(PoseEngine(device="cuda")) == "onnxruntime-cuda"


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_bfloat16_needs_openvino_and_a_processor(
    runtime: PoseRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openvino")
    monkeypatch.setattr(poses, "usable", lambda engine: runtime == "onnxruntime")
    with pytest.raises(ConfigError, match=f"supports bfloat16, got {runtime}"):
        choose_engine(runtime, "bfloat16")


def test_openvino_that_is_not_installed_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poses, "find_spec", lambda name: None)
    monkeypatch.setattr(poses, "usable", lambda engine: False)
    asked: list[tuple[PoseRuntime, Precision, PoseDevice]] = [
        ("openvino", "auto", "cpu"),
        ("auto", "bfloat16", "cpu"),
        ("auto", "auto", "openvino-gpu"),
    ]
    for runtime, precision, device in asked:
        with pytest.raises(MissingExtraError, match="needs the openvino extra"):
            choose_engine(runtime, precision, device)
    assert choose_engine() == PoseEngine("onnxruntime")


@pytest.mark.parametrize(
    ("device", "remedy"),
    [
        ("cuda", "install the package onnxruntime-gpu"),
        ("tensorrt", "TensorRT"),
        ("coreml", "macOS"),
        ("openvino-gpu", "the compute driver of an Intel GPU"),
    ],
)
@pytest.mark.parametrize("runtime", ["auto", "onnxruntime"])
def test_a_device_that_is_not_there(device: PoseDevice, remedy: str, runtime: PoseRuntime) -> None:
    pytest.importorskip("openvino")
    if _is_there(device):
        pytest.skip(f"{device} is there")
    said = rf"expected {device} to be available to \w+, got .*CPU.* only"
    with pytest.raises(ConfigError, match=said) as refused:
        choose_engine(runtime, "auto", device)
    assert remedy in refused.value.hint


def _is_there(device: PoseDevice) -> bool:
    has_gpu = any("GPU" in name for name in import_openvino().Core().available_devices)
    return has_gpu or PROVIDERS[device] in import_onnxruntime().get_available_providers()


def test_openvino_runs_on_its_own_devices() -> None:
    pytest.importorskip("openvino")
    with pytest.raises(ConfigError, match="expected cpu or openvino-gpu for openvino, got cuda"):
        choose_engine("openvino", "auto", "cuda")


def doubling() -> bytes:
    """A graph for inputs of any shape."""
    graph = Graph()
    twice = graph.node("Mul", "x", graph.constant(2.0))
    return graph.model({"x": ["N", "M"]}, {twice: ["N", "M"]})


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_provider_that_does_not_load_is_no_silent_processor() -> None:
    with pytest.raises(ConfigError, match="expected ONNX Runtime to load ROCMExecutionProvider"):
        onnxruntime_graph(doubling(), 1, "ROCMExecutionProvider")


def test_a_graph_for_every_shape() -> None:
    pytest.importorskip("openvino")
    graph = openvino_by_shape(doubling(), 1, bfloat16=False)
    for shape in ((1, 2), (3, 2), (1, 2)):
        values = np.ones(shape, np.float32)
        np.testing.assert_array_equal(graph([values])[0], 2 * values)


@pytest.mark.parametrize("any_shape", [False, True])
@pytest.mark.parametrize("library", ["onnxruntime", "openvino"])
def test_a_network_that_looks_at_no_picture_answers(
    library: Literal["onnxruntime", "openvino"], any_shape: bool, tmp_path: Path
) -> None:
    pytest.importorskip(library)
    joints = np.tile(np.array([0.5, 0.1, 0.8], np.float32), (17, 1))
    content = graphs.movenet(tmp_path / "m.onnx", joints).read_bytes()
    graph = PoseEngine(library).graph(content, 1, any_shape=any_shape)
    (answer,) = graph([np.zeros((1, 32, 32, 3), np.int32)])
    np.testing.assert_array_equal(answer, joints[None, None])

"""What runs the pose networks: a library, a precision and a device."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from stepvad.config import PoseDevice, PoseRuntime, Precision
from stepvad.errors import ConfigError, MissingExtraError
from stepvad.model.runtime import usable
from stepvad.model.runtime.engines import (
    RunGraph,
    onnxruntime_graph,
    openvino_by_shape,
    openvino_graph,
)
from stepvad.model.runtime.signal_stack import kept_signal_stack
from stepvad.model.runtime.telemetry import import_onnxruntime, import_openvino

PROVIDERS: dict[PoseDevice, str] = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "openvino-gpu": "OpenVINOExecutionProvider",
}
"""ONNX Runtime's name of each device."""
PACKAGES: dict[PoseDevice, str] = {
    "cuda": "the package onnxruntime-gpu in place of onnxruntime, and CUDA with cuDNN",
    "tensorrt": "the package onnxruntime-gpu in place of onnxruntime, and TensorRT",
    "coreml": "onnxruntime on macOS",
    "openvino-gpu": "the package openvino and the compute driver of an Intel GPU",
}


@dataclass(frozen=True, slots=True)
class PoseEngine:
    """A library, a precision and a device that are there."""

    library: Literal["onnxruntime", "openvino"] = "onnxruntime"
    precision: Literal["float32", "bfloat16"] = "float32"
    device: PoseDevice = "cpu"

    def __str__(self) -> str:
        """The library, and what differs from float32 on the processor."""
        parts: list[str] = [self.library]
        parts += ["bfloat16"] if self.precision == "bfloat16" else []
        parts += [self.device] if self.device != "cpu" else []
        return "-".join(parts)

    def graph(self, model: bytes, threads: int, *, any_shape: bool) -> RunGraph:
        """A graph, ready to run; `any_shape` if its batch or size is dynamic."""
        if self.library == "onnxruntime":
            options = {"device_type": "GPU"} if self.device == "openvino-gpu" else {}
            return onnxruntime_graph(model, threads, PROVIDERS[self.device], **options)
        compile_graph = openvino_by_shape if any_shape else openvino_graph
        device = "GPU" if self.device == "openvino-gpu" else "CPU"
        bfloat16 = self.precision == "bfloat16"
        try:
            return compile_graph(model, threads, bfloat16=bfloat16, device=device)
        except ModuleNotFoundError as error:
            raise MissingExtraError("OpenVINO", "openvino") from error


def choose_engine(
    runtime: PoseRuntime = "auto", precision: Precision = "auto", device: PoseDevice = "cpu"
) -> PoseEngine:
    """The engine for these settings; raises if this machine does not have it.

    `auto` is OpenVINO in bfloat16 on a processor that multiplies it, and ONNX Runtime in float32
    elsewhere, where both take about the same time.
    """
    library = _library(runtime, precision, device)
    if library == "openvino" and find_spec("openvino") is None:
        raise MissingExtraError("OpenVINO", "openvino")
    if device != "cpu":
        _check_device(library, device)
    return PoseEngine(library, _precision(library, precision, device), device)


def _library(
    runtime: PoseRuntime, precision: Precision, device: PoseDevice
) -> Literal["onnxruntime", "openvino"]:
    if runtime != "auto":
        return runtime
    if device == "openvino-gpu" or precision == "bfloat16":
        return "openvino"
    fast = device == "cpu" and precision == "auto" and usable("openvino-bfloat16")
    return "openvino" if fast else "onnxruntime"


def _precision(
    library: str, precision: Precision, device: PoseDevice
) -> Literal["float32", "bfloat16"]:
    multiplies = library == "openvino" and device == "cpu" and usable("openvino-bfloat16")
    if precision == "bfloat16" and not multiplies:
        raise ConfigError(
            "precision: expected OpenVINO on a processor that supports bfloat16, "
            f"got {library} on {device if device != 'cpu' else 'this processor'}",
            hint="use 'auto' or 'float32'",
        )
    return "bfloat16" if multiplies and precision != "float32" else "float32"


def _check_device(library: str, device: PoseDevice) -> None:
    """Raise if the library does not see the device."""
    if library == "openvino":
        if device != "openvino-gpu":
            raise ConfigError(
                f"device: expected cpu or openvino-gpu for openvino, got {device}",
                hint="use the engine onnxruntime or auto",
            )
        with kept_signal_stack():
            found = [str(name) for name in import_openvino().Core().available_devices]
        there = any(name.partition(".")[0] == "GPU" for name in found)
    else:
        found = list(import_onnxruntime().get_available_providers())
        there = PROVIDERS[device] in found
    if not there:
        raise ConfigError(
            f"device: expected {device} to be available to {library}, got {', '.join(found)} only",
            hint=f"install {PACKAGES[device]}, or use the device cpu",
        )

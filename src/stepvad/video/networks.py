"""Networks on their engines: a library, a precision and a device; images in, outputs by image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stepvad.config import PoseDevice, PoseRuntime, Precision
from stepvad.errors import ConfigError, MissingExtraError, ModelFileError, StepvadError
from stepvad.model.engines import (
    RunGraph,
    import_onnxruntime,
    import_openvino,
    kept_signal_stack,
    onnxruntime_graph,
    openvino_by_shape,
    openvino_graph,
    usable,
)
from stepvad.video.graphs import AnyArray, Port, read_graph, stored_graph
from stepvad.video.source import Image, opencv

NetworkKind = Literal["yolox", "rtmdet", "movenet", "simcc"]
"""Input and output format of a network: two kinds of person detector, two of pose network."""
CROPS = (8, 4, 2, 1)
"""Pictures in a call: more gain nothing, and an engine may compile a graph for every number."""

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

FILL = 114
"""Grey padding of a letterboxed image, as in the detectors' training."""
MARGIN = 1.25
"""Sides of a crop relative to those of the box."""


def open_network(
    path: Path,
    *,
    runtime: PoseRuntime | PoseEngine = "auto",
    threads: int = 1,
    adapt: bool = True,
) -> ImageNetwork:
    """Load a network from an ONNX file, on the given runtime.

    Each picture is computed by one thread; several pictures are dealt to so many `threads`.
    The graph is the one stored in the cache, unless `adapt` is False: then the file's own.
    """
    engine = runtime if isinstance(runtime, PoseEngine) else choose_engine(runtime)
    try:
        known = stored_graph(path) if adapt else read_graph(path, adapt=False)
        network = ImageNetwork(path, _not_loaded, known.input, known.outputs, known.any_size)
        free = (
            network.kind() == "simcc" and known.input.shape[0] == 0 and all(known.input.shape[1:])
        )
        any_shape = free or known.any_size
        graph = engine.graph(known.content, threads, any_shape=any_shape)
    except StepvadError:
        raise
    except Exception as error:  # protobuf and the runtimes raise types of their own
        reason = str(error).partition("\n")[0]
        raise ModelFileError(
            f"{path}: expected a network in ONNX, got: {reason}",
            hint="check the path, or fetch the file again",
        ) from error
    # several threads share the pictures one by one, which a processor minds no more than batches
    dealt = threads > 1 and engine.device == "cpu"
    pool = ThreadPoolExecutor(threads, "network") if dealt else None
    batches = () if not free else (1,) if dealt else CROPS
    return replace(network, graph=graph, batches=batches, pool=pool)


@dataclass(frozen=True, slots=True)
class ImageNetwork:
    """A graph with one input, a batch of images, ready to run."""

    path: Path
    graph: RunGraph
    input: Port
    outputs: tuple[Port, ...]
    any_size: bool = False
    """It takes pictures of any size in steps of 32."""
    batches: tuple[int, ...] = ()
    """Numbers of images in a call, largest first; empty: all at once if the graph allows it."""
    pool: ThreadPoolExecutor | None = None
    """Threads that calls are dealt to."""

    def __call__(self, stack: AnyArray) -> list[list[AnyArray]]:
        """Run the network and return the outputs per image, without the batch axis."""
        calls = [[images] for images in self._calls(stack)]
        many = self.pool.map if self.pool is not None and len(calls) > 1 else map
        return [
            [output[row] for output in outputs]
            for (images,), outputs in zip(calls, many(self.graph, calls), strict=True)
            for row in range(len(images))
        ]

    def _calls(self, stack: AnyArray) -> Iterator[AnyArray]:
        # calls of the sizes that the engine knows, the largest first
        start, free = 0, self.input.shape[0] == 0
        for number in self.batches or ((max(len(stack), 1),) if free else (1,)):
            while len(stack) - start >= number:
                yield stack[start : start + number]
                start += number

    def kind(self) -> NetworkKind:
        """The kind of network, inferred from its inputs and outputs."""
        # each kind is published with its own names or shapes of outputs
        names = [port.name for port in self.outputs]
        if names == ["simcc_x", "simcc_y"]:
            return "simcc"
        if set(names) == {"dets", "labels"}:
            return "rtmdet"
        if self.outputs[0].shape[1:] == (1, 17, 3):
            return "movenet"
        if len(names) == 1 and self.outputs[0].shape[2:] == (85,):
            return "yolox"
        raise ModelFileError(
            f"{self.path}: expected a detector (YOLOX, RTMDet) or a pose network (MoveNet, "
            f"SimCC), got the outputs {', '.join(names)}",
            hint="give one of these as an ONNX file, with its outputs named as published",
        )

    def expect(self, *kinds: NetworkKind, role: str) -> None:
        """Raise if the network is not one of these kinds."""
        if self.kind() not in kinds:
            raise ModelFileError(
                f"{self.path}: expected a {role} ({' or '.join(kinds)}), got {self.kind()}",
                hint="the detector finds boxes, the pose network places joints: swap them",
            )

    def size(self, otherwise: tuple[int, int]) -> tuple[int, int]:
        """Width and height of the input images; `otherwise` if they are dynamic in the graph."""
        # channels last (N, H, W, 3) or first (N, 3, H, W)
        shape = self.input.shape
        height, width = shape[1:3] if shape[-1] == 3 else shape[2:4]
        return (width, height) if width and height else otherwise


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
        """A graph that so many threads may run at once, each of them on one core.

        `any_shape`: its batch or size is dynamic.
        """
        if self.library == "onnxruntime":
            options = {"device_type": "GPU"} if self.device == "openvino-gpu" else {}
            return onnxruntime_graph(model, 1, PROVIDERS[self.device], **options)
        compile_graph = openvino_by_shape if any_shape else openvino_graph
        device = "GPU" if self.device == "openvino-gpu" else "CPU"
        bfloat16 = self.precision == "bfloat16"
        try:
            return compile_graph(model, threads, bfloat16=bfloat16, device=device, streams=threads)
        except ModuleNotFoundError as error:
            raise MissingExtraError("OpenVINO", "openvino") from error


def letterbox(image: Image, size: tuple[int, int]) -> tuple[Image, NDArray[np.float32]]:
    """Fit an image into the top left of `size`; return it with its scale in x and y.

    Divide a point of the result by the scale to get the point of the original image.
    """
    height, width = image.shape[:2]
    # the image at the top left, (H, W, 3), and grey for the rest
    fitted = _fitted(image, size)
    box = np.full((size[1], size[0], 3), FILL, np.uint8)
    box[: fitted[1], : fitted[0]] = _resize(image, fitted)
    return box, np.array([fitted[0] / width, fitted[1] / height], np.float32)


def letterbox_size(image: Image, most: tuple[int, int], step: int) -> tuple[int, int]:
    """The smallest size in steps that holds an image as large as it is in a letterbox of `most`."""
    width, height = _fitted(image, most)
    return -(-width // step) * step, -(-height // step) * step


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle in whole pixels that may extend beyond the image."""

    left: int
    top: int
    width: int
    height: int

    def to_picture(self, points: NDArray[np.float32]) -> NDArray[np.float32]:
        """Convert points `(..., 2)` from 0..1 of the rectangle to pixels of the image."""
        scale = np.array([self.width, self.height], np.float32)
        return np.asarray(points * scale + np.array([self.left, self.top], np.float32), np.float32)


def region_around(box: NDArray[np.float32], image: Image, size: tuple[int, int]) -> Region:
    """The rectangle of the shape of `size` around a box, 1.25 times as large.

    For a square `size` its side is 1.25 times the longer side of the box.
    """
    height, width = image.shape[:2]
    left, top, right, bottom = np.clip(box, 0, [width, height, width, height]).astype(float)
    # the smallest rectangle of this aspect that holds the box, made larger by the margin
    aspect = size[0] / size[1]
    tall = MARGIN * max(bottom - top, (right - left) / aspect, 1.0)
    wide = tall * aspect
    return Region(
        round((left + right - wide) / 2),
        round((top + bottom - tall) / 2),
        max(1, round(wide)),
        max(1, round(tall)),
    )


def crop(image: Image, region: Region, size: tuple[int, int]) -> Image:
    """Crop a region and resize it to `size`; black beyond the image's border."""
    # the part within the image, put on black where the region goes beyond it
    height, width = image.shape[:2]
    left, top = max(region.left, 0), max(region.top, 0)
    right = max(left, min(region.left + region.width, width))
    bottom = max(top, min(region.top + region.height, height))
    inside = image[top:bottom, left:right]
    if inside.shape[:2] != (region.height, region.width):
        whole = np.zeros((region.height, region.width, 3), np.uint8)
        y, x = top - region.top, left - region.left
        whole[y : y + bottom - top, x : x + right - left] = inside
        inside = whole
    return _resize(inside, size)


def _not_loaded(inputs: Sequence[Any]) -> list[Any]:
    raise RuntimeError(f"expected a loaded network for {len(inputs)} inputs")


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


def _fitted(image: Image, size: tuple[int, int]) -> tuple[int, int]:
    """Width and height of an image scaled to fit into `size`."""
    height, width = image.shape[:2]
    ratio = min(size[0] / width, size[1] / height)
    return max(1, round(width * ratio)), max(1, round(height * ratio))


def _resize(image: Image, size: tuple[int, int]) -> Image:
    """Resize bilinearly; large images with even sides are first halved by averaging 2x2 pixels.

    Averaging over other block sizes would be smoother still, but takes ten times as long.
    """
    cv2 = opencv("poses from video")
    height, width = image.shape[:2]
    while width >= 2 * size[0] and height >= 2 * size[1] and not (width % 2 or height % 2):
        width, height = width // 2, height // 2
        image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    return cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)

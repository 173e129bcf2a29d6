"""Inference engines, imported so that they report nothing to their makers.

By default ONNX Runtime makes a device id in the user's cache when it is imported, and sends usage
events to Microsoft; so do recent releases for Linux. OpenVINO makes a client id in `~/intel` when
it is imported, and sends an event to Google Analytics.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def import_onnxruntime() -> Any:
    """ONNX Runtime without telemetry, in this process and those that it starts.

    A value of ORT_DISABLE_TELEMETRY that is set already stays.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # noqa: TID251

    return onnxruntime


def import_openvino() -> Any:
    """OpenVINO without telemetry: its import does not find the package that sends."""
    name = "openvino_telemetry"
    before = sys.modules.get(name)
    sys.modules[name] = None  # type: ignore[assignment] # as if it were not installed
    try:
        import openvino  # noqa: TID251
    finally:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
    return openvino

"""Imports inference engines with their telemetry disabled.

By default ONNX Runtime creates a device id in the user's cache on import and sends usage events to
Microsoft; recent releases do so on Linux too. OpenVINO creates a client id in `~/intel` on import
and sends an event to Google Analytics.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def import_onnxruntime() -> Any:
    """Import ONNX Runtime without telemetry, in this process and its children.

    An existing value of ORT_DISABLE_TELEMETRY is kept.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # noqa: TID251

    return onnxruntime


def import_openvino() -> Any:
    """Import OpenVINO without telemetry, by hiding the package that sends it."""
    name = "openvino_telemetry"
    before = sys.modules.get(name)
    sys.modules[name] = None  # type: ignore[assignment] # as if not installed
    try:
        import openvino  # noqa: TID251
    finally:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
    return openvino

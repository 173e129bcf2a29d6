"""A calibration as a file beside its model, which anyone can read."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from stepvad.atomic import replacing
from stepvad.calibration import Calibration, Counted, Threshold
from stepvad.calibration.drift import Looks
from stepvad.calibration.feedback import Marked
from stepvad.errors import DataError
from stepvad.events import Rules

SCHEMA = 1
SUFFIX = ".calibration.json"


def beside(model: Path) -> Path:
    """Where the calibration of a model is."""
    return model.with_suffix(SUFFIX)


def write(calibration: Calibration, path: Path) -> None:
    """Write a calibration, whole or not at all."""
    facts = {
        "schema": SCHEMA,
        "model_sha256": calibration.model_sha256,
        "rules": asdict(calibration.rules),
        "threshold": asdict(calibration.threshold),
        "cameras": {name: asdict(own) for name, own in calibration.cameras.items()},
        "levels": next(iter(calibration.counted.values())).levels.tolist(),
        "blocks": {name: _blocks(counted) for name, counted in calibration.counted.items()},
        "marked": {name: asdict(alert) for name, alert in calibration.marked.items()},
        "looks": {name: _rows(looks) for name, looks in calibration.looks.items()},
        "looks_at": next((list(looks.names) for looks in calibration.looks.values()), []),
    }
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(facts, indent=1, ensure_ascii=False), encoding="utf-8")


def read(path: Path) -> Calibration:
    """Read a calibration."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if facts["schema"] != SCHEMA:
            raise DataError(
                f"{path}: expected a calibration of schema {SCHEMA}, got {facts['schema']!r}",
                hint="calibrate again, or install the version that wrote it",
            )
        levels = np.asarray(facts["levels"], dtype=np.float64)
        return Calibration(
            model_sha256=str(facts["model_sha256"]),
            rules=Rules(**facts["rules"]),
            threshold=_threshold(facts["threshold"]),
            cameras={name: _threshold(own) for name, own in facts["cameras"].items()},
            counted={name: _counted(levels, some) for name, some in facts["blocks"].items()},
            marked={name: Marked(**alert) for name, alert in facts.get("marked", {}).items()},
            looks={name: _looks(facts["looks_at"], rows) for name, rows in facts["looks"].items()},
        )
    except OSError as error:
        raise DataError(
            f"{path}: expected a calibration, got: {error.strerror or error}",
            hint="make one with: stepvad calibrate MODEL NORMAL_POSES",
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"{path}: expected a calibration, got something else ({error})",
            hint="make one with: stepvad calibrate MODEL NORMAL_POSES",
        ) from error


def _blocks(counted: Counted) -> list[list[Any]]:
    """Of each block its hours, and its events from the lowest level to the last that has some."""
    return [
        [float(hours), np.trim_zeros(events, "b").tolist()]
        for hours, events in zip(counted.hours, counted.events, strict=True)
    ]


def _counted(levels: np.ndarray[Any, np.dtype[np.float64]], blocks: list[list[Any]]) -> Counted:
    events = np.zeros((len(blocks), len(levels)), dtype=np.int64)
    for row, (_, some) in zip(events, blocks, strict=True):
        row[: len(some)] = some
    return Counted(levels, events, np.asarray([hours for hours, _ in blocks], dtype=np.float64))


def _rows(looks: Looks) -> list[list[float]]:
    return [[float(f"{value:.6g}") for value in row] for row in looks.values.tolist()]


def _looks(names: list[str], rows: list[list[float]]) -> Looks:
    return Looks(tuple(names), np.asarray(rows, dtype=np.float64).reshape(len(rows), len(names)))


def _threshold(facts: dict[str, Any]) -> Threshold:
    low, high = facts.pop("rate")
    return Threshold(**facts, rate=(float(low), float(high)))

"""Calibration files: readable JSON, stored next to the model."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepvad.calibration import Calibration, Counted, Threshold
from stepvad.calibration.drift import BlockStats
from stepvad.calibration.feedback import Marked
from stepvad.calibration.promise import HOW
from stepvad.errors import DataError, StepvadError
from stepvad.files import bounded
from stepvad.files.atomic import replacing
from stepvad.incidents.events import Rules

SCHEMA = 1
SUFFIX = ".calibration.json"
MAX_BYTES = 1 << 27
"""Largest file; a week of one camera takes about 3 MB."""
MAX_LEVELS = 10_000
MAX_CELLS = 20_000_000
"""Largest number of event counts: 100 levels of 16,000 hours."""
MAKE_ONE = "make one with: stepvad calibrate MODEL NORMAL_POSES"


def beside(model: Path) -> Path:
    """Path of a model's calibration file."""
    return model.with_suffix(SUFFIX)


def write(calibration: Calibration, path: Path) -> None:
    """Write a calibration atomically."""
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
        return _calibration(_facts(path))
    except StepvadError as error:
        raise DataError(f"{path}: {error.problem}", hint=error.hint or MAKE_ONE) from error
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise DataError(
            f"{path}: expected a calibration, got something else ({str(error)[:200]})",
            hint=MAKE_ONE,
        ) from error


def _facts(path: Path) -> dict[str, Any]:
    """Parse a file and check its schema and size."""
    try:
        facts = json.loads(bounded.read(path, most=MAX_BYTES))
    except OSError as error:
        raise DataError(f"expected a calibration, got: {error.strerror or error}") from error
    except RecursionError as error:
        raise DataError("expected a calibration, got lists in lists without end") from error
    if not isinstance(facts, dict):
        raise DataError(f"expected a calibration, got something else ({type(facts).__name__})")
    if facts["schema"] != SCHEMA:
        raise DataError(
            f"expected a calibration of schema {SCHEMA}, got {facts['schema']!r:.40}",
            hint="calibrate again, or install the version that wrote it",
        )
    n_levels, n_blocks = len(facts["levels"]), sum(map(len, facts["blocks"].values()))
    if not 2 <= n_levels <= MAX_LEVELS or n_levels * n_blocks > MAX_CELLS:
        raise DataError(
            f"expected from 2 to {MAX_LEVELS:,} levels and up to {MAX_CELLS:,} counts, got "
            f"{n_levels:,} levels in {n_blocks:,} blocks",
            hint="calibrate again with less footage",
        )
    return facts


def _calibration(facts: dict[str, Any]) -> Calibration:
    levels = np.asarray(facts["levels"], dtype=np.float64)
    if not (np.isfinite(levels).all() and (np.diff(levels) > 0).all() and levels[0] > 0):
        raise ValueError("levels that do not ascend from above 0")
    rules = Rules(**{name: _number(value, name) for name, value in facts["rules"].items()})
    return Calibration(
        model_sha256=_text(facts["model_sha256"], "model_sha256"),
        rules=rules,
        threshold=_threshold(facts["threshold"]),
        cameras={name: _threshold(own) for name, own in facts["cameras"].items()},
        counted={name: _counted(levels, some) for name, some in facts["blocks"].items()},
        marked={name: _marked(alert) for name, alert in facts.get("marked", {}).items()},
        looks={name: _looks(facts["looks_at"], rows) for name, rows in facts["looks"].items()},
    )


def _blocks(counted: Counted) -> list[list[Any]]:
    """Hours of each block, and its events from the lowest level to the last non-zero one."""
    return [
        [float(hours), np.trim_zeros(events, "b").tolist()]
        for hours, events in zip(counted.hours, counted.events, strict=True)
    ]


def _counted(levels: NDArray[np.float64], blocks: list[list[Any]]) -> Counted:
    if not blocks:
        raise ValueError("no blocks")
    events = np.zeros((len(blocks), len(levels)), dtype=np.int64)
    for row, (_, some) in zip(events, blocks, strict=True):
        row[: len(some)] = some
    hours = np.asarray([hours for hours, _ in blocks], dtype=np.float64)
    if hours.ndim != 1 or not (np.isfinite(hours) & (hours > 0)).all() or (events < 0).any():
        raise ValueError("blocks without hours, or with fewer events than none")
    return Counted(levels, events, hours)


def _rows(looks: BlockStats) -> list[list[float]]:
    return [[float(f"{value:.6g}") for value in row] for row in looks.values.tolist()]


def _looks(names: list[str], rows: list[list[float]]) -> BlockStats:
    if len(names) * len(rows) > MAX_CELLS:
        raise ValueError(f"{len(names):,} numbers of {len(rows):,} blocks")
    values = np.asarray(rows, dtype=np.float64).reshape(len(rows), len(names))
    if not np.isfinite(values).all():
        raise ValueError("looks that are not finite")
    return BlockStats(tuple(_text(name, "looks_at") for name in names), values)


def _marked(facts: dict[str, Any]) -> Marked:
    return Marked(camera=_text(facts["camera"], "camera"), peak=_positive(facts["peak"], "peak"))


def _threshold(facts: dict[str, Any]) -> Threshold:
    """Parse a threshold and validate every number, because alerts depend on it."""
    low, high = facts["rate"]
    how = facts["how"]
    if how not in HOW:
        raise ValueError(f"how: {how!r:.40}")
    if type(facts["events"]) is not int:
        raise ValueError(f"events: {facts['events']!r:.40}")
    return Threshold(
        **{name: _positive(facts[name], name) for name in ("value", "alerts_per_hour", "hours")},
        confidence=_number(facts["confidence"], "confidence"),
        how=how,
        events=facts["events"],
        rate=(_number(low, "rate"), _number(high, "rate")),
    )


def _positive(value: object, name: str) -> float:
    number = _number(value, name)
    if not number > 0:
        raise ValueError(f"{name}: {number}")
    return number


def _number(value: object, name: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
        raise ValueError(f"{name}: {value!r:.40}")
    return float(value)  # type: ignore[arg-type]


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name}: {value!r:.40}")
    return value

"""Calibration files: readable JSON, stored next to the model."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepvad.calibration import Calibration, Counted, Threshold
from stepvad.calibration.drift import BlockStats
from stepvad.calibration.feedback import Marked
from stepvad.calibration.promise import HOW
from stepvad.codec import LOWEST, Fields
from stepvad.errors import DataError, StepvadError, os_reason
from stepvad.files import bounded
from stepvad.files.atomic import replacing
from stepvad.incidents.events import Rules
from stepvad.poses import MAX_FPS

SCHEMA = 1
"""Version of the layout."""
SUFFIX = ".calibration.json"
MAX_BYTES = 1 << 27
"""Largest file; a week of one camera takes about 3 MB."""
MAX_LEVELS = 10_000
MAX_CELLS = 20_000_000
"""Largest number of event counts: 100 levels of 16,000 hours."""
MAKE_ONE = "create one with: stepvad calibrate MODEL NORMAL_POSES"


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
        "rates": {name: list(rates) for name, rates in calibration.rates.items()},
    }
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(facts, indent=1, ensure_ascii=False), encoding="utf-8")


def read(path: Path) -> Calibration:
    """Read a calibration."""
    try:
        own = _fields(path)
    except StepvadError as error:
        raise DataError(f"{path}: {error.problem}", hint=error.hint or MAKE_ONE) from error
    try:
        return _calibration(own)
    except (ValueError, TypeError, OverflowError, StepvadError) as error:
        raise DataError(
            f"{path}: expected a calibration, got something else ({str(error)[:200]})",
            hint=MAKE_ONE,
        ) from error


def _fields(path: Path) -> Fields:
    """The fields of a file, checked for its schema and size."""
    try:
        facts = json.loads(bounded.read(path, most=MAX_BYTES))
    except OSError as error:
        raise DataError(f"expected a calibration, got: {os_reason(error)}") from error
    except RecursionError as error:
        raise DataError("expected a calibration, got lists nested too deeply") from error
    except ValueError as error:
        raise _unlike(str(error)) from error
    if not isinstance(facts, dict):
        raise _unlike(type(facts).__name__)
    own = Fields("calibration", facts)
    if "schema" not in own:
        raise _unlike("no schema")
    if own.value("schema") != SCHEMA:
        raise DataError(
            f"expected a calibration of schema {SCHEMA}, got {facts['schema']!r:.40}",
            hint="calibrate again, or install the version that wrote it",
        )
    try:
        n_levels, n_blocks = _size(own)
    except DataError as error:
        raise _unlike(error.problem) from error
    if not 2 <= n_levels <= MAX_LEVELS or n_levels * n_blocks > MAX_CELLS:
        raise DataError(
            f"expected from 2 to {MAX_LEVELS:,} levels and up to {MAX_CELLS:,} counts, got "
            f"{n_levels:,} levels in {n_blocks:,} blocks",
            hint="calibrate again with less footage",
        )
    return own


def _size(own: Fields) -> tuple[int, int]:
    """Number of levels and blocks."""
    blocks = own.fields("blocks")
    return len(own.items("levels")), sum(len(blocks.items(name)) for name in blocks.values)


def _unlike(got: str) -> DataError:
    return DataError(f"expected a calibration, got something else ({got[:200]})")


def _calibration(own: Fields) -> Calibration:
    levels = np.asarray(own.numbers("levels"), dtype=np.float64)
    if not ((np.diff(levels) > 0).all() and levels[0] > 0):
        raise ValueError("levels that are not positive and ascending")
    rules, blocks, looks = own.fields("rules"), own.fields("blocks"), own.fields("looks")
    return Calibration(
        model_sha256=own.text("model_sha256"),
        rules=Rules(**{name: rules.number(name) for name in rules.values}),
        threshold=_threshold(own.fields("threshold")),
        cameras={name: _threshold(one) for name, one in own.objects("cameras").items()},
        counted={name: _counted(levels, blocks.items(name)) for name in blocks.values},
        marked={
            name: Marked(camera=one.text("camera"), peak=_positive(one, "peak"))
            for name, one in own.objects("marked").items()
        },
        looks={name: _looks(own.texts("looks_at"), looks.items(name)) for name in looks.values},
        rates=_rates(own.fields("rates")),
    )


def _blocks(counted: Counted) -> list[list[Any]]:
    """Hours of each block, and its events from the lowest level to the last non-zero one."""
    return [
        [float(hours), np.trim_zeros(events, "b").tolist()]
        for hours, events in zip(counted.hours, counted.events, strict=True)
    ]


def _counted(levels: NDArray[np.float64], blocks: list[Any]) -> Counted:
    if not blocks:
        raise ValueError("no blocks")
    events = np.zeros((len(blocks), len(levels)), dtype=np.int64)
    for row, (_, some) in zip(events, blocks, strict=True):
        row[: len(some)] = some
    hours = np.asarray([hours for hours, _ in blocks], dtype=np.float64)
    if hours.ndim != 1 or not (np.isfinite(hours) & (hours > 0)).all() or (events < 0).any():
        raise ValueError("blocks without hours, or with a negative number of events")
    return Counted(levels, events, hours)


def _rows(looks: BlockStats) -> list[list[float]]:
    return [[float(f"{value:.6g}") for value in row] for row in looks.values.tolist()]


def _looks(names: tuple[str, ...], rows: list[Any]) -> BlockStats:
    if len(names) * len(rows) > MAX_CELLS:
        raise ValueError(f"{len(names):,} numbers of {len(rows):,} blocks")
    values = np.asarray(rows, dtype=np.float64).reshape(len(rows), len(names))
    if not np.isfinite(values).all():
        raise ValueError("samples that are not finite")
    return BlockStats(names, values)


def _rates(own: Fields) -> dict[str, tuple[float, ...]]:
    """Frames per second of each camera's footage."""
    rates = {name: own.numbers(name) for name in own.values}
    for name, several in rates.items():
        if not all(0 < rate < MAX_FPS for rate in several):
            raise own.unlike(name, "frames per second")
    return rates


def _threshold(own: Fields) -> Threshold:
    """A threshold with validated numbers, since alerts depend on it."""
    match own.numbers("rate"):
        case low, high:
            rate = low, high
        case _:
            raise own.unlike("rate", "two numbers")
    for how in HOW:
        if own.value("how") == how:
            return Threshold(
                value=_positive(own, "value"),
                alerts_per_hour=_positive(own, "alerts_per_hour"),
                hours=_positive(own, "hours"),
                confidence=own.number("confidence"),
                how=how,
                events=own.whole("events", least=LOWEST),
                rate=rate,
            )
    raise own.unlike("how", f"one of {', '.join(HOW)}")


def _positive(own: Fields, name: str) -> float:
    number = own.number(name)
    if not number > 0:
        raise own.unlike(name, "a number above 0")
    return number

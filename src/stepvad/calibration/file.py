"""Calibration files: readable JSON, stored next to the model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from stepvad.calibration import Calibration, Counted, Threshold
from stepvad.calibration.drift import BlockStats
from stepvad.calibration.feedback import Marked
from stepvad.codec import Count, NewerVersionError, Number, Positive, decode, to_plain
from stepvad.errors import DataError, StepvadError, os_reason
from stepvad.files import read_bounded, replacing
from stepvad.incidents.events import Rules
from stepvad.poses import MAX_FPS

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFile:
    """A calibration as it is written."""

    schema: Literal[1] = 1
    model_sha256: str
    rules: Rules
    threshold: Threshold
    cameras: dict[str, Threshold]
    levels: Annotated[tuple[Positive, ...], Meta(min_length=2, max_length=MAX_LEVELS)]
    blocks: dict[str, tuple[tuple[Positive, tuple[Count, ...]], ...]]
    """Hours of each block, and its events from the lowest level to the last non-zero one."""
    marked: dict[str, Marked]
    looks: dict[str, tuple[tuple[Number, ...], ...]]
    looks_at: tuple[str, ...]
    rates: dict[str, tuple[Annotated[float, Meta(gt=0, lt=MAX_FPS)], ...]]


def write(calibration: Calibration, path: Path) -> None:
    """Write a calibration atomically."""
    facts = CalibrationFile(
        model_sha256=calibration.model_sha256,
        rules=calibration.rules,
        threshold=calibration.threshold,
        cameras={**calibration.cameras},
        levels=tuple(next(iter(calibration.counted.values())).levels.tolist()),
        blocks={name: _blocks(counted) for name, counted in calibration.counted.items()},
        marked={**calibration.marked},
        looks={name: _rows(looks) for name, looks in calibration.looks.items()},
        looks_at=next((looks.names for looks in calibration.looks.values()), ()),
        rates={**calibration.rates},
    )
    with replacing(path) as temporary:
        text = json.dumps(to_plain(facts), indent=1, ensure_ascii=False)
        temporary.write_text(text, encoding="utf-8")


def read(path: Path) -> Calibration:
    """Read a calibration."""
    try:
        return _calibration(
            decode(CalibrationFile, read_bounded(path, most=MAX_BYTES), "calibration")
        )
    except OSError as error:
        raise DataError(
            f"{path}: expected a calibration, got: {os_reason(error)}", hint=MAKE_ONE
        ) from error
    except NewerVersionError as error:
        raise error.located(str(path)) from error
    except (ValueError, StepvadError) as error:
        reason = error.problem if isinstance(error, StepvadError) else str(error)
        raise DataError(
            f"{path}: expected a calibration, got something else ({reason[:200]})", hint=MAKE_ONE
        ) from error


def _calibration(found: CalibrationFile) -> Calibration:
    levels = np.asarray(found.levels, dtype=np.float64)
    if not (np.diff(levels) > 0).all():
        raise ValueError("levels that are not ascending")
    n_blocks = sum(map(len, found.blocks.values()))
    if len(levels) * n_blocks > MAX_CELLS:
        raise ValueError(f"{len(levels):,} levels in {n_blocks:,} blocks, more than {MAX_CELLS:,}")
    return Calibration(
        model_sha256=found.model_sha256,
        rules=found.rules,
        threshold=found.threshold,
        cameras=found.cameras,
        counted={name: _counted(levels, blocks) for name, blocks in found.blocks.items()},
        marked=found.marked,
        looks={name: _looks(found.looks_at, rows) for name, rows in found.looks.items()},
        rates=found.rates,
    )


def _blocks(counted: Counted) -> tuple[tuple[float, tuple[int, ...]], ...]:
    return tuple(
        (float(hours), tuple(np.trim_zeros(events, "b").tolist()))
        for hours, events in zip(counted.hours, counted.events, strict=True)
    )


def _counted(
    levels: NDArray[np.float64], blocks: Sequence[tuple[float, tuple[int, ...]]]
) -> Counted:
    if not blocks:
        raise ValueError("no blocks")
    events = np.zeros((len(blocks), len(levels)), dtype=np.int64)
    for row, (_, some) in zip(events, blocks, strict=True):
        row[: len(some)] = some
    return Counted(levels, events, np.array([hours for hours, _ in blocks], np.float64))


def _rows(looks: BlockStats) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(f"{value:.6g}") for value in row) for row in looks.values.tolist())


def _looks(names: tuple[str, ...], rows: Sequence[tuple[float, ...]]) -> BlockStats:
    if len(names) * len(rows) > MAX_CELLS:
        raise ValueError(f"{len(names):,} numbers of {len(rows):,} blocks")
    return BlockStats(names, np.array(rows, np.float64).reshape(len(rows), len(names)))

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stepvad.evaluation.mocap import dataset
from stepvad.evaluation.mocap.dataset import Size
from tests.cli.conftest import Command
from tests.evaluation.mocap.people import write_archive


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An archive of hand-made motions, and a size of a few clips."""
    monkeypatch.setitem(dataset.SIZES, "small", Size(2, 1, 3, 6.0))
    return write_archive(tmp_path / "motions.npz")


def test_mocap_is_written_where_asked(stepvad: Command, tiny: Path, tmp_path: Path) -> None:
    words = (
        "--size",
        "small",
        "--archive",
        tiny,
        "--split",
        "2",
        "--contact-sheet",
        tmp_path / "s.png",
    )
    run = stepvad("benchmark", "mocap", tmp_path / "m", *words)
    assert run.out == f"{tmp_path / 'm'}\n"
    assert len(list((tmp_path / "m" / "pose" / "train").glob("*.parquet"))) == 2
    masks = sorted((tmp_path / "m" / "gt" / "test_frame_mask").glob("*.npy"))
    assert len(masks) == 3
    assert np.load(masks[0]).dtype == np.uint8
    assert (tmp_path / "s.png").stat().st_size > 1000


def test_statistics_are_told_for_people_and_programs(
    stepvad: Command, tiny: Path, tmp_path: Path
) -> None:
    stepvad("benchmark", "mocap", tmp_path / "m", "--size", "small", "--archive", tiny)
    table = stepvad("benchmark", "statistics", tmp_path / "m").out
    assert "people in a frame" in table
    told = json.loads(stepvad("benchmark", "statistics", tmp_path / "m", "--json").out)
    assert told["train"]["clips"] == 2
    assert told["test"]["clips"] == 3
    assert sum(told["train"]["confidence"]) == pytest.approx(1)
    assert all(events["frames"] > 0 for events in told["test"]["classes"].values())


def test_a_missing_archive_is_an_error_with_a_hint(stepvad: Command, tmp_path: Path) -> None:
    run = stepvad("benchmark", "mocap", tmp_path / "m", "--archive", tmp_path / "none.npz")
    assert run.code == 1
    assert "hint: name the directory that holds CMU-mocap in STEPVAD_DATA" in run.err

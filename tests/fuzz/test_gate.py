"""No reader fails, crashes, or takes much, whatever a file holds; and the gate would notice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzz import gate
from tests.fuzz.gate import Row, examined, run, table
from tests.fuzz.readers import SPIN_S

pytestmark = pytest.mark.slow

FILES = 50_000 if os.environ.get("STEPVAD_LONG_TESTS") else 1200
SEED = 7


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    rows = run(seed=SEED, files=FILES, minutes=None, kept=tmp_path)
    words = [
        f"{why}: {(tmp_path / name).read_text()}"
        for row in rows
        for why, name in [(why, f"{name}.txt") for why, name in row.offenders]
    ]
    assert not sum(row.faults for row in rows), "\n".join([table(rows), *words])
    assert all(row.refused for row in rows)
    assert sum(row.accepted for row in rows)


@pytest.mark.parametrize(
    ("reader", "fault"),
    [
        ("traceback", "traceback"),
        ("crash", "crash"),
        ("memory", "memory"),
        ("memory refused", "memory"),
    ],
)
def test_the_gate_notices(reader: str, fault: str, tmp_path: Path) -> None:
    assert noticed(reader, tmp_path) == [fault]


def test_the_gate_notices_what_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "SECONDS", 0.9 * SPIN_S)
    assert noticed("time", tmp_path) == ["time"]


def noticed(reader: str, tmp_path: Path) -> list[str]:
    """The faults that a faulty reader shows."""
    (tmp_path / "seeds" / reader).mkdir(parents=True)
    (tmp_path / "seeds" / reader / "whole").write_bytes(b"")
    facts = examined(reader, b"fault", "a", tmp_path / "seeds", tmp_path)
    row = Row(reader)
    found = row.count(facts, 5)
    assert row.faults == 1
    return found

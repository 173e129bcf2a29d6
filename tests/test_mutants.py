"""The deliberate faults of tests/mutants.toml still fit the code; scripts/mutants tries them."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MUTANTS = runpy.run_path(str(ROOT / "scripts" / "mutants"))["read"]()


def test_there_are_enough_faults_and_each_has_its_own_name() -> None:
    assert len(MUTANTS) >= 25
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_code_that_a_fault_changes_is_there_once(mutant: tuple[str, ...]) -> None:
    name, file, old, new, tests = mutant
    text = (ROOT / "src" / "stepvad" / file).read_text(encoding="utf-8")
    assert text.count(old) == 1, name
    assert old != new
    assert all((ROOT / test).exists() for test in tests.split())

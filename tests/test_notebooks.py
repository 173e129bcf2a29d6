"""The notebooks run from top to bottom as committed, which is without outputs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.pages import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def read(path: Path) -> Any:
    nbformat = pytest.importorskip("nbformat")  # takes seconds
    return nbformat.read(path, 4)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_output_is_committed(path: Path) -> None:
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert cells
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path) -> None:
    if path.stem == "your-own-video" and not {"STEPVAD_VIDEO", "STEPVAD_NETWORKS"} <= {*os.environ}:
        pytest.skip("needs STEPVAD_VIDEO, a path, and STEPVAD_NETWORKS, options of extract")
    nbclient = pytest.importorskip("nbclient")
    notebook = read(path)
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=where).execute()
    printed = [o for cell in notebook.cells for o in cell.get("outputs", [])]
    assert [one for one in printed if one.get("name") == "stderr"] == []
    assert sum("image/png" in one.get("data", {}) for one in printed) >= 2

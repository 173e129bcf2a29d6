from __future__ import annotations

from pathlib import Path

import pytest

from stepvad.evaluation.datasets import Dataset
from stepvad.evaluation.mocap.dataset import Size, make
from tests.evaluation.mocap.people import write_archive

TINY = Size(train=4, validation=3, test=6, seconds=6.0)


@pytest.fixture(scope="session")
def archive_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny archive of hand-made motions."""
    return write_archive(tmp_path_factory.mktemp("mocap") / "motions.npz")


@pytest.fixture(scope="session")
def tiny(archive_path: Path) -> Dataset:
    """Split 1 of a data set of a few clips."""
    return make(split=1, seed=0, size=TINY, archive=archive_path)

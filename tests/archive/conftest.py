from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepvad.evaluation import walkers
from stepvad.poses import Clip
from tests.archive.archives import write_archive, write_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "model.safetensors")


@pytest.fixture(scope="session")
def clips() -> list[Clip]:
    return [clip for clip, _ in walkers.make_clips(6, seed=4, seconds=6.0)]


@pytest.fixture(scope="session")
def poses(clips: list[Clip], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six clips of two cameras on three days."""
    return write_archive(tmp_path_factory.mktemp("archive") / "poses", clips)


@pytest.fixture
def in_memory() -> Iterator[str]:
    """A place in the memory of this process, where everything runs in it."""
    import fsspec

    name = f"/{uuid.uuid4().hex}"
    yield f"memory:/{name}"
    files = fsspec.filesystem("memory")
    if files.exists(name):
        files.rm(name, recursive=True)

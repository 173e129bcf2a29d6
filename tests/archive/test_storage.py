"""Files on their way to an object store: whole or not there, and never in a place of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stepvad.archive.storage import Directory
from stepvad.errors import DataError

KILLED = """
import os, signal
from stepvad.archive.storage import Directory
with Directory("memory://scores").replacing("a.parquet") as temporary:
    temporary.write_text("personal")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def fail() -> str:
    raise DataError("expected poses, got none")


def test_a_process_killed_while_it_writes_leaves_no_scores_behind(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", KILLED], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not [*tmp_path.iterdir()]


def test_a_file_is_uploaded_whole_or_not_at_all(in_memory: str) -> None:
    place = Directory.at(in_memory)
    with place.replacing("day/a") as temporary:
        temporary.write_text("longer than the second")
        temporary.write_text("short")
        assert not place.exists("day/a")
    assert place.read("day/a") == b"short"
    with pytest.raises(DataError), place.replacing("day/a") as temporary:
        temporary.write_text(fail())
    assert place.read("day/a") == b"short"

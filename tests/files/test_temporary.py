"""Temporary directories: private, and gone at the latest when the next one is made."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from stepvad.files.atomic import remove_leftovers
from stepvad.files.temporary import temporary_directory

HOLDER = """
import sys, time
from pathlib import Path
from stepvad.files.temporary import temporary_directory
with temporary_directory(Path(sys.argv[1])) as directory:
    (directory / "deep").mkdir()
    (directory / "deep" / "poses").write_text("personal")
    print(directory, flush=True)
    time.sleep(60)
"""


def killed_in(parent: Path) -> Path:
    """The directory of a process that was killed."""
    command = [sys.executable, "-c", HOLDER, str(parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        directory = Path(process.stdout.readline().strip())
        with temporary_directory(parent):
            assert directory.exists(), "its process lives"
        process.send_signal(signal.SIGKILL)
    return directory


def test_a_directory_is_for_its_owner_alone_and_goes_with_its_use(tmp_path: Path) -> None:
    with temporary_directory(tmp_path) as directory:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        (directory / "a").write_text("a")
    with pytest.raises(KeyboardInterrupt), temporary_directory(tmp_path) as directory:
        raise KeyboardInterrupt
    assert not [*tmp_path.iterdir()]


def test_directories_in_use_do_not_remove_one_another(tmp_path: Path) -> None:
    with temporary_directory(tmp_path) as one, temporary_directory(tmp_path) as other:
        assert one.is_dir()
        assert other.is_dir()


def test_the_next_one_removes_that_of_a_killed_process(tmp_path: Path) -> None:
    left = killed_in(tmp_path)
    assert (left / "deep" / "poses").read_text() == "personal"
    with temporary_directory(tmp_path) as directory:
        assert [*tmp_path.iterdir()] == [directory]


def test_what_only_looks_like_one_stays(tmp_path: Path) -> None:
    mine, link, file = (tmp_path / f".stepvad-{end}" for end in ("mine", "0a" * 8, "1b" * 8))
    mine.mkdir()
    link.symlink_to(mine)
    file.write_text("a file")
    remove_leftovers(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([mine, link, file])


def test_one_that_another_process_removes_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Path] = []
    lock = fcntl.flock

    def remove_first(descriptor: int, how: int) -> None:
        if not taken:
            (directory,) = tmp_path.iterdir()
            taken.append(directory)
            directory.rmdir()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with temporary_directory(tmp_path) as directory:
        assert directory.exists()
        assert directory not in taken


def test_on_a_file_system_without_locks_nothing_is_taken_for_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(os.strerror(95))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with temporary_directory(tmp_path) as one, temporary_directory(tmp_path):
        assert one.exists()
    assert not [*tmp_path.iterdir()]

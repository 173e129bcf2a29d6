"""Files that appear whole or not at all: whose fault an error is, and who may read them."""

from __future__ import annotations

import errno
import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepvad.errors import DataError
from stepvad.files.atomic import LEFTOVER_S, PUBLIC, replacing


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask() -> Iterator[None]:
    """That of most machines, under which everybody reads new files."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_a_new_file_is_for_its_owner_alone_also_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    with replacing(path) as temporary:
        assert mode(temporary) == 0o600
        temporary.write_text("1")
    assert mode(path) == 0o600


@pytest.mark.usefixtures("umask")
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    for kept in (0o640, 0o644, 0o400):
        path.touch()
        path.chmod(kept)
        with replacing(path) as temporary:
            assert mode(temporary) == 0o600
            temporary.write_text("1")
        assert mode(path) == kept


def test_a_stricter_umask_is_respected(tmp_path: Path) -> None:
    before = os.umask(0o277)
    try:
        with replacing(tmp_path / "a", mode=PUBLIC) as temporary:
            assert mode(temporary) == 0o400
    finally:
        os.umask(before)


@pytest.mark.usefixtures("umask")
def test_what_holds_nothing_of_anybody_may_be_read_by_all(tmp_path: Path) -> None:
    with replacing(tmp_path / "a", mode=PUBLIC) as temporary:
        temporary.write_text("1")
    assert mode(tmp_path / "a") == 0o644


def test_a_read_that_fails_inside_is_no_trouble_with_writing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "a", DataError):
        (tmp_path / "poses.parquet").read_bytes()
    with pytest.raises(OSError, match="connection reset"), replacing(tmp_path / "a", DataError):
        raise OSError(errno.ECONNRESET, "connection reset")
    with pytest.raises(OSError, match="Input/output"), replacing(tmp_path / "a", DataError):
        raise OSError(errno.EIO, "Input/output error", str(tmp_path / "poses.parquet"))
    assert not [*tmp_path.iterdir()]


def test_trouble_with_writing_is_told_as_such(tmp_path: Path) -> None:
    match = "a: expected a place that can be written"
    with pytest.raises(DataError, match=match), replacing(tmp_path / "a", DataError):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(DataError, match=match), replacing(tmp_path / "a", DataError) as temporary:
        raise OSError(errno.EIO, "Input/output error", str(temporary))
    with pytest.raises(DataError, match=match), replacing(tmp_path / "a", DataError) as temporary:
        temporary.unlink()
    with pytest.raises(DataError, match=match), replacing(tmp_path / "none" / "a", DataError):
        pass
    (tmp_path / "a").mkdir()
    with pytest.raises(DataError, match=match), replacing(tmp_path / "a", DataError):
        pass


def test_the_next_writer_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with replacing(path) as temporary:
        temporary.write_text("half")
        left = tmp_path / "left"
        os.link(temporary, left)
    left.rename(temporary)  # as if it had been killed
    with replacing(path) as another:
        assert another != temporary
        another.write_text("young ones may be in use")
    assert temporary.exists()
    old = time.time() - LEFTOVER_S - 60
    os.utime(temporary, (old, old))
    with replacing(path) as another:
        another.write_text("whole")
    assert [*tmp_path.iterdir()] == [path]


def test_writers_of_one_place_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with replacing(path) as one, replacing(path) as other:
        one.write_text("one")
        other.write_text("other")
    assert path.read_text() == "one"
    assert [*tmp_path.iterdir()] == [path]


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C arrives as soon as a file was made."""
    make = os.open

    def make_and_press(path: Path, flags: int, mode: int = 0o777) -> int:
        descriptor = make(path, flags, mode)
        signal.raise_signal(signal.SIGINT)
        return descriptor

    monkeypatch.setattr(os, "open", make_and_press)


@pytest.mark.usefixtures("interrupted")
def test_ctrl_c_right_after_the_file_was_made_leaves_none(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "a"):
        pass
    assert not [*tmp_path.iterdir()]


def test_ctrl_c_leaves_the_file_of_another_writer(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "a"
    with replacing(path) as others:
        request.getfixturevalue("interrupted")
        with pytest.raises(KeyboardInterrupt), replacing(path):
            pass
        assert [*tmp_path.iterdir()] == [others]


def test_a_writer_that_is_done_leaves_the_file_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, replace = tmp_path / "a", Path.replace

    def replace_and_lose_the_name(self: Path, target: Path) -> Path:
        done = replace(self, target)
        self.write_text("of the next writer")
        return done

    monkeypatch.setattr(Path, "replace", replace_and_lose_the_name)
    with replacing(path) as temporary:
        temporary.write_text("1")
    assert temporary.read_text() == "of the next writer"

"""Files: written whole or not at all, read up to a limit, and secrets by reference."""

from __future__ import annotations

import errno
import os
import signal
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from stepvad.codec import NewerVersionError
from stepvad.errors import DataError
from stepvad.files import (
    MOST_DAMAGED,
    PUBLIC,
    is_unread,
    read_state,
    remove_leftovers,
    replacing,
)
from tests.processes import REASON, unreadable


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


def test_what_killed_writers_left_goes_when_it_is_old_and_others_stay(tmp_path: Path) -> None:
    old, recent, mine = (tmp_path / name for name in (".stepvad-a1", ".stepvad-b2", "mine"))
    for directory in (old, recent, mine):
        directory.mkdir()
        (directory / "poses").write_text("personal")
    link = tmp_path / ".stepvad-c3"
    link.symlink_to(mine)
    for name in (f".{'0a' * 8}.tmp", f".{'0a' * 8}.tmp-wal"):
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (0, 0))
    os.utime(old, (0, 0))
    os.utime(mine, (0, 0))
    os.utime(link, (0, 0), follow_symlinks=False)
    remove_leftovers(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([recent, link, mine])
    assert (mine / "poses").exists()


@dataclass(frozen=True)
class Names:
    """A file for tests."""

    names: tuple[str, ...]
    version: Literal[1] = 1


def read(path: Path) -> tuple[str, ...] | None:
    found = read_state(path, Names, "names", most=100, lost="names are forgotten")
    return None if found is None else found.names


def test_a_missing_file_is_empty(tmp_path: Path) -> None:
    assert read(tmp_path / "a.json") is None
    assert not [*tmp_path.iterdir()]


def test_a_file_that_cannot_be_read_now_is_left_for_later(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"names": ["x"]}')
    with unreadable(path), pytest.raises(OSError, match=REASON):
        read(path)
    assert read(path) == ("x",)


def test_a_file_of_a_newer_version_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"version": 2}')
    with pytest.raises(NewerVersionError, match=r"a\.json: names: expected version 1, got 2"):
        read(path)
    assert path.read_text() == '{"version": 2}'


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": "x"}', '{"names": [1]}', "[" * 99, "x" * 101, "\xff"]
)
def test_a_damaged_file_is_set_aside_and_said_so(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, "latin-1")
    assert read(path) is None
    assert "a.json: damaged, so names are forgotten; kept as a.json.damaged: " in caplog.text
    assert [file.name for file in tmp_path.iterdir()] == ["a.json.damaged"]
    assert (tmp_path / "a.json.damaged").read_text("latin-1") == text


def test_one_damaged_file_does_not_replace_another(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for n in range(MOST_DAMAGED + 2):
        path.write_text(str(n))
        assert read(path) is None
    kept = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert (kept["a.json.damaged"], kept["a.json.damaged-2"]) == ("0", "1")
    assert (len(kept), kept["a.json.damaged-9"]) == (MOST_DAMAGED, "10")


def test_what_an_error_says_of_a_file() -> None:
    assert is_unread(PermissionError())
    assert is_unread(NewerVersionError("x"))
    for error in (FileNotFoundError(), ValueError(), DataError("x"), None):
        assert not is_unread(error)

"""Only a missing file is empty: others are kept until somebody can read them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from stepvad.codec import NewerVersionError
from stepvad.errors import DataError
from stepvad.files import statefile
from tests.files.unreadable import REASON, unreadable


@dataclass(frozen=True)
class Names:
    """A file for tests."""

    names: tuple[str, ...]
    version: Literal[1] = 1


def read(path: Path) -> tuple[str, ...] | None:
    found = statefile.read(path, Names, "names", most=100, lost="names are forgotten")
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
    for n in range(statefile.MOST_DAMAGED + 2):
        path.write_text(str(n))
        assert read(path) is None
    kept = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert (kept["a.json.damaged"], kept["a.json.damaged-2"]) == ("0", "1")
    assert (len(kept), kept["a.json.damaged-9"]) == (statefile.MOST_DAMAGED, "10")


def test_what_an_error_says_of_a_file() -> None:
    assert statefile.is_unread(PermissionError())
    assert statefile.is_unread(NewerVersionError("x"))
    for error in (FileNotFoundError(), ValueError(), DataError("x"), None):
        assert not statefile.is_unread(error)

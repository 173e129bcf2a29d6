"""A store that is copied, and comes back."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from stepvad.errors import DataError
from stepvad.files.atomic import replacing
from stepvad.site.store.eventstore import Store
from stepvad.site.store.restore import restore
from tests.site.records import SINKS, UNIQUE, fill, record


def test_a_backup_holds_everything_and_comes_back(store: Store, tmp_path: Path) -> None:
    fill(store, 30)
    store.backup(tmp_path / "copy.db")
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    epoch = store.next_epoch("yard")
    store.delete(include_open=True)
    with pytest.raises(DataError, match="stop the site first"):
        restore(tmp_path / "copy.db", store.path)
    store.close()
    restore(tmp_path / "copy.db", store.path)
    names = sorted(path.name for path in store.path.parent.iterdir())
    assert names == ["events.db", "events.db.before-restore"]
    again = Store(store.path, SINKS, clock=lambda: 10.0)
    assert len(again.events(limit=None)) == 30
    assert again.outbox.lag("mqtt") == 30
    assert again.poses(record(UNIQUE, 1).id) is not None
    assert again.next_epoch("yard") > epoch
    again.close()


def test_a_backup_is_restored_where_nothing_is_and_over_what_is_damaged(
    store: Store, tmp_path: Path
) -> None:
    store.change("new", record())
    store.backup(tmp_path / "copy.db")
    for place in (tmp_path / "new" / "events.db", tmp_path / "broken.db"):
        if place.name == "broken.db":
            place.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
        restore(tmp_path / "copy.db", place)
        again = Store(place)
        assert again.events() == [record()]
        again.close()


def test_what_is_no_backup_is_refused_and_changes_nothing(store: Store, tmp_path: Path) -> None:
    store.change("new", record())
    store.backup(tmp_path / "copy.db")
    store.close()
    (tmp_path / "text").write_text("hello")
    (tmp_path / "cut").write_bytes((tmp_path / "copy.db").read_bytes()[:9000])
    with closing(sqlite3.connect(tmp_path / "other")) as connection:
        connection.execute("CREATE TABLE a (b)")
    for name in ("none", "text", "cut", "other"):
        with pytest.raises(DataError, match=r"expected a .*backup"):
            restore(tmp_path / name, store.path)
    again = Store(store.path)
    assert again.events() == [record()]
    again.close()


def test_another_database_is_not_replaced_by_a_backup(store: Store, tmp_path: Path) -> None:
    store.backup(tmp_path / "copy.db")
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE a (b)")
    before = other.read_bytes()
    with pytest.raises(DataError, match="expected an event store, got another"):
        restore(tmp_path / "copy.db", other)
    assert other.read_bytes() == before


def test_a_damaged_store_is_a_sentence_with_a_remedy(store: Store) -> None:
    fill(store, 20)
    store.close()
    content = bytearray(store.path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    store.path.write_bytes(content)
    broken = Store(store.path)
    with pytest.raises(DataError, match="malformed") as caught:
        broken.events()
    assert "restore a backup" in caught.value.hint
    broken.close()


def test_a_backup_removes_what_a_killed_one_of_another_date_left(
    store: Store, tmp_path: Path
) -> None:
    place = tmp_path / "backups"
    place.mkdir()
    with replacing(place / "monday.db") as temporary:
        left = [place / f"{temporary.name}{end}" for end in ("", "-journal")]
    for file in left:
        file.write_text("half")
        os.utime(file, (0, 0))
    store.backup(place / "tuesday.db")
    assert [path.name for path in place.iterdir() if path.name != "monday.db"] == ["tuesday.db"]


def test_a_backup_onto_the_store_itself_is_refused(store: Store) -> None:
    with pytest.raises(DataError, match="a file other than the store itself"):
        store.backup(store.path)

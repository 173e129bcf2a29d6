from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path

import pytest

from stepvad.site.store.events import Store
from tests.conftest import Command
from tests.site.records import explanation, record

SINKS = ("mqtt",)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A site's data: an old event, one of another camera, one that goes on."""
    store = Store(tmp_path / "site-data" / "events.db", SINKS)
    old = record("yard", 1, why="left knee bends further than usual, again and again and again")
    new = record("yard", 2, start_time=time.time() - 60, why="=HYPERLINK(1)")
    other = record("porch", 3)
    for one in (old, other, new):
        store.change("new", one)
        store.put_poses(one.id, b"x" * 100)
    store.put_explanation(old.id, explanation("left knee"))
    store.change("end", old.ended("calm", 1011.0))
    store.change("end", other.ended("camera lost", 1012.0))
    store.close()
    return tmp_path / "site-data"


def reopened(data: Path) -> Store:
    return Store(data / "events.db", create=False)


def remaining(data: Path) -> list[int]:
    store = reopened(data)
    found = [one.frame_seq for one in store.events()]
    store.close()
    return found


def test_events_are_listed_the_newest_first(stepvad: Command, data: Path) -> None:
    shown = stepvad("events", "list", "-d", data)
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert [word for line in lines for word in line.split() if word in ("yard", "porch")] == [
        *("yard", "porch", "yard")
    ]
    assert "goes on" in lines[2]
    assert "10.0 s" in lines[-1]
    assert record("yard", 1).id in lines[-1]


def test_events_are_chosen_by_camera_time_and_state(stepvad: Command, data: Path) -> None:
    def found(*words: str) -> list[int]:
        return [
            one["frame_seq"]
            for one in json.loads(stepvad("events", "list", "-d", data, "--json", *words).out)
        ]

    assert found() == [2, 3, 1]
    assert found("--camera", "porch") == [3]
    assert found("--since", "1h") == [2]
    assert found("--until", "2001-01-01") == [3, 1]
    assert found("--open") == [2]
    assert found("--limit", "1") == [2]


def test_an_id_that_nobody_has_is_an_error_with_a_hint(stepvad: Command, data: Path) -> None:
    told = stepvad("events", "mark", "nobody", "-d", data)
    assert told.code == 1
    assert "hint: run stepvad events list" in told.err


def test_a_directory_without_a_site_is_an_error_and_stays_empty(
    stepvad: Command, tmp_path: Path
) -> None:
    for words in (("list",), ("delete", "--all", "--yes"), ("backup", "b.db")):
        told = stepvad("events", *words, "-d", tmp_path)
        assert (told.code, told.out) == (1, "")
        assert "data directory of a site" in told.err
    assert [*tmp_path.iterdir()] == []


def test_a_time_that_is_none_is_an_error(stepvad: Command, data: Path) -> None:
    told = stepvad("events", "list", "-d", data, "--since", "yesterday")
    assert told.code == 1
    assert "--since: expected a time, got 'yesterday'" in told.err


def test_events_are_exported_as_lines_of_json_and_csv(
    stepvad: Command, data: Path, tmp_path: Path
) -> None:
    every = tmp_path / "events.jsonl"
    assert stepvad("events", "list", "-d", data, "-o", every).code == 0
    lines = every.read_text("utf-8").splitlines()
    assert [json.loads(line)["frame_seq"] for line in lines] == [1, 3, 2]
    assert "ends in .jsonl or .csv" in stepvad("events", "list", "-d", data, "-o", "a.txt").err
    out = tmp_path / "week.csv"
    assert stepvad("events", "list", "-d", data, "-o", out).code == 0
    rows = [*csv.DictReader(io.StringIO(out.read_text("utf-8")))]
    assert [row["camera"] for row in rows] == ["yard", "porch", "yard"]
    assert rows[2]["why"] == "'=HYPERLINK(1)"  # no formula
    assert rows[0]["box"] == "1.0 2.0 30.0 40.0"


def test_deleting_asks_first(stepvad: Command, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert stepvad("events", "delete", "-d", data, "--camera", "porch").code == 1
    assert remaining(data) == [2, 3, 1]
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert stepvad("events", "delete", "-d", data, "--camera", "porch").code == 0
    assert remaining(data) == [2, 1]


def test_what_is_deleted_is_gone_and_what_goes_on_stays(stepvad: Command, data: Path) -> None:
    told = stepvad("events", "delete", "-d", data, "--all", "--yes")
    assert "events deleted: 2" in told.err
    assert "ongoing events kept: 1; delete them by their ids" in told.err
    assert remaining(data) == [2]
    told = stepvad("events", "delete", record("yard", 2).id, "-d", data, "-y")
    assert "events deleted: 1" in told.err
    assert b"yard" not in b"".join(path.read_bytes() for path in data.iterdir())


def test_deleting_needs_to_be_told_what(stepvad: Command, data: Path) -> None:
    assert "choose the events" in stepvad("events", "delete", "-d", data, "--yes").err
    told = stepvad("events", "delete", "-d", data, "--yes", "--camera", "garden")
    assert told.code == 1
    assert "these have: porch, yard" in told.err
    assert remaining(data) == [2, 3, 1]


def test_one_command_says_what_is_stored(stepvad: Command, data: Path) -> None:
    (data / "token").write_text("abc")
    shown = stepvad("inspect", data).out
    for words in ("events", "poses", "explanations", "outbox", "events.db", "token", "yard"):
        assert words in shown
    assert "No pixels are stored" in shown
    assert "not\nanonymous" in shown
    facts = json.loads(stepvad("inspect", data, "--json").out)
    assert facts["files"][str(data / "token")] == 3
    by_name = {one["what"]: one for one in facts["kept"]}
    assert (by_name["poses"]["count"], by_name["poses"]["bytes"]) == (3, 300)


def test_a_backup_is_made_and_restored(stepvad: Command, data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    assert stepvad("events", "backup", copy, "-d", data).code == 0
    stepvad("events", "delete", "-d", data, "--all", "--yes")
    store = reopened(data)
    told = stepvad("events", "restore", copy, "-d", data, "--yes")
    assert told.code == 1
    assert "hint: stop the site first" in told.err
    store.close()
    done = stepvad("events", "restore", copy, "-d", data, "--yes")
    assert done.code == 0
    assert remaining(data) == [2, 3, 1]
    done = stepvad("events", "restore", copy, "-d", tmp_path / "new")
    assert done.code == 0
    assert remaining(tmp_path / "new") == [2, 3, 1]


def test_an_event_is_marked_as_normal_and_back(stepvad: Command, data: Path) -> None:
    id = record("yard", 1).id
    assert stepvad("events", "mark", id, "-d", data).code == 0
    assert "normal" in stepvad("events", "list", "-d", data).out
    assert stepvad("events", "mark", id, "--not-normal", "-d", data).code == 0
    store = reopened(data)
    assert store.marked() == {}
    store.close()

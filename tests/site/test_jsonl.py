from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stepvad.codec import encode, to_plain
from stepvad.incidents.record import message
from stepvad.incidents.sink import DeliveryError
from stepvad.site.delivery import SinkDelivery
from stepvad.site.sinks.jsonl import JsonLines
from stepvad.site.store.eventstore import Store
from tests.pages import ROOT
from tests.site.receivers import start, stop
from tests.site.records import record
from tests.video.servers import wait_until

TOLD = message("new", None, record())


def test_every_message_is_a_line(tmp_path: Path) -> None:
    sink = JsonLines(tmp_path / "events.jsonl")
    second = message("new", None, record("Höf", why="a\nb"))
    sink.send("new", TOLD)
    sink.send("new", second)
    text = (tmp_path / "events.jsonl").read_text("utf-8")
    assert [json.loads(line) for line in text.splitlines()] == [to_plain(TOLD), to_plain(second)]
    assert text.endswith("\n")
    assert stat.S_IMODE((tmp_path / "events.jsonl").stat().st_mode) == 0o600


def test_a_file_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    sink = JsonLines(tmp_path / "events.jsonl")
    sink.send("new", TOLD)
    (tmp_path / "events.jsonl").rename(tmp_path / "old")
    sink.send("new", TOLD)
    assert len((tmp_path / "events.jsonl").read_text("utf-8").splitlines()) == 1


@pytest.mark.parametrize("whole", [0, 1, 3])
@pytest.mark.parametrize("torn", [1, 20, None])
def test_a_line_that_was_cut_off_is_removed(tmp_path: Path, whole: int, torn: int | None) -> None:
    line = encode(TOLD).decode()
    path = tmp_path / "events.jsonl"
    path.write_text(f"{line}\n" * whole + line[:torn])
    JsonLines(path).send("new", TOLD)
    assert path.read_text("utf-8") == f"{line}\n" * (whole + 1)


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    for number, text in enumerate(["my diary", "a\nmy diary", "{" * (2 << 20)]):
        path = tmp_path / str(number)
        path.write_text(text)
        with pytest.raises(DeliveryError, match="something else at the end"):
            JsonLines(path).send("new", TOLD)
        assert path.read_text() == text


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeliveryError, match=r"no/events\.jsonl: expected .* No such file"):
        JsonLines(tmp_path / "no" / "events.jsonl").send("new", TOLD)


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = JsonLines(tmp_path / "events.jsonl")
    sink.send("new", TOLD)
    before = (tmp_path / "events.jsonl").read_bytes()
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, line: write(file, line[:30]))
        with pytest.raises(DeliveryError, match="30 of"):
            sink.send("new", TOLD)
    assert (tmp_path / "events.jsonl").read_bytes() == before
    sink.send("new", TOLD)
    assert (tmp_path / "events.jsonl").read_bytes() == before * 2


WRITER = """
import sys
from pathlib import Path
from stepvad.site.delivery import SinkDelivery
from stepvad.site.sinks.jsonl import JsonLines
from stepvad.site.store.eventstore import Store

store = Store(Path(sys.argv[1]), ["file"])
print("ready", flush=True)
SinkDelivery(store, JsonLines(Path(sys.argv[2]))).run()
"""


@pytest.mark.slow
def test_every_event_is_in_the_file_whoever_is_killed(tmp_path: Path) -> None:
    store = Store(tmp_path / "events.db", ["file"])
    path = tmp_path / "events.jsonl"
    for turn in range(5):
        for number in range(20 * turn, 20 * turn + 20):
            store.change("new", record(number=number, why="long " * 500))
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(store.path), str(path)],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.02 * turn)
            process.send_signal(signal.SIGKILL)
    delivery = SinkDelivery(store, JsonLines(path))
    running = start(delivery)
    wait_until(lambda: delivery.is_idle)
    stop(running, delivery)
    got = [json.loads(line)["after"]["frame_seq"] for line in path.read_text().splitlines()]
    assert [*dict.fromkeys(got)] == [*range(100)]
    assert len(got) <= 105  # one may come twice each time somebody is killed
    store.close()

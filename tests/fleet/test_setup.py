from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from stepvad.cli import app
from tests.fleet.servers import Broker


def test_a_fleet_is_set_up_by_one_command_and_checked_by_another(
    server: Broker, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPVAD_EVENTS_DSN", dsn)
    path = tmp_path / "fleet.toml"
    path.write_text(f'[broker]\nservers = ["{server.address}"]\n')

    def setup(*options: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["fleet", "setup", str(path), *options])
        return done.exit_code, done.output

    code, words = setup("--check")
    assert (code, "to do: stream EVENTS\n" in words) == (1, True)
    assert "to do: database: tables of version 1" in words
    code, words = setup()
    assert (code, "done: stream EVENTS\n" in words) == (0, True)
    assert "done: database: tables of version 1" in words
    for options in ((), ("--check",)):
        assert setup(*options) == (0, "brokers and database are as the settings say\n")
    path.write_text(path.read_text() + "[streams]\nevents_per_site = 50\n")
    code, words = setup("--check")
    assert (code, "max_msgs_per_subject" in words) == (1, True)

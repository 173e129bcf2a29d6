"""A writer of events that hangs ends, whatever hangs in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepvad.site.stages import STUCK
from tests.fleet.brokers import broker
from tests.fleet.roles import bus_section
from tests.fleet.test_a_fleet import prepare
from tests.video.servers import SLOWER


HUNG_S = 2.0
LIMIT_S = 20 * SLOWER


@pytest.mark.parametrize("where", ["task", "loop"])
def test_a_writer_whose_fetch_hangs_exits_as_stuck(tmp_path: Path, dsn: str, where: str) -> None:
    settings = tmp_path / "fleet.toml"
    with broker(tmp_path / "nats") as server:
        prepare(dsn, server)
        settings.write_text(bus_section(server) + '[events]\ndsn = "env:DSN"\n')
        words = ["tests.fleet.hanging_writer", str(settings), str(HUNG_S), where]
        made = subprocess.run(
            [sys.executable, "-m", *words],
            env=os.environ | {"DSN": dsn},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    assert made.returncode == STUCK, made.stderr
    assert f"the writer of events hangs: no progress for {HUNG_S:g} s; exiting" in made.stderr
    if where == "loop":
        assert "in hanging" in made.stderr, "the log shows where it hangs"

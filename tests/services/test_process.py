"""How the process of a site tells its supervisor how it ended."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stepvad.supervision.parent_process import REFUSED
from stepvad.supervision.stuck import STUCK

PROGRAM = """
import argparse
from stepvad.errors import ConfigError
from stepvad.services.process import run_process

def run(options, stop, parent):
    {body}

run_process(run, argparse.Namespace(heartbeat_fd=None))
"""


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("return []", 0, ""),
        ("return ['capture']", STUCK, ""),
        ("raise ConfigError('x: got y', hint='try z')", REFUSED, "error: x: got y\n\nhint: try z"),
        ("raise RuntimeError('boom')", STUCK, "boom"),
    ],
)
def test_the_exit_code_tells_whether_to_start_again(body: str, code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body=body)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr

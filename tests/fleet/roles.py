"""Roles of a fleet in processes of their own, which tests may kill and start again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.fleet.brokers import Broker

FleetCommand = Callable[..., tuple[int, str]]
"""Runs a command that ends by itself: words and environment in, exit code and output out."""


class Role:
    """`stepvad fleet VERB SETTINGS`."""

    def __init__(
        self,
        verb: str,
        settings: Path,
        *more: str,
        inside: Sequence[str] = (),
        program: Sequence[str] = ("stepvad", "fleet"),
        python: Path | str = sys.executable,
        **environment: str,
    ) -> None:
        """`inside`: words before the command, which run it on another host."""
        command = [str(python), "-m", *program, verb, str(settings), *more]
        self._command = [*inside, *command]
        self._environment = os.environ | {"OMP_NUM_THREADS": "1"} | environment
        self.log = settings.parent / f"{verb}-{settings.stem}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=self._environment
            )

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def stop(self) -> int:
        """End it as systemd does; its exit code."""
        process = self.process
        assert process is not None
        process.terminate()
        code = process.wait(30)
        if self.process is process:  # nobody killed and started it meanwhile
            self.process = None
        return code

    def __enter__(self) -> Role:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


def bus_section(broker: Broker, section: str = "bus", more: str = "") -> str:
    """How a role finds its broker."""
    return f'[{section}]\nservers = ["{broker.address}"]\nshards = 4\n{more}\n'

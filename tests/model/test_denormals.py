from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest
import torch

from stepvad.errors import Progress, Report, silent
from stepvad.model.denormals import flushed

DENORMALS = torch.full((200_000,), 1e-40)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def share_kept() -> float:
    return float(((DENORMALS * 1) != 0).double().mean())


@pytest.mark.usefixtures("two_threads")
def test_helpers_that_torch_started_earlier_do_not_keep_denormals() -> None:
    assert share_kept() == 1
    assert flushed(lambda _: share_kept(), silent) == 0
    assert share_kept() == 1


def test_an_error_of_the_work_reaches_the_caller() -> None:
    def fail(_: Report) -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        flushed(fail, silent)


def test_an_interrupted_caller_ends_the_work() -> None:
    main, steps = threading.get_ident(), 0

    def work(report: Report) -> None:
        nonlocal steps
        for steps in range(500):
            report(Progress("working", steps, 500))
            if steps == 3:
                signal.pthread_kill(main, signal.SIGINT)
            time.sleep(0.02)

    with pytest.raises(KeyboardInterrupt):
        flushed(work, silent)
    assert 3 <= steps < 100
    assert not any(thread.name.startswith("flushed") for thread in threading.enumerate())

"""A signal after OpenVINO was dropped by another thread is handled, and not a crash."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc, signal, threading
from stepvad import Detector
from stepvad.evaluation.walkers import make_clips
from stepvad.site.intake import demo

clip = next(make_clips(1, seed=1, seconds=2.0))[0]
models = [Detector.load(demo.MODEL, runtime="openvino")]
models[0].score(clip)

def drop():
    models.clear()
    gc.collect()

thread = threading.Thread(target=drop)
thread.start()
thread.join()
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_signal_after_another_thread_dropped_the_last_model_is_handled() -> None:
    pytest.importorskip("openvino")
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120
    )
    assert (run.returncode, run.stdout) == (0, "interrupted\n"), run.stderr[-500:]

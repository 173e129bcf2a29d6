"""Nothing is reported to the makers of the engines, nor is anything made ready for it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stepvad.model.runtime.telemetry import import_openvino

VARIABLES = ("ORT_DISABLE_TELEMETRY", "CI", "TF_BUILD", "JENKINS_URL")
"""Any of these would keep an engine quiet by itself."""
WORK = """
import sys
from pathlib import Path
from stepvad import Detector
from stepvad.model import modelfile
from stepvad.evaluation.walkers import make_clips
from stepvad.site.intake import demo
from stepvad.model.runtime.export import export

asked = []
sys.addaudithook(lambda name, _: name.startswith("socket.") and asked.append(name))
((clip, _),) = make_clips(1, seed=0, seconds=3.0)
for runtime in ("openvino", "onnxruntime"):
    Detector.load(demo.MODEL, threads=1, runtime=runtime).score(clip)
export(modelfile.read(Path(demo.MODEL)), Path(sys.argv[1], "model.xml"))
export(modelfile.read(Path(demo.MODEL)), Path(sys.argv[1], "model.onnx"))
print(*asked)
"""
LOUD = "import onnxruntime, openvino"
NOWHERE = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
"""What would be sent gets no further than this machine."""


def run(words: str, home: Path, out: Path) -> tuple[str, list[str], list[str]]:
    """What a fresh user's Python prints, the files it leaves at home, the addresses it calls."""
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    kept = {name: value for name, value in kept.items() if not name.startswith("XDG_")}
    command = [sys.executable, "-c", words, str(out)]
    trace = out / "trace.txt"
    if shutil.which("strace"):
        command = ["strace", "-f", "-qq", "-e", "trace=connect", "-o", str(trace), *command]
    done = subprocess.run(
        command,
        env=kept | NOWHERE | {"HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    files = [str(one.relative_to(home)) for one in home.rglob("*") if one.is_file()]
    called = re.findall(r"AF_INET6?.*", trace.read_text()) if trace.exists() else []
    return done.stdout.strip(), files, called


def test_the_engines_send_nothing_and_leave_nothing_at_home(tmp_path: Path) -> None:
    assert run(WORK, tmp_path / "home", tmp_path) == ("", [], [])


def test_without_the_remedy_this_would_be_seen(tmp_path: Path) -> None:
    _, files, _ = run(LOUD, tmp_path / "home", tmp_path)
    if not files:
        pytest.skip("these versions report nothing")
    assert any("onnxruntime" in one for one in files)
    assert any("openvino" in one for one in files)


def test_a_module_that_was_there_before_is_there_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "openvino_telemetry", sys)
    assert import_openvino().__name__ == "openvino"
    assert sys.modules["openvino_telemetry"] is sys

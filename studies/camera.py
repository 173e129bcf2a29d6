"""A real RTSP camera that goes away and comes back, extracted on one core.

    python -m studies camera VIDEO DETECTOR POSE [--engine openvino] [--seconds 60] [--core 1]

An H.264 copy of the video is played by GStreamer's RTSP server (apt install python3-gi
gir1.2-gst-rtsp-server-1.0 and the good and ugly plug-ins) at the video's rate; the server is killed
after some seconds, is back ten seconds later, and plays for twenty more.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.video.clips import h264_copy
from tests.video.servers import CANARY, RtspServer, wait_until

DOWN_S, AFTER_S = 10.0, 20.0


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("video", "detector", "pose"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--engine", default="onnxruntime")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--core", type=int, default=1)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        server = RtspServer(h264_copy(given.video, work / "copy.mkv"), work / "server.log")
        server.start()
        try:
            facts = watch(server, work, given)
        finally:
            server.kill()
    for name, value in facts.items():
        print(f"{name}: {value}")


def watch(server: RtspServer, work: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Extract while the server plays, dies and comes back."""
    secret = work / "secret"
    secret.write_text(f"viewer:{CANARY}\n")
    secret.chmod(0o600)
    address = f"door=rtsp://127.0.0.1:{server.port}/camera"
    words = [sys.executable, "-m", "stepvad", "extract", address, "--credentials", str(secret)]
    words += ["-o", str(work / "out"), "--detector", str(given.detector), "--pose", str(given.pose)]
    words += ["--engine", given.engine, "--json"]
    pipe = subprocess.PIPE
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=environment)
    os.sched_setaffinity(process.pid, {given.core})
    lines: list[tuple[float, str]] = []
    threading.Thread(target=listen, args=(process, lines), daemon=True).start()

    def times(word: str) -> list[float]:
        return [when for when, line in lines if word in line]

    wait_until(lambda: len(times(": online:")) == 1, 60)
    time.sleep(given.seconds)
    killed = time.monotonic()
    server.kill()
    wait_until(lambda: len(times(": offline:")) == 1, 60)
    time.sleep(max(killed + DOWN_S - time.monotonic(), 0))
    back = time.monotonic()
    server.start()
    wait_until(lambda: len(times(": online:")) == 2, 60)
    time.sleep(AFTER_S)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    output = process.stdout.read()
    _, _, usage = os.wait4(process.pid, 0)
    (facts,) = json.loads(output)
    everything = output + "".join(line for _, line in lines)
    files = [path for path in (work / "out").rglob("*") if path.is_file()]
    shown = CANARY in everything or any(CANARY.encode() in path.read_bytes() for path in files)
    return {
        "counts": facts["counts"],
        "lag at the end, s": facts["lag_s"],
        "processor, ms a frame": round(1e3 * (usage.ru_utime + usage.ru_stime) / facts["frames"]),
        "offline noticed after, s": round(times(": offline:")[0] - killed, 2),
        "online after the server's return, s": round(times(": online:")[1] - back, 2),
        "password shown": shown,
    }


def listen(process: subprocess.Popen[str], lines: list[tuple[float, str]]) -> None:
    """Keep what is said, and when."""
    assert process.stderr is not None
    for line in process.stderr:
        lines.append((time.monotonic(), line))

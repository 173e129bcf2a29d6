"""`stepvad fleet worker` that writes down the bits of every window it scores, or is slow.

When each was scored stands in a file of its own: track, frame, unix seconds; what the broker
acknowledged in another.

python -m tests.fleet.recording_worker FLEET.toml WINDOWS [MILLISECONDS_A_WINDOW]
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from stepvad.cli import main
from stepvad.detector import Detector
from stepvad.model.scoring import WindowScores
from stepvad.windows.values import Windows
from tests.fleet.quiet import digests
from tests.fleet.recorded_publishing import record_publishing


def record(path: str, slow_ms: float) -> None:
    """From now on, scoring leaves a trace."""
    how = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    file, times = os.open(path, how), os.open(f"{path}.times", how)
    score_windows = Detector.score_windows

    def recording(self: Detector, windows: Windows) -> WindowScores:
        if len(windows) and not slow_ms:
            os.write(file, "".join(f"{line}\n" for line in digests(windows)).encode())
        time.sleep(slow_ms / 1000 * len(windows))
        scores = score_windows(self, windows)
        pairs = zip(windows.track_id.tolist(), windows.frame.tolist(), strict=True)
        now = time.time()
        os.write(times, "".join(f"{track} {frame} {now}\n" for track, frame in pairs).encode())
        return scores

    Detector.score_windows = recording  # type: ignore[method-assign]  # as it was, and written down


if __name__ == "__main__":
    settings, windows, *slow = sys.argv[1:]
    record(windows, float(slow[0]) if slow else 0.0)
    record_publishing(Path(f"{windows}.acks"))
    sys.argv = ["stepvad", "fleet", "worker", settings]
    main()

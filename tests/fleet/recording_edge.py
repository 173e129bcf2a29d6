"""`stepvad fleet edge` that writes down what the broker acknowledged, with the poses sent.

ACKS=FILE python -m tests.fleet.recording_edge edge EDGE.toml
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from stepvad.services import edge
from stepvad.supervision.parent_process import supervise
from tests.fleet.recorded_publishing import record_publishing

if __name__ == "__main__":
    if any(word.startswith("--heartbeat-fd") for word in sys.argv):  # it is the child
        record_publishing(Path(os.environ["ACKS"]), bodies=True)
        edge.main()
    else:
        sys.exit(supervise([sys.executable, "-m", "tests.fleet.recording_edge", sys.argv[2]]))

"""`stepvad fleet edge` that writes down what the broker acknowledged, with the poses sent.

ACKS=FILE python -m studies.simulated.recording_edge edge EDGE.toml
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from stepvad.cli import main
from tests.fleet.results import record_publishing

if __name__ == "__main__":
    record_publishing(Path(os.environ["ACKS"]), bodies=True)
    sys.argv = ["stepvad", "fleet", *sys.argv[1:]]
    main()

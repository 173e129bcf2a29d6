"""The process of one round of learning, started by a site at low priority."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from stepvad.errors import StepvadError
from stepvad.site.processes import die_with_parent
from stepvad.site.settings.file import load

NICE = 10
"""Priority: watching comes first."""


def main() -> None:
    """Fit or calibrate the model of a site, then exit; errors go to stderr."""
    parser = argparse.ArgumentParser(prog="stepvad.site.learning")
    parser.add_argument("kind", choices=("fit", "calibrate"))
    parser.add_argument("settings", type=Path)
    options = parser.parse_args()
    die_with_parent()
    os.nice(NICE)
    from stepvad.site.learning import rounds

    try:
        settings = load(options.settings)
        run = rounds.fit if options.kind == "fit" else rounds.calibrate
        run(settings)
    except StepvadError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()

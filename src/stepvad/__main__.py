"""python -m stepvad."""

from __future__ import annotations

from stepvad.cli import main

main()

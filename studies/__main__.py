"""List the studies, or run one: `python -m studies [NAME [OPTIONS]]`."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from stepvad.errors import StepvadError

HERE = Path(__file__).parent


def studies() -> dict[str, str]:
    """The name of each study and the first line of its docstring."""
    found = {}
    for path in sorted(HERE.glob("[!_]*.py")):
        said = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        found[path.stem.replace("_", "-")] = said.partition("\n")[0]
    return found


def main(arguments: Sequence[str]) -> None:
    """Run the study that comes first, with the other arguments; list all of them without one."""
    known = studies()
    name, *options = arguments or ["--help"]
    if name in ("-h", "--help"):
        print("usage: python -m studies NAME [OPTIONS]; NAME --help lists the options of one\n")
        for study, line in known.items():
            print(f"  {study:<24}{line}")
        return
    if name not in known:
        sys.exit(f"error: there is no study {name!r}; python -m studies lists them")
    sys.argv[0] = f"python -m studies {name}"
    try:
        importlib.import_module(f"studies.{name.replace('-', '_')}").main(options)
    except StepvadError as error:
        sys.exit(f"error: {error}\n\nhint: {error.hint}" if error.hint else f"error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])

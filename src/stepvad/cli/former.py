"""Deprecated command names: hidden, with the same options and a warning."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from stepvad.cli.terminal import say


def former(verb: Callable[..., None], old: str, new: str, **fixed: Any) -> Callable[..., None]:
    """A command under its former name; `fixed` sets options that it does not expose."""

    def renamed(**options: Any) -> None:
        say(f"warning: `{old}` is deprecated since 0.1, removed in 0.3; use `{new}`")
        verb(**fixed, **options)

    signature = inspect.signature(verb, eval_str=True)
    kept = [one for one in signature.parameters.values() if one.name not in fixed]
    renamed.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]  # typer reads it
    renamed.__annotations__ = {one.name: one.annotation for one in kept}
    renamed.__name__, renamed.__doc__ = old.split()[-1], f"Deprecated: use stepvad {new}."
    return renamed

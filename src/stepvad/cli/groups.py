"""Option groups: a command receives related options as one dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from inspect import Parameter
from typing import Any, get_type_hints


def grouped(verb: Callable[..., None]) -> Callable[..., None]:
    """Expose each field of a command's dataclass parameters to typer as a separate option.

    A default of a dataclass parameter sets the defaults of its options.
    """
    signature = inspect.signature(verb, eval_str=True)
    groups: dict[str, type[Any]] = {
        one.name: one.annotation
        for one in signature.parameters.values()
        if isinstance(one.annotation, type) and is_dataclass(one.annotation)
    }

    def spelled_out(**options: Any) -> None:
        made = {
            name: group(**{one.name: options.pop(one.name) for one in fields(group)})
            for name, group in groups.items()
        }
        verb(**options, **made)

    parameters = [
        option
        for one in signature.parameters.values()
        for option in (_options(one) if one.name in groups else [one])
    ]
    spelled_out.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # typer reads it
    spelled_out.__annotations__ = {one.name: one.annotation for one in parameters}
    spelled_out.__name__, spelled_out.__doc__ = verb.__name__, verb.__doc__
    return spelled_out


def _options(group: Parameter) -> list[Parameter]:
    hints = get_type_hints(group.annotation, include_extras=True)
    return [
        Parameter(
            one.name,
            Parameter.KEYWORD_ONLY,
            default=_default(one, group.default),
            annotation=hints[one.name],
        )
        for one in fields(group.annotation)
    ]


def _default(one: Field[Any], usual: object) -> object:
    if usual is not Parameter.empty:
        return getattr(usual, one.name)
    return Parameter.empty if one.default is MISSING else one.default

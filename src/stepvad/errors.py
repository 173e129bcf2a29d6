"""Exceptions with hints, and progress reports of long computations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


class StepvadError(Exception):
    """Base class of all errors that stepvad raises.

    `problem` states what was expected and what was found, `hint` the remedy.

    Examples:
        >>> StepvadError("expected one clip, got none", hint="record one").hint
        'record one'
    """

    def __init__(self, problem: str, *, hint: str = "") -> None:
        super().__init__(f"{problem}; {hint}" if hint else problem)
        self.problem = problem
        self.hint = hint


class ConfigError(StepvadError):
    """An invalid setting.

    Examples:
        >>> Config(T=0)
        Traceback (most recent call last):
        stepvad.errors.ConfigError: T: expected at least 1, got 0
    """


class DataError(StepvadError):
    """Malformed pose or label data.

    Examples:
        >>> read_clip("lobby.json")
        Traceback (most recent call last):
        stepvad.errors.DataError: lobby.json: expected a readable file, got: ...
    """

    def located(self, where: str) -> DataError:
        """Return the same error, prefixed with its location."""
        return DataError(f"{where}: {self.problem}", hint=self.hint)


class ModelFileError(StepvadError):
    """A file that is not a usable model.

    Examples:
        >>> Detector.load("gone.safetensors")
        Traceback (most recent call last):
        stepvad.errors.ModelFileError: gone.safetensors: cannot be read: ...
    """


class MissingExtraError(StepvadError):
    """A feature whose optional dependency is not installed.

    Examples:
        >>> MissingExtraError("watch", "live").hint
        "pip install 'stepvad[live]'"
    """

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs the {extra} extra", hint=f"pip install 'stepvad[{extra}]'"
        )
        self.feature = feature
        self.extra = extra

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str]]:
        """Pickle by constructor arguments."""
        return type(self), (self.feature, self.extra)


def os_reason(error: OSError) -> str:
    """The system's words for an error; those of its maker if it has no number."""
    return error.strerror or str(error) or type(error).__name__


@dataclass(frozen=True, slots=True)
class Progress:
    """One report: `done` of `total` units of a stage, with an optional note."""

    stage: str
    done: int
    total: int
    note: str = ""


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Discard the report."""

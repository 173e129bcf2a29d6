"""What can go wrong, each error with the remedy beside it.

StepvadError
├── ConfigError        a setting that no model can have
├── DataError          pose or label data that breaks its format
├── ModelFileError     a file that is not a usable model
└── MissingExtraError  a feature whose optional dependency is not installed
"""

from __future__ import annotations


class StepvadError(Exception):
    """Base of all errors raised on purpose.

    `problem` says what was expected and what was got, `hint` the remedy.
    """

    def __init__(self, problem: str, *, hint: str = "") -> None:
        super().__init__(f"{problem}; {hint}" if hint else problem)
        self.problem = problem
        self.hint = hint


class ConfigError(StepvadError):
    """A setting that no model can have."""


class DataError(StepvadError):
    """Pose or label data that breaks its format."""

    def located(self, where: str) -> DataError:
        """The same error with the place it happened at in front."""
        return DataError(f"{where}: {self.problem}", hint=self.hint)


class ModelFileError(StepvadError):
    """A file that is not a usable model."""


class MissingExtraError(StepvadError):
    """A feature whose optional dependency is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs the {extra} extra", hint=f"pip install 'stepvad[{extra}]'"
        )
        self.feature = feature
        self.extra = extra

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str]]:
        """Pass from process to process as what it was made of."""
        return type(self), (self.feature, self.extra)

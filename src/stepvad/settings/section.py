"""A section of settings and the kinds of values in it: paths, secrets, hours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo

from stepvad.errors import ConfigError
from stepvad.files.secrets import is_reference
from stepvad.incidents.hours import WatchHours
from stepvad.settings.addresses import recording_address

NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"


def beside(path: Path, info: ValidationInfo) -> Path:
    """Resolve a path relative to the settings file."""
    directory = (info.context or {}).get("directory")
    return path if directory is None else directory / path.expanduser()


def reference(text: str, info: ValidationInfo) -> str:
    """Validate a reference to a secret; file paths are relative to the settings file."""
    if not is_reference(text):
        raise ValueError(
            "expected env:NAME or file:PATH, got something else | "
            "put the secret into an environment variable or a file and name that here"
        )
    kind, _, rest = text.partition(":")
    return text if kind == "env" else f"file:{beside(Path(rest), info)}"


def _hours(spans: list[str]) -> list[str]:
    """Validate hours of the day."""
    try:
        WatchHours.parse(spans)
    except ConfigError as error:
        raise ValueError(f"{error.problem} | {error.hint}") from None
    return spans


Beside = Annotated[Path, AfterValidator(beside)]
Reference = Annotated[str, AfterValidator(reference)]
RecordingAddress = Annotated[str, AfterValidator(recording_address)]
Hours = Annotated[list[str], AfterValidator(_hours)]


class Section(BaseModel):
    """A table of settings: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


def check_distinct(names: Iterable[str]) -> None:
    """Raise if a name occurs twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"expected distinct names, got {twice[0]!r} twice | rename one of them")

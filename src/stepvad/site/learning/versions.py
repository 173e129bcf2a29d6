"""The models that a site has learned: the current one, and older ones to go back to."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from stepvad.codec import Count, decode
from stepvad.errors import ConfigError, DataError, StepvadError
from stepvad.files import is_unread, read_bounded, write_state
from stepvad.site.settings.sections import CURRENT, LEARNED, MODEL_NAME, LearningMethod

FACTS = "learned.json"
MAX_BYTES = 1 << 22
_PART = ".part"


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of footage."""

    hours: float = 0.0
    """Hours of recordings with people in them."""
    people: Count = 0
    """Tracks that are long enough to be learned from; a person may have several."""

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.hours + other.hours, self.people + other.people)


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """The facts of a learned model."""

    name: str
    """Name of its directory: when it was made."""
    made: float
    """Unix time."""
    method: LearningMethod
    footage: Amount
    """Recordings that there were."""
    cameras: tuple[str, ...]
    """Cameras with recordings that it was fitted on."""
    changed: str = ""
    """Change from the model before, for an operator."""
    folds: Mapping[str, Count] = field(default_factory=dict)
    """Names of the recordings that it was fitted on, with the part of them that each is in."""
    until: float
    """Begin of the latest recording; later ones are new to it."""

    version: Literal[1] = 1

    def save(self, directory: Path) -> None:
        """Write it beside the model."""
        write_state(directory / FACTS, self)

    @classmethod
    def load(cls, directory: Path) -> Learned:
        """Read what `save` wrote."""
        try:
            data = read_bounded(directory / FACTS, most=MAX_BYTES)
            return decode(cls, data, "learned model")
        except (OSError, StepvadError) as error:
            raise DataError(
                f"{directory}: expected a learned model, got: {str(error)[:200]}",
                hint="the site can go back to another one: stepvad inspect SITE.toml",
            ) from error


class Versions:
    """The learned models of a site, each in a directory; a link names the current one."""

    def __init__(self, data: Path) -> None:
        self.directory = data / LEARNED

    @property
    def current(self) -> Learned | None:
        """The model in use; None before the first, or if its facts are damaged.

        Raise `DataError` if its facts cannot be read now or are of a newer version, so that nobody
        learns a first model again.
        """
        try:
            return Learned.load(self.directory / CURRENT)
        except DataError as error:
            if is_unread(error.__cause__):
                raise
            return None

    @property
    def model(self) -> Path:
        """The file of the model in use."""
        return self.directory / CURRENT / MODEL_NAME

    def all(self) -> list[Learned]:
        """All models, the newest first."""
        found = []
        for path in self.directory.glob("*/"):
            if path.name != CURRENT and path.suffix != _PART:
                with suppress(DataError):
                    found.append(Learned.load(path))
        return sorted(found, key=lambda one: (one.made, one.name), reverse=True)

    def new_directory(self, now: float) -> Path:
        """An empty directory for a new model; what an interrupted round left is removed."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        # what an interrupted round left
        for path in self.directory.glob(f"*{_PART}"):
            shutil.rmtree(path, ignore_errors=True)
        made = self.directory / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}{_PART}"
        made.mkdir(mode=0o700)
        return made

    def finish(self, made: Path, *, keep: int) -> Path:
        """Make a new model the current one, and delete all but the `keep` newest older ones."""
        # complete from here on: it gets its name, then the link, then old ones go
        path = made.with_suffix("")
        made.rename(path)
        self.use(path.name)
        for old in self.all()[keep + 1 :]:
            if old.name != path.name:
                shutil.rmtree(self.directory / old.name, ignore_errors=True)
        return path

    def use(self, name: str) -> None:
        """Make a kept model the current one."""
        known = {one.name for one in self.all()}
        if name not in known:
            raise ConfigError(
                f"learned model: expected one of {', '.join(sorted(known)) or 'none'}, "
                f"got {name!r:.80}",
                hint="the page lists them",
            )
        # replaced in one step: there is always a current model
        link = self.directory / f"{CURRENT}{_PART}"
        link.unlink(missing_ok=True)
        link.symlink_to(name)
        link.replace(self.directory / CURRENT)


def learned_beside(model: Path) -> Learned | None:
    """The facts of a learned model; None of one that somebody else made."""
    return Learned.load(model.parent) if (model.parent / FACTS).exists() else None


@dataclass(frozen=True, slots=True)
class LearnedFacts:
    """A learned model as it is listed."""

    name: str
    made: float
    hours: float
    """Hours of motion that it was learned from."""
    people: int
    changed: str
    """Change from the model before, in words."""
    is_current: bool


def facts(versions: Versions) -> list[LearnedFacts]:
    """All models, the newest first."""
    current = None
    with suppress(DataError):  # of facts that cannot be read now
        current = versions.current
    return [
        LearnedFacts(
            name=one.name,
            made=one.made,
            hours=round(one.footage.hours, 3),
            people=one.footage.people,
            changed=one.changed,
            is_current=current is not None and current.name == one.name,
        )
        for one in versions.all()
    ]

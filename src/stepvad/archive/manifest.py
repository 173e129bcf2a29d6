"""The manifest of a place with scores: their model and their input files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any, Literal

from stepvad.archive.layout import directory
from stepvad.archive.scorefacts import (
    FORMAT,
    InputFacts,
    ScoreFacts,
    ScoreIdentity,
)
from stepvad.archive.shards import Job, ShardOutcome
from stepvad.archive.storage import Directory
from stepvad.codec import Count, decode, to_plain
from stepvad.config import Config
from stepvad.errors import DataError, StepvadError

NAME = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """Manifest entry of one score file."""

    inputs: tuple[InputFacts, ...]
    windows: Count
    flat_windows: Count
    counts: dict[str, Count]
    stepvad: str
    clips: Count

    @classmethod
    def of(cls, facts: ScoreFacts) -> ShardEntry:
        """Build the entry from the facts of a score file."""
        return cls(
            inputs=facts.inputs,
            windows=facts.windows,
            flat_windows=facts.flat_windows,
            counts=facts.counts,
            stepvad=facts.stepvad,
            clips=len(facts.clips),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(ScoreIdentity):
    """The model of the scores in a place, and their progress."""

    stepvad: str = version("stepvad")
    model: str
    config: dict[str, Any]
    """The model's settings, for reference."""
    state: str
    shards: dict[str, ShardEntry]
    failed: dict[str, str]
    totals: dict[str, Count] = field(init=False)
    """Sums over all shards."""
    format: Literal[1] = 1

    def __post_init__(self) -> None:
        """Add up the shards."""
        entries = self.shards.values()
        totals = {
            "shards": len(entries),
            "files": sum(len(entry.inputs) for entry in entries),
            "clips": sum(entry.clips for entry in entries),
            "windows": sum(entry.windows for entry in entries),
        }
        object.__setattr__(self, "totals", totals)


def read(place: Directory) -> Manifest | None:
    """Read the manifest of a place; None if it has none."""
    text = place.read(NAME)
    if text is None:
        return None
    try:
        return decode(Manifest, text, "manifest")
    except DataError as error:
        raise DataError(
            f"{place.named(NAME)}: expected a manifest of archive score, format {FORMAT}, "
            f"got another file ({error.problem})",
            hint="choose another directory for scores",
        ) from error


def begin(job: Job, config: Config) -> None:
    """Create the manifest of a place; reject a place with scores of another model."""
    known = read(job.scores)
    if known is None:
        _write(job, config, {}, {}, done=False)
        return
    there = asdict(known.identity)
    for name, value in asdict(job.identity).items():
        if there[name] != value:
            raise StepvadError(
                f"{job.scores.named('').rstrip('/')}: expected scores with {name} = {value}, "
                f"got some with {there[name]}",
                hint="choose another directory for other scores",
            )


def finish(job: Job, config: Config, outcomes: Sequence[ShardOutcome]) -> None:
    """Write the outcomes of this run; entries of other directories are kept."""
    known = read(job.scores)
    now = {directory(outcome.shard.name) for outcome in outcomes}
    shards, failed = dict[str, ShardEntry](), dict[str, str]()
    if known is not None:
        shards = {name: one for name, one in known.shards.items() if directory(name) not in now}
        failed = {name: one for name, one in known.failed.items() if directory(name) not in now}
    for outcome in outcomes:
        if outcome.facts is not None:
            shards[outcome.shard.name] = ShardEntry.of(outcome.facts)
        failed |= outcome.failed
    _write(job, config, shards, failed, done=True)


def _write(
    job: Job,
    config: Config,
    shards: dict[str, ShardEntry],
    failed: dict[str, str],
    *,
    done: bool,
) -> None:
    made = Manifest(
        model=job.model.name,
        **asdict(job.identity),
        config=config.facts(),
        state="done" if done else "under way",
        shards=shards,
        failed=failed,
    )
    with job.scores.replacing(NAME) as temporary:
        text = json.dumps(to_plain(made), indent=1, sort_keys=True)
        temporary.write_text(text, encoding="utf-8")

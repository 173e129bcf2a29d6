"""The manifest of a place with scores: their model and their input files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version

from stepvad.archive.layout import directory
from stepvad.archive.scorefacts import (
    FORMAT,
    InputFacts,
    ScoreFacts,
    ScoreIdentity,
    counts_of,
    inputs_of,
    texts_of,
)
from stepvad.archive.shards import Job, ShardOutcome
from stepvad.archive.storage import Directory
from stepvad.codec import Fields, JsonObject, check_version
from stepvad.config import Config
from stepvad.errors import DataError, StepvadError
from stepvad.formats import jsonfile

NAME = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """Manifest entry of one score file."""

    inputs: tuple[InputFacts, ...]
    windows: int
    flat_windows: int
    counts: Mapping[str, int]
    stepvad: str
    clips: int

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

    @classmethod
    def from_json(cls, own: Fields) -> ShardEntry:
        """Parse an entry."""
        return cls(
            inputs=inputs_of(own),
            windows=own.whole("windows"),
            flat_windows=own.whole("flat_windows"),
            counts=counts_of(own),
            stepvad=own.text("stepvad"),
            clips=own.whole("clips"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The model of the scores in a place, and their progress."""

    model: str
    identity: ScoreIdentity
    state: str
    shards: Mapping[str, ShardEntry]
    failed: Mapping[str, str]

    @property
    def totals(self) -> dict[str, int]:
        """Sums over all shards."""
        entries = self.shards.values()
        return {
            "shards": len(entries),
            "files": sum(len(entry.inputs) for entry in entries),
            "clips": sum(entry.clips for entry in entries),
            "windows": sum(entry.windows for entry in entries),
        }

    def to_json(self, config: Config) -> JsonObject:
        """Plain values for JSON, including the model's settings for reference."""
        return {
            "format": FORMAT,
            "stepvad": version("stepvad"),
            "model": self.model,
            **asdict(self.identity),
            "config": config.facts(),
            "state": self.state,
            "shards": {name: asdict(entry) for name, entry in self.shards.items()},
            "failed": dict(self.failed),
            "totals": self.totals,
        }

    @classmethod
    def from_json(cls, facts: object) -> Manifest:
        """Parse the output of `to_json`."""
        own = Fields.of("manifest", facts)
        check_version("manifest", own.value("format"), FORMAT)
        return cls(
            model=own.text("model"),
            identity=ScoreIdentity.from_fields(own),
            state=own.text("state"),
            shards={name: ShardEntry.from_json(one) for name, one in own.objects("shards").items()},
            failed=texts_of(own, "failed"),
        )


def read(place: Directory) -> Manifest | None:
    """Read the manifest of a place; None if it has none."""
    text = place.read(NAME)
    if text is None:
        return None
    try:
        return Manifest.from_json(jsonfile.parse(text))
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
    shards: Mapping[str, ShardEntry],
    failed: Mapping[str, str],
    *,
    done: bool,
) -> None:
    made = Manifest(
        model=job.model.name,
        identity=job.identity,
        state="done" if done else "under way",
        shards=shards,
        failed=failed,
    )
    with job.scores.replacing(NAME) as temporary:
        text = json.dumps(made.to_json(config), indent=1, sort_keys=True)
        temporary.write_text(text, encoding="utf-8")

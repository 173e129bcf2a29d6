"""The manifest of a place with scores: which model they are of, and what they were made of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from stepvad.archive.layout import directory
from stepvad.archive.shards import Job, Outcome
from stepvad.archive.storage import Place
from stepvad.config import Config
from stepvad.errors import DataError, StepvadError
from stepvad.formats import jsonfile

NAME = "manifest.json"
FORMAT = 1


def read(place: Place) -> dict[str, Any] | None:
    """The manifest of a place, if it has one."""
    text = place.read(NAME)
    if text is None:
        return None
    try:
        facts = jsonfile.parse(text)
    except DataError:
        facts = None
    if isinstance(facts, dict) and facts.get("format") == FORMAT and _is_whole(facts):
        return facts
    raise DataError(
        f"{place.named(NAME)}: expected a manifest of archive score, format {FORMAT}, "
        "got another file",
        hint="choose another directory for scores",
    )


def _is_whole(facts: dict[str, Any]) -> bool:
    """Whether it has all that is asked of it."""
    texts = [facts.get(name) for name in ("model", "model_sha256", "engine", "state")]
    shards, failed = facts.get("shards"), facts.get("failed")
    if not (isinstance(shards, dict) and isinstance(failed, dict)):
        return False
    return {*map(type, texts)} == {str} and all(map(_is_entry, shards.values()))


def _is_entry(facts: object) -> bool:
    match facts:
        case {"inputs": list(), "clips": int(), "windows": int()}:
            return True
    return False


def begin(job: Job, config: Config) -> None:
    """Say whose scores a place is for; refuse one that has those of another model."""
    known = read(job.scores)
    if known is None:
        _write(job, config, {}, {}, done=False)
        return
    for name, value in job.identity.items():
        if known.get(name) != value:
            raise StepvadError(
                f"{job.scores.named('').rstrip('/')}: expected scores with {name} = {value}, "
                f"got some with {known.get(name)}",
                hint="choose another directory for other scores",
            )


def finish(job: Job, config: Config, outcomes: Sequence[Outcome]) -> None:
    """Write what is there now; what other runs scored in other directories stays."""
    known = read(job.scores) or {}
    now = {directory(outcome.shard.name) for outcome in outcomes}
    shards, failed = (
        {name: value for name, value in known.get(part, {}).items() if directory(name) not in now}
        for part in ("shards", "failed")
    )
    for outcome in outcomes:
        if outcome.facts is not None:
            shards[outcome.shard.name] = _entry(outcome.facts)
        failed |= outcome.failed
    _write(job, config, shards, failed, done=True)


def _entry(facts: dict[str, Any]) -> dict[str, Any]:
    kept = ("inputs", "windows", "flat_windows", "counts", "stepvad")
    return {name: facts[name] for name in kept} | {"clips": len(facts["clips"])}


def _write(
    job: Job, config: Config, shards: dict[str, Any], failed: dict[str, str], *, done: bool
) -> None:
    facts = {
        "format": FORMAT,
        "stepvad": version("stepvad"),
        "model": job.model.name,
        **job.identity,
        "config": asdict(config),
        "state": "done" if done else "under way",
        "shards": shards,
        "failed": failed,
        "totals": {
            "shards": len(shards),
            "files": sum(len(entry["inputs"]) for entry in shards.values()),
            "clips": sum(entry["clips"] for entry in shards.values()),
            "windows": sum(entry["windows"] for entry in shards.values()),
        },
    }
    with job.scores.replacing(NAME) as temporary:
        temporary.write_text(json.dumps(facts, indent=1, sort_keys=True), encoding="utf-8")

"""Inventory of an archive: poses by camera and date, scores by model, and their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stepvad.archive import manifest
from stepvad.archive.layout import SUFFIX, camera_of, date_of, shards
from stepvad.archive.scorefile import read_facts
from stepvad.archive.storage import Directory
from stepvad.errors import StepvadError


@dataclass(frozen=True, slots=True)
class CameraFootage:
    """The poses of one camera."""

    camera: str
    first_date: str
    last_date: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ScoreCoverage:
    """The scores of one model and the share of the poses they cover."""

    place: str
    model: str
    model_sha256: str
    engine: str
    state: str
    shards: int
    """Shards with scores."""
    of: int | None
    """Shards of the poses; None if no poses were given to compare with."""
    windows: int
    failed: int


@dataclass(frozen=True, slots=True)
class ArchiveInventory:
    """Poses by camera and scores by model."""

    poses: list[CameraFootage]
    scores: list[ScoreCoverage]


def read(places: Sequence[str]) -> ArchiveInventory:
    """List the contents of places: at most one with poses, any number with their scores."""
    found = [Directory.at(text) for text in places]
    of_scores = [place for place in found if manifest.read(place) is not None]
    poses = [place for place in found if place not in of_scores]
    if len(poses) > 1:
        raise StepvadError(
            f"expected poses in one place, got {len(poses)} without scores",
            hint="name one directory of poses, and those that archive score wrote",
        )
    there = [line for place in poses for line in footage(place)]
    if poses and not there:
        raise StepvadError(
            f"{poses[0].url}: expected poses or scores, got neither",
            hint="poses are .parquet files; scores are what archive score wrote",
        )
    return ArchiveInventory(
        there, [scored(place, poses[0] if poses else None) for place in of_scores]
    )


def footage(poses: Directory) -> list[CameraFootage]:
    """The poses of every camera."""
    by_camera: dict[str, list[Any]] = {}
    for file in poses.files(SUFFIX):
        by_camera.setdefault(camera_of(file.name), []).append(file)
    return [
        CameraFootage(
            camera,
            min(date_of(file.name) for file in files),
            max(date_of(file.name) for file in files),
            len(files),
            sum(file.size for file in files),
        )
        for camera, files in sorted(by_camera.items())
    ]


def scored(scores: Directory, poses: Directory | None = None) -> ScoreCoverage:
    """Summarise a place of scores; a shard is done if its inputs match by name and size."""
    facts = manifest.read(scores)
    if facts is None:
        raise StepvadError(
            f"{scores.url}: expected scores of archive score, got no {manifest.NAME}",
            hint="give the directory that archive score wrote to",
        )
    inputs: dict[str, list[tuple[str, int]]] = {}
    windows = 0
    for stored in scores.files(SUFFIX):
        with scores.open(stored.name) as file:
            own = read_facts(file, scores.named(stored.name))
        inputs[stored.name] = [(one.name, one.size) for one in own.inputs]
        windows += own.windows
    done, of = len(inputs), None
    if poses is not None:
        plan = shards(poses.files(SUFFIX))
        wanted = {shard.name: [(file.name, file.size) for file in shard.files] for shard in plan}
        done = sum(inputs.get(name) == files for name, files in wanted.items())
        of = len(plan)
    return ScoreCoverage(
        place=scores.url.removeprefix("file://"),
        model=facts.model,
        model_sha256=facts.identity.model_sha256,
        engine=facts.identity.engine,
        state=facts.state,
        shards=done,
        of=of,
        windows=windows,
        failed=len(facts.failed),
    )

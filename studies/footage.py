"""Measure the whole chain: video in, calibrated alerts out, against labels in seconds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from stepvad.cli.extract import NetworkOptions, VideoJobs
from stepvad.cli.options import grouped
from stepvad.cli.terminal import json_text, notes_of, print_table, progress_bars, say, write_table
from stepvad.config import Config, ViewKind
from stepvad.errors import StepvadError
from stepvad.files import replacing

if TYPE_CHECKING:
    from stepvad.video.recordings import ExtractionSettings
    from studies.chain.alerts import ClipResult
    from studies.chain.footageset import FootageSet
    from studies.chain.measure import ChainSettings, FoldResult, Summary

COLUMNS = (
    *("fold", "threshold", "events found", "delay, median", "delay, largest"),
    *("false alerts per hour", "normal clips with an alert", "AUROC by clip"),
    "found at 10 % false clips",
)
CLIP_COLUMNS = (
    *("clip", "fold", "seconds", "label", "threshold", "highest score", "at second"),
    *("alerts at", "outcome", "delay", "false alerts"),
)


@dataclass(frozen=True, slots=True)
class KnownData:
    """Options of known data in the place of a description."""

    data: Annotated[
        Literal["GMDCSA24", "AIRTLab", "vtest"] | None,
        typer.Option(help="Make the set from known data instead: FOOTAGE is its folder or video."),
    ] = None
    airtlab: Annotated[
        Path | None, typer.Option(help="`GMDCSA24`: also fit on AIRTLab's non-violent clips.")
    ] = None
    every: Annotated[
        int, typer.Option(min=1, help="`AIRTLab`: only acts whose number this divides.")
    ] = 1

    def open(self, path: Path, seed: int) -> FootageSet:
        """The described set, or the one made from known data."""
        from studies.chain import footageset, known

        if self.data is None:
            if self.airtlab is not None or self.every != 1:
                raise StepvadError(
                    "--airtlab, --every: expected --data with them, got none", hint="leave them out"
                )
            return footageset.read(path)
        return known.open_known(self.data, path, airtlab=self.airtlab, every=self.every, seed=seed)


@dataclass(frozen=True, slots=True)
class ChainOptions:
    """The detector, its threshold, and when an event is found."""

    views: Annotated[
        str | None,
        typer.Option(help="Views of a window to combine: pose, and optionally motion and place."),
    ] = None
    alerts_per_hour: Annotated[
        float, typer.Option(help="Alerts per hour of normal footage: the budget of the threshold.")
    ] = 1.0
    within: Annotated[
        float,
        typer.Option(min=0.0, help="Seconds after its start within which an event must be found."),
    ] = 3.0
    drop: Annotated[
        float, typer.Option(min=0, max=0.95, help="Share of frames of test clips to drop.")
    ] = 0.0
    max_steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps; defaults to those of `fit`.")
    ] = None
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the fit, and of the acts of AIRTLab to fit on.")
    ] = 0

    def settings(self) -> ChainSettings:
        """The settings as the library takes them."""
        from studies.chain.measure import ChainSettings

        config = replace(Config.footage(), seed=self.seed)
        if self.max_steps is not None:
            config = replace(config, max_steps=self.max_steps)
        words = [] if self.views is None else [word.strip() for word in self.views.split(",")]
        return ChainSettings(
            config=config,
            views=tuple(cast("list[ViewKind]", words)),
            alerts_per_hour=self.alerts_per_hour,
            within_s=self.within,
            drop=self.drop,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    command = typer.Typer(add_completion=False)
    command.command()(grouped(footage))
    try:
        command(arguments)
    except SystemExit as end:
        if end.code:
            raise


def footage(
    footage: Annotated[
        Path, typer.Argument(metavar="FOOTAGE", help="Description of a footage set, as .json.")
    ],
    *,
    known: KnownData,
    poses: Annotated[
        Path, typer.Option(help="Directory for the extracted poses; those in it are reused.")
    ] = Path("poses"),
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Directory for the tables.")
    ] = Path(),
    networks: NetworkOptions,
    jobs: VideoJobs = None,
    chain: ChainOptions,
) -> None:
    """Measure the whole chain: video in, calibrated alerts out, against labels in seconds.

    Your own set; clips are videos or pose files, labelled in seconds or as a whole:

        python -m studies footage hall.json --poses poses -o results

    Known data:

        python -m studies footage GMDCSA24 --data GMDCSA24 --airtlab AIRTLab --poses poses

        python -m studies footage AIRTLab --data AIRTLab --every 2 --poses poses

        python -m studies footage vtest.avi --data vtest --poses poses

    Poses are extracted once; repeat the command to resume a run that was stopped. The detector is
    fitted as by `stepvad fit`, and the threshold is calibrated on normal clips that it was not
    fitted on. If they are too short to promise a rate, the threshold is their
    highest score. Writes NAME.md, .csv and .json, the clips one by one as NAME-clips.csv, and the
    set as NAME-set.json.
    """
    from studies.chain import footageset, posecache
    from studies.chain.measure import measure

    chosen, settings = known.open(footage, chain.seed), chain.settings()
    clips = chosen.used()
    output.mkdir(parents=True, exist_ok=True)
    with progress_bars() as report, notes_of("stepvad.video"), notes_of("stepvad.site"):
        extraction = _extraction(chosen, poses, networks)
        if extraction is not None and not posecache.extract_poses(
            clips, extraction, jobs=jobs, report=report
        ):
            say("stopped; repeat the command to resume")
            raise typer.Exit(130)
        found = posecache.read_poses(clips, extraction)
        results = measure(chosen, found, settings, report=report)
    footageset.write(chosen, output / f"{chosen.name}-set.json")
    _show(chosen, settings, results, output)


def _extraction(
    chosen: FootageSet, poses: Path, networks: NetworkOptions
) -> ExtractionSettings | None:
    """How poses are extracted; None without videos, which needs no networks."""
    if not any(clip.is_video for clip in chosen.used()):
        return None
    return networks.extraction(poses)


def _show(
    chosen: FootageSet, settings: ChainSettings, results: Sequence[FoldResult], output: Path
) -> None:
    from studies.chain.measure import Summary

    clips = [clip for result in results for clip in result.clips]
    whole = Summary.of(clips)
    rows = [
        _cells(one.name, f"{one.threshold.value:.2f}", Summary.of(one.clips)) for one in results
    ]
    if len(results) > 1:
        rows.append(_cells("all", "-", whole))
    print_table(chosen.name, COLUMNS, rows)
    for suffix in (".md", ".csv"):
        write_table(COLUMNS, rows, output / f"{chosen.name}{suffix}")
    write_table(
        CLIP_COLUMNS, [_clip_cells(clip) for clip in clips], output / f"{chosen.name}-clips.csv"
    )
    facts = {
        "name": chosen.name,
        "note": chosen.note,
        "views": settings.views,
        "config": asdict(settings.config),
        "within_s": settings.within_s,
        "alerts_per_hour": settings.alerts_per_hour,
        "summary": asdict(whole),
        "folds": [asdict(result) for result in results],
    }
    with replacing(output / f"{chosen.name}.json") as file:
        file.write_text(json_text(facts) + "\n", "utf-8")
    for line in _remarks(chosen, results):
        say(line)
    say(f"written: {output / chosen.name}.md, .csv, .json, -clips.csv and -set.json")


def _remarks(chosen: FootageSet, results: Sequence[FoldResult]) -> list[str]:
    """What the figures rest on: footage of each use, and the kind of threshold."""
    lines = [chosen.note] if chosen.note else []
    for one in results:
        used = ", ".join(
            f"{use} {one.n_clips[use]} clips of {one.seconds[use]:.0f} s" for use in one.n_clips
        )
        words = one.threshold.words
        lines.append(f"{one.name}: {used}; {one.windows:,} windows; threshold: {words}")
    return lines


def _cells(name: str, threshold: str, summary: Summary) -> list[str]:
    delays, auroc, hours = summary.delays_s, summary.auroc, summary.normal_hours
    duration = f"{3600 * hours:.0f} s" if hours < 1 / 6 else f"{hours:.1f} h"
    return [
        name,
        threshold,
        str(summary.found),
        f"{statistics.median(delays):.1f} s" if delays else "-",
        f"{delays[-1]:.1f} s" if delays else "-",
        f"{summary.false_per_hour:.0f} ({summary.false_alerts} in {duration})",
        str(summary.false_clips),
        f"{auroc.value:.2f} ({auroc.low:.2f} to {auroc.high:.2f})".replace(" (nan to nan)", ""),
        str(summary.found_at),
    ]


def _clip_cells(clip: ClipResult) -> list[str]:
    delays = [event.delay_s for event in clip.events if event.delay_s is not None]
    return [
        clip.name,
        clip.fold,
        f"{clip.duration_s:.1f}",
        "abnormal" if clip.is_abnormal else "normal",
        f"{clip.threshold:.2f}",
        f"{clip.peak:.2f}",
        "-" if clip.peak_s is None else f"{clip.peak_s:.1f}",
        " ".join(f"{alert.raised_s:.1f}" for alert in clip.alerts) or "-",
        " ".join(event.outcome for event in clip.events) or "-",
        " ".join(f"{delay:.1f}" for delay in delays) or "-",
        str(clip.false_alerts),
    ]

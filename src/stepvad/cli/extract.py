"""stepvad extract and models: tracked poses from video, and the networks that find them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from stepvad.cli import options, terminal
from stepvad.config import PoseDevice, PoseRuntime
from stepvad.video import models as library

if TYPE_CHECKING:
    from stepvad.video.recordings import ExtractionSettings, RecordingOutcome

STATES = {True: "intact", False: "damaged", None: "-"}
"""State of a network's file in the cache."""
TROUBLE = {
    "skipped": "undecodable",
    "resolution_changes": "changes of resolution",
}
"""Counts of a video that the table shows if they are not 0."""
VideoJobs = Annotated[
    int | None,
    Option(min=1, help="Videos to process in parallel; defaults to the number of cores."),
]


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """Networks that detect people and their joints."""

    detector: Annotated[str, Option(help="Person detector: a known name or an ONNX file.")] = (
        library.DETECTOR
    )
    pose: Annotated[str, Option(help="Pose estimator: a known name or an ONNX file.")] = (
        library.POSE
    )
    engine: Annotated[
        PoseRuntime,
        Option(
            help="Inference engine. `auto`: OpenVINO if the processor supports bfloat16, else ONNX "
            "Runtime."
        ),
    ] = "auto"
    device: Annotated[
        PoseDevice, Option(help="Processor or accelerator that runs the networks.")
    ] = "cpu"
    min_confidence: Annotated[
        float,
        Option(
            min=0.0,
            max=1.0,
            help="Drop people with a lower mean joint confidence; most are false detections.",
        ),
    ] = 0.25
    rate: Annotated[
        float | None, Option(min=0.1, help="Maximum frames per second to process; defaults to all.")
    ] = None

    def extraction(self, output: Path) -> ExtractionSettings:
        """Settings of an extraction with these networks, which are downloaded if need be."""
        from stepvad.video.extract import ExtractionOptions
        from stepvad.video.networks import choose_engine
        from stepvad.video.recordings import ExtractionSettings

        return ExtractionSettings.with_networks(
            output,
            (self.detector, self.pose),
            choose_engine(self.engine, "auto", self.device),
            ExtractionOptions(min_confidence=self.min_confidence, rate=self.rate),
        )


@options.grouped
def extract(
    output: Annotated[
        Path, Option("-o", "--output", help="Output directory; one .parquet file per video.")
    ],
    *,
    videos: Annotated[list[str], Argument(help="Video files and folders of pictures.")],
    networks: NetworkOptions,
    frames: options.FramePart = ":",
    fps: options.FpsOption = None,
    jobs: VideoJobs = None,
    as_json: options.AsJson = False,
) -> None:
    """Extract tracked poses from videos; no image is stored.

    Several videos, with networks that are downloaded once and cached:

        stepvad extract monday.mp4 tuesday.mp4 -o poses/

    The first 500 frames, then the rest, with your own networks:

        stepvad extract lobby.mp4 -o poses/ --detector d.onnx --pose p.onnx --frames :500

        stepvad extract lobby.mp4 -o poses/ --detector d.onnx --pose p.onnx --frames 500:

    A folder of pictures, frame_1.jpg to frame_900.jpg, taken 15 times a second (25 without --fps):

        stepvad extract frames/ -o poses/ --fps 15

    To resume after a stop, repeat the command: finished videos are skipped, and an unfinished one
    continues where it stopped. A site records the poses of cameras.
    """
    from stepvad.video import recordings
    from stepvad.video.extract import FrameRange
    from stepvad.video.source import PICTURE_RATE

    part = FrameRange(*options.frame_range(frames))
    rate = PICTURE_RATE if fps is None else fps
    sources = recordings.open_sources(videos, part, picture_rate=rate)
    with terminal.progress_bars() as report, terminal.notes_of("stepvad.video"):
        outcomes = recordings.extract_all(
            sources, networks.extraction(output), jobs=jobs, report=report
        )
    _print(outcomes, as_json=as_json)
    # one bad video does not stop the others: their errors come at the end
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    for error in errors[:-1]:
        terminal.say_error(error.problem, error.hint)
        terminal.say("")
    if errors:
        raise errors[-1]
    # 130 is the exit code of Ctrl-C
    if any(outcome.state == "unfinished" for outcome in outcomes):
        terminal.say("stopped; repeat the command to resume")
        raise Exit(130)


def _print(outcomes: list[RecordingOutcome], *, as_json: bool) -> None:
    if as_json:
        terminal.print_json([_facts(outcome) for outcome in outcomes])
        return
    columns = ["video", "frames", "people/frame", "tracks", "mean length", "unsure", "empty"]
    rows = [_row(outcome) for outcome in outcomes]
    terminal.print_table("poses of each video", [*columns, "frames/s", "notes"], rows)


def _facts(outcome: RecordingOutcome) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "video": outcome.name,
        "file": str(outcome.file),
        "state": outcome.state,
    }
    if outcome.error is not None:
        facts["error"] = outcome.error.problem
    return facts | (asdict(outcome.summary) if outcome.summary is not None else {})


def _row(outcome: RecordingOutcome) -> list[str]:
    summary = outcome.summary
    if summary is None:
        return [outcome.name, *["-"] * 7, outcome.state]
    counts = asdict(summary.counts)
    troubles = [f"{counts[name]:,} {word}" for name, word in TROUBLE.items() if counts[name]]
    return [
        outcome.name,
        f"{summary.frames:,}",
        f"{summary.people_per_frame:.2f}",
        f"{summary.tracks:,}",
        f"{summary.mean_track_length:.1f}",
        f"{100 * summary.low_confidence:.1f} %",
        f"{summary.empty_frames:,}",
        "-" if summary.frames_per_s is None else f"{summary.frames_per_s:.1f}",
        ", ".join(troubles) or outcome.state,
    ]


def models(
    names: Annotated[
        list[str] | None,
        Argument(help="Names of networks; to fetch, defaults to the detector and pose network."),
    ] = None,
    *,
    fetch: Annotated[
        bool, Option("--fetch", help="Download networks into the cache, and verify them.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """List the networks that find people and joints: licence, and whether each file is intact.

        stepvad models

    Download the default ones:

        stepvad models --fetch

    For a machine without internet, copy the directory of the fetched files: the cache, or
    STEPVAD_CACHE.
    """
    if fetch:
        with terminal.notes_of("stepvad.video"):
            for card in library.cards_of(names or []):
                path = library.model_file(card.name)
                terminal.say(f"{card.name}: {path}, licence {card.licence}")
        return
    _list_models(library.cards_of(names) if names else library.CARDS, as_json=as_json)


def _list_models(cards: Sequence[library.ModelCard], *, as_json: bool) -> None:
    rows = [
        {
            "name": card.name,
            "role": card.role,
            "default": card.name in (library.DETECTOR, library.POSE),
            "measured": card.measured,
            "licence": card.licence,
            "state": STATES[library.is_whole(card)],
            "file": str(card.cached),
            "url": card.url,
            "sha256": card.sha256,
        }
        for card in cards
    ]
    if as_json:
        terminal.print_json(rows)
        return
    columns = ["name", "role", "measured", "licence", "state", "from"]
    cells = [
        [
            f"{row['name']}{' (default)' if row['default'] else ''}",
            *(str(row[name]) for name in ("role", "measured", "licence", "state")),
            str(row["url"]).partition("//")[2].partition("/")[0] or "your own file",
        ]
        for row in rows
    ]
    terminal.print_table("networks", columns, cells)

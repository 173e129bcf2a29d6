"""stepvad extract: tracked poses from video files and cameras."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stepvad.cli.engine import Threads
from stepvad.cli.groups import grouped
from stepvad.cli.options import FramePart, frame_range
from stepvad.cli.terminal import (
    AsJson,
    notes_of,
    print_json,
    print_table,
    progress_bars,
    say,
    say_error,
)

if TYPE_CHECKING:
    from stepvad.intake.recordings import RecordingOutcome

Videos = Annotated[
    list[str],
    typer.Argument(help="Video files, and cameras as rtsp:// addresses or NAME=rtsp://…"),
]
PosesOutput = Annotated[
    Path, typer.Option("-o", "--output", help="Directory that gets a .parquet file per video.")
]
DetectorName = Annotated[str, typer.Option(help="Finds people: a known name, or an ONNX file.")]
PoseName = Annotated[str, typer.Option(help="Places joints: a known name, or an ONNX file.")]
EngineOption = Annotated[
    Literal["onnxruntime", "openvino"], typer.Option(help="What computes the networks.")
]
MinConfidence = Annotated[
    float,
    typer.Option(
        min=0.0,
        max=1.0,
        help="People whose joints have a lower mean confidence are left out: most are no people.",
    ),
]
VideoJobsOption = Annotated[
    int | None, typer.Option(min=1, help="Videos at a time; else as many as there are cores.")
]
Duration = Annotated[
    float | None, typer.Option(min=0.0, help="Seconds after which cameras end; else at Ctrl-C.")
]
Credentials = Annotated[
    Path | None,
    typer.Option(help="A file with one line user:password for the cameras, read by nobody else."),
]
TlsCa = Annotated[
    Path | None,
    typer.Option(
        help="For rtsps:// and https://: a PEM file with the cameras' authority or certificate."
    ),
]
TlsInsecure = Annotated[
    bool,
    typer.Option("--tls-insecure", help="Take any certificate: whoever answers gets the password."),
]


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """Networks that detect people and their joints."""

    detector: DetectorName = "yolox-nano"
    pose: PoseName = "rtmpose-s"
    engine: EngineOption = "onnxruntime"
    min_confidence: MinConfidence = 0.25


@dataclass(frozen=True, slots=True)
class CameraOptions:
    """How to connect to cameras, and when to stop."""

    duration: Duration = None
    credentials: Credentials = None
    tls_ca: TlsCa = None
    tls_insecure: TlsInsecure = False


USUAL_NETWORKS, USUAL_CAMERAS = NetworkOptions(), CameraOptions()


@grouped
def extract(
    videos: Videos,
    output: PosesOutput,
    *,
    networks: NetworkOptions = USUAL_NETWORKS,
    frames: FramePart = ":",
    jobs: VideoJobsOption = None,
    threads: Threads = None,
    cameras: CameraOptions = USUAL_CAMERAS,
    as_json: AsJson = False,
) -> None:
    """Find the people of videos, their joints and who is who; no picture is kept.

    All videos, with networks that are fetched once and kept:

        stepvad extract monday.mp4 tuesday.mp4 -o poses/

    The first 500 frames and the rest, with networks of your own:

        stepvad extract lobby.mp4 -o poses/ --detector d.onnx --pose p.onnx --frames :500

        stepvad extract lobby.mp4 -o poses/ --detector d.onnx --pose p.onnx --frames 500:

    A camera for ten minutes, its user:password from the environment:

        stepvad extract 'door=rtsp://${LOGIN}@10.0.0.5/live' -o poses/ --duration 600

    Repeat a command that was stopped: finished videos are skipped, an unfinished one goes on where
    it was. Ctrl-C ends cameras and keeps what they saw.
    """
    from stepvad.intake.recordings import ExtractionSettings, extract_all, open_sources
    from stepvad.video.extract import FrameRange
    from stepvad.video.tls import CameraTls

    sources = open_sources(
        videos,
        cameras.credentials,
        frames=FrameRange(*frame_range(frames)),
        duration_s=cameras.duration,
        tls=CameraTls(cameras.tls_ca, cameras.tls_insecure),
    )
    with progress_bars() as report, notes_of("stepvad.video"), notes_of("stepvad.intake"):
        settings = ExtractionSettings.of(
            output,
            networks.detector,
            networks.pose,
            engine=networks.engine,
            min_confidence=networks.min_confidence,
            duration_s=cameras.duration,
        )
        outcomes = extract_all(sources, settings, jobs=jobs, threads=threads, report=report)
    _print(outcomes, as_json=as_json)
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    for error in errors[:-1]:
        say_error(error.problem, error.hint)
        say("")
    if errors:
        raise errors[-1]
    if any(outcome.state == "unfinished" for outcome in outcomes):
        say("stopped; the same command goes on from here")
        raise typer.Exit(130)


def _print(outcomes: list[RecordingOutcome], *, as_json: bool) -> None:
    if as_json:
        print_json([_facts(outcome) for outcome in outcomes])
        return
    columns = ["video", "frames", "people/frame", "tracks", "mean length", "unsure", "empty"]
    rows = [_row(outcome) for outcome in outcomes]
    print_table("poses of each video", [*columns, "frames/s", "notes"], rows)


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
    return [
        outcome.name,
        f"{summary.frames:,}",
        f"{summary.people_per_frame:.2f}",
        f"{summary.tracks:,}",
        f"{summary.mean_track_length:.1f}",
        f"{100 * summary.low_confidence:.1f} %",
        f"{summary.empty_frames:,}",
        "-" if summary.frames_per_s is None else f"{summary.frames_per_s:.1f}",
        ", ".join(_notes(asdict(summary.counts), summary.lag_s)) or outcome.state,
    ]


def _notes(counts: dict[str, Any], lag_s: float | None) -> list[str]:
    """Problems during extraction, and the lag of a camera's last frame."""
    words = {
        "skipped": "undecodable",
        "resolution_changes": "changes of resolution",
        "dropped": "dropped",
        "reconnects": "reconnects",
        "stalls": "stalls",
    }
    notes = [f"{counts[name]:,} {word}" for name, word in words.items() if counts.get(name)]
    if counts.get("reconnects"):
        notes.append(f"{counts['offline_s']:.0f} s offline")
    if lag_s is not None:
        notes.append(f"{lag_s:.1f} s behind")
    return notes

"""stepvad evaluate, walkers: AUROC, AP and EER on labelled clips; synthetic ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option, echo

from stepvad.cli import options, terminal
from stepvad.config import Aggregation, Config
from stepvad.errors import StepvadError

if TYPE_CHECKING:
    from stepvad.evaluation import protocol as protocols
    from stepvad.evaluation.datasets import Dataset
    from stepvad.model.scoring import Placement

NAMES: dict[Placement, str] = {
    "latest": "online",
    "center": "centre",
    "backtrack": "backtrack",
    "backtrack_max": "backtrack max",
}


@dataclass(frozen=True, slots=True)
class ProtocolOptions:
    """The frames that count, and how window scores become frame scores."""

    split: options.SplitName = "full"
    placements: Annotated[
        str,
        Option(
            help="Frames that get a window's score: `latest`, `center`, `backtrack`, "
            "`backtrack_max`."
        ),
    ] = "latest,backtrack"
    aggregation: Annotated[
        str | None, Option(help="`max`, `sum`, `top2`, `top3`, or the number of one scale.")
    ] = None
    frame_sigma: Annotated[
        float | None,
        Option(min=0, max=1e4, help="Smoothing in frames; defaults to the data set's own."),
    ] = None
    smoothing: Annotated[
        Literal["filled", "scored"] | None,
        Option(help="Smooth after filling in the floor, or only the scored frames."),
    ] = None


@options.grouped
def evaluate(
    model: options.ModelFile,
    data: Annotated[
        Path,
        Argument(
            help="Data set: poses under pose/test and labels under gt, trajectories, or box tracks."
        ),
    ],
    *,
    protocol: ProtocolOptions,
    method: Annotated[
        Literal["model", "persons", "confidence", "random", "speed", "place"],
        Option(help="Score to evaluate: the model's, or a trivial score on its windows."),
    ] = "model",
    intervals: Annotated[
        bool, Option(help="Add bootstrap intervals over clips, and results per anomaly.")
    ] = False,
    runtime: options.RuntimeName = "auto",
    as_json: options.AsJson = False,
) -> None:
    """Evaluate a model on labelled clips: AUROC, AP and EER over the frames of all clips.

    Trivial scores are listed for comparison (the number of people in a frame, the negative
    confidence of a window, a random number, the speed of the body alone, its distance to the
    nearest place in the training footage): judge a model by its lead over them.

        stepvad evaluate model.safetensors PoseLift

        stepvad evaluate ub.safetensors UBnormal --split hr --json

    Confidence intervals, and which anomalies are found:

        stepvad evaluate model.safetensors people --intervals
    """
    from stepvad.evaluation import baselines, datasets
    from stepvad.evaluation import protocol as protocols

    detector = options.on_engine(baselines.load(model), runtime)
    dataset = datasets.open_dataset(data, split=protocol.split)
    smoothing = dataset.smoothing
    sigma = smoothing.frame_sigma if protocol.frame_sigma is None else protocol.frame_sigma
    over = protocol.smoothing or smoothing.over
    dataset = replace(dataset, smoothing=replace(smoothing, frame_sigma=sigma, over=over))
    chosen = _aggregation(protocol.aggregation, detector.config)
    places = _placements(protocol.placements)

    # window scores of all clips, then the trivial scores of the same windows
    with terminal.progress_bars() as report:
        clips = protocols.score_clips(detector, dataset, aggregation=chosen, report=report)
        clips = protocols.with_motion(clips, dataset, last=protocols.shortest_window(detector))

    # frames without a score get the lowest of all clips, or of their own clip
    result = protocols.tabulate(clips, dataset.smoothing, placements=places)
    per_clip = protocols.tabulate(clips, dataset.smoothing, placements=places, floor="per_clip")
    scored: protocols.ScorerName = "detector" if method == "model" else method
    result.row(method=scored, placement=places[0])  # raises if there are no such scores
    rows = protocols.interval_rows(clips, dataset, places, scored) if intervals else []
    if as_json:
        extra = {"intervals": [asdict(row) for row in rows]} if intervals else {}
        terminal.print_json({"global": asdict(result), "per_clip": asdict(per_clip), **extra})
        return
    fitted = "views" if len(detector.view_settings) > 1 else baselines.method_of(detector)
    title = method if method != "model" else fitted
    _print_rows(f"{title} on {dataset.name}", result, per_clip, scored)
    if rows:
        _print_intervals(rows)
    _print_facts(dataset, result)


def _print_intervals(lines: list[protocols.IntervalRow]) -> None:
    # classes of anomalies, if the data set names them
    names = [*lines[0].by_class]
    rows = [
        [
            NAMES[line.placement],
            "smoothed" if line.smoothed else "raw",
            line.frames,
            f"{100 * line.auroc.value:.1f}",
            f"{100 * line.auroc.low:.1f} to {100 * line.auroc.high:.1f}",
            *(f"{100 * line.by_class[name]:.1f}" for name in names),
        ]
        for line in lines
    ]
    columns = ["protocol", "scores", "frames", "AUROC", "95 % over clips", *names]
    terminal.print_table("how sure, and which anomalies (AUROC, %)", columns, rows)


def _print_rows(
    name: str,
    result: protocols.Evaluation,
    per_clip: protocols.Evaluation,
    method: protocols.ScorerName,
) -> None:
    """Print one line per protocol and selection, with the AUROC of the other floor and scores."""
    # AUROC by method, protocol, smoothing and selection of frames
    found = {_key(row, row.method): row.auroc for row in result.rows}
    trivial = [*dict.fromkeys(row.method for row in result.rows if row.method != "detector")]
    rows = [
        [
            NAMES[row.placement],
            "smoothed" if row.smoothed else "raw",
            row.frames,
            f"{row.n_frames:,}",
            f"{row.n_abnormal:,}",
            *(f"{100 * value:.1f}" for value in (row.auroc, row.ap, row.eer, other.auroc)),
            *(f"{100 * found[_key(row, score)]:.1f}" for score in trivial),
        ]
        for row, other in zip(result.rows, per_clip.rows, strict=True)
        if row.method == method
    ]
    columns = ["protocol", "scores", "frames", "n", "abnormal", "AUROC", "AP", "EER"]
    others = ["per-clip floor", *trivial]
    terminal.print_table(f"{name} (%)", [*columns, *others], rows)


def _print_facts(dataset: Dataset, result: protocols.Evaluation) -> None:
    covered = ", ".join(f"{n:,} {NAMES[where]}" for where, n in result.n_covered.items())
    terminal.say(
        f"{result.n_clips} clips, {result.n_frames:,} frames, {result.n_counted:,} counted, "
        f"with a score: {covered}; {result.n_windows:,} windows, {result.flat_windows:,} flat"
    )
    own = dataset.smoothing
    sigmas = f"{own.frame_sigma:g} frames ({own.person_sigma:g} for each person first)"
    over = "all frames" if own.over == "filled" else "the frames with a score"
    terminal.say(f"smoothed: by a Gaussian of {sigmas} over {over}; floor: global")


def _key(row: protocols.ResultRow, method: str) -> tuple[str, str, bool, str]:
    return method, row.placement, row.smoothed, row.frames


def _placements(text: str) -> list[Placement]:
    """Parse placements separated by commas."""
    chosen: list[Placement] = [name for name in NAMES if name in text.split(",")]
    if len(chosen) != len(text.split(",")):
        raise StepvadError(
            f"--placements: expected some of {', '.join(NAMES)}, got {text}",
            hint="separate them with commas, without spaces",
        )
    return chosen


def _aggregation(text: str | None, config: Config) -> Aggregation | None:
    """The aggregation given by the user, validated by `Config`."""
    if text is None:
        return None
    value = int(text) if text.isdecimal() else text
    return replace(config, aggregation=value).aggregation  # type: ignore[arg-type]  # it checks


def walkers(
    directory: Annotated[Path, Argument(help="Directory to write the data set to.")],
    *,
    train_clips: Annotated[int, Option(min=0, help="Clips of normal motion to fit on.")] = 20,
    test_clips: Annotated[int, Option(min=0, help="Clips with anomalies to measure.")] = 14,
    seed: Annotated[int, Option(min=0, help="The same seed gives the same files.")] = 0,
    contact_sheet: Annotated[
        Path | None, Option(help="Draw sample motions to this .png file.")
    ] = None,
) -> None:
    """Write a small synthetic data set: people who walk and stand, and some who act abnormally.

    Ready to fit and evaluate:

        stepvad walkers people

    In six of seven test clips someone runs, falls, cycles, walks backwards, crouches or fights.
    The layout is that of ShanghaiTech: pose/train, pose/test, gt/test_frame_mask; gt/classes.csv
    lists the class of each anomaly.
    """
    from stepvad.evaluation.walkers import write_dataset

    # the sheet first: it shows within seconds what the clips will hold
    if contact_sheet is not None:
        from stepvad.report.sheets import draw_contact_sheet, strips

        terminal.check_output(contact_sheet)
        draw_contact_sheet(strips(seed=seed), contact_sheet)
    with terminal.progress_bars() as report:
        write_dataset(
            directory, seed=seed, train_clips=train_clips, test_clips=test_clips, report=report
        )
    echo(directory)

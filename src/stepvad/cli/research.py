"""stepvad evaluate, walkers, compare and reproduce: data sets, methods and the paper's figures."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option, echo

from stepvad import evaluation
from stepvad.cli import options, terminal
from stepvad.config import Aggregation, Compute, Config, Precision
from stepvad.errors import StepvadError
from stepvad.executors import Executor

if TYPE_CHECKING:
    from stepvad.evaluation import experiment, runs
    from stepvad.evaluation import protocol as protocols
    from stepvad.evaluation import reproduce as reproduction
    from stepvad.evaluation.datasets import Dataset
    from stepvad.model.scoring import Placement

NAMES: dict[Placement, str] = {
    "latest": "online",
    "center": "centre",
    "backtrack": "backtrack",
    "backtrack_max": "backtrack max",
}


def evaluate(
    model: options.ModelFile,
    data: Annotated[
        Path,
        Argument(
            help="Data set: poses under pose/test and labels under gt, trajectories, or box tracks."
        ),
    ],
    *,
    split: options.SplitName = "full",
    placements: Annotated[
        str,
        Option(
            help="Frames that get a window's score: `latest`, `center`, `backtrack`, "
            "`backtrack_max`."
        ),
    ] = "latest,backtrack",
    aggregation: Annotated[
        str | None, Option(help="`max`, `sum`, `top2`, `top3`, or the number of one scale.")
    ] = None,
    frame_sigma: Annotated[
        float | None,
        Option(min=0, max=1e4, help="Smoothing in frames; defaults to the data set's own."),
    ] = None,
    smoothing: Annotated[
        Literal["filled", "scored"] | None,
        Option(help="Smooth after filling in the floor, or only the scored frames."),
    ] = None,
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
    dataset = datasets.open_dataset(data, split=split)
    own = dataset.smoothing
    sigma = own.frame_sigma if frame_sigma is None else frame_sigma
    over = smoothing or own.over
    dataset = replace(dataset, smoothing=replace(own, frame_sigma=sigma, over=over))
    chosen = _aggregation(aggregation, detector.config)
    places = _placements(placements)

    # window scores of all clips, then the trivial scores of the same windows
    with terminal.progress_bars() as report:
        clips = protocols.score_clips(detector, dataset, aggregation=chosen, report=report)
        clips = protocols.with_motion(clips, dataset, last=protocols.shortest_window(detector))

    # frames without a score get the lowest of all clips, or of their own clip
    result = protocols.tabulate(clips, dataset.smoothing, placements=places)
    per_clip = protocols.tabulate(clips, dataset.smoothing, placements=places, floor="per_clip")
    rows = protocols.interval_rows(clips, dataset, places, "detector") if intervals else []
    if as_json:
        extra = {"intervals": rows} if intervals else {}
        terminal.print_json({"global": result, "per_clip": per_clip, **extra})
        return
    method = baselines.method_of(detector)
    _print_rows(f"{method} on {dataset.name}", result, per_clip)
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


def _print_rows(name: str, result: protocols.Evaluation, per_clip: protocols.Evaluation) -> None:
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
        if row.method == "detector"
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
    return replace(config, aggregation=value).aggregation  # type: ignore[arg-type]  # Config checks it


def walkers(
    directory: Annotated[Path, Argument(help="Directory to write the data set to.")],
    *,
    train_clips: Annotated[int, Option(min=0, help="Clips of normal motion to fit on.")] = 20,
    test_clips: Annotated[int, Option(min=0, help="Clips with anomalies to measure.")] = 14,
    seed: Annotated[int, Option(min=0, help="The same seed gives the same files.")] = 0,
) -> None:
    """Write a small synthetic data set: people who walk and stand, and some who act abnormally.

    Ready to fit and evaluate:

        stepvad walkers people

    In six of seven test clips someone runs, falls, cycles, walks backwards, crouches or fights.
    The layout is that of ShanghaiTech: pose/train, pose/test, gt/test_frame_mask; gt/classes.csv
    lists the class of each anomaly.
    """
    from stepvad.evaluation.walkers import write_dataset

    with terminal.progress_bars() as report:
        write_dataset(
            directory, seed=seed, train_clips=train_clips, test_clips=test_clips, report=report
        )
    echo(directory)


METHODS = "step,raw-modulated,raw,vanilla,knn,mahalanobis"
COLUMNS = ("method", "AUROC", "over seeds", "95 % over clips", "lead of the first", "AP", "EER")
PaperDataset = Literal["ubnormal", "shanghaitech", "msad"]
FIGURES = ("split", "protocol", "scores", "aggregation", "metric", "ours", "paper", "table")
NOT_THE_PAPERS = "not the paper's settings"
"""Note on figures computed with other settings than the paper's."""
PROTOCOLS = {"latest": "online", "backtrack": "backtrack"}


FitExecutor = Annotated[Executor, Option(help="Where to fit: here, or on a Ray cluster.")]
FitJobs = Annotated[int, Option(min=1, help="Fits to run in parallel.")]
TableFile = Annotated[Path | None, Option("--table", help="Table file: .csv, otherwise Markdown.")]


def compare(
    *,
    methods: Annotated[
        str, Option(help="Names from the list above, `all`, or package.module:name.")
    ] = METHODS,
    seeds: Annotated[int, Option(min=1, help="Fits per trained method.")] = 3,
    data: Annotated[
        str,
        Argument(
            help="Data set: poses under pose, labels under gt; trajectories; or "
            "package.module:name."
        ),
    ],
    results: Annotated[Path, Argument(help="Directory for the results, one file per fit.")],
    split: options.SplitName = "full",
    width: Annotated[int, Option(help="Hidden units of the network.")] = 256,
    max_steps: Annotated[int, Option(help="Training steps.")] = 500,
    settings: options.SettingsFile = None,
    jobs: FitJobs = 1,
    executor: FitExecutor = "processes",
    runtime: options.RuntimeName = "auto",
    fps: options.FpsOption = None,
    frames: Annotated[
        Literal["all", "covered", "one-person"],
        Option(help="Frames to measure: all, those with a score, or those with one person."),
    ] = "all",
    table: TableFile = None,
) -> None:
    """Fit methods on a data set's training clips and evaluate them on its test clips.

    Besides STEP (step): step-unweighted, step-unwhitened, vanilla, raw-modulated,
    raw-modulated-unweighted, raw, raw-unweighted, knn, knn-5, knn-unweighted, knn-unwhitened,
    mahalanobis, usual, usual-place (the nearest usual motion; clips need a frame rate).
    raw-modulated is STEP without PCA, raw is MULDE with confidence weights.

    Trivial scores are always listed for comparison: the number of people, the negative confidence,
    a random score, the speed of the body, and its distance to places of training footage.

        stepvad compare people results --methods step,raw,knn --seeds 1

    Your own method is a CustomMethod in one of your modules, your own data set a CustomDataset; the
    module is imported from this directory or from Python's path:

        stepvad compare people results --methods step,mine:speed

    Your own method runs once, after the others, and its scores are not kept.

    Mean and deviation are over seeds, the interval is over clips, and the lead is that of the
    first method, paired over clips. Results already in RESULTS are reused if
    the same code, engine and precision made them.

    The ray executor uses the cluster that RAY_ADDRESS names, or this machine; all its machines must
    see DATA and RESULTS in the same place.
    """
    from stepvad.evaluation import comparison, custom
    from stepvad.evaluation.protocol import FrameView
    from stepvad.evaluation.runs import SweepPlace

    if table is not None:
        terminal.check_output(table)
    config = options.configured(Config.short(), settings, width=width, max_steps=max_steps)
    names = [*comparison.VARIANTS] if methods == "all" else methods.split(",")
    if any(map(custom.is_name, [data, *names])):
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    compute = Compute(runtime=runtime)
    place = SweepPlace(
        data=data, results=results, split=split, compute=compute, jobs=jobs, executor=executor
    )
    trials = comparison.Trials(seeds=[*range(seeds)], fps=fps)
    view = FrameView(smoothed=False, frames=frames)
    # fits that are on disk already are not repeated
    with terminal.progress_bars() as report:
        lines = comparison.compare(
            names, place, config=config, trials=trials, view=view, report=report
        )
    columns, rows = [*COLUMNS, *lines[0].by_class], [_method_cells(line) for line in lines]
    _print_table(f"{place.open().name} (%)", columns, rows, table)


def _print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], file: Path | None
) -> None:
    """Print a table, and write it to a file if there is one."""
    terminal.print_table(title, columns, rows)
    if file is not None:
        terminal.write_table(columns, rows, file)
        terminal.say(f"written: {file}")


def _method_cells(line: evaluation.MethodResult) -> list[str]:
    lead = "-"
    if line.lead is not None:
        lead = f"{_points(line.lead.value)} ({_points(line.lead.low)} to {_points(line.lead.high)})"
    return [
        line.name,
        f"{100 * line.auroc.mean:.1f}",
        f"± {100 * line.auroc.std:.1f}" if line.auroc.n > 1 else "-",
        f"{100 * line.interval.low:.1f} to {100 * line.interval.high:.1f}",
        lead,
        f"{100 * line.ap:.1f}",
        f"{100 * line.eer:.1f}",
        *(f"{100 * value:.1f}" for value in line.by_class.values()),
    ]


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


def reproduce(
    name: Annotated[PaperDataset, Argument(help="Data set of the paper.")],
    *,
    data: Annotated[
        Path, Option(help="Directory of the data set: poses under pose, labels under gt.")
    ],
    results: Annotated[
        Path | None, Option(help="Directory for the results; defaults to NAME-results.")
    ] = None,
    runs: Annotated[int, Option(min=1, help="Training runs; the paper has 20.")] = 20,
    jobs: FitJobs = 1,
    executor: FitExecutor = "processes",
    device: options.Device = "cpu",
    precision: Annotated[Precision, Option(help="Precision of the training.")] = "auto",
    settings: options.SettingsFile = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print what would run and for how long, then exit.")
    ] = False,
    table: TableFile = None,
) -> None:
    """Train and evaluate as the paper does, and report which of its figures hold.

    Show the plan, and how long it takes on this machine:

        stepvad reproduce ubnormal --data UBnormal --dry-run

    Run all of it; you can stop at any time, and the same command resumes it:

        stepvad reproduce ubnormal --data UBnormal --table ubnormal.md

    400 epochs with the data set's learning rate, early stopping by validation AUROC on UBnormal,
    20 runs; every split, online and backtrack, raw and smoothed, four aggregations, AUROC and AP.
    A figure holds if ours is within 0.5 points or within the paper's standard deviation. Results
    already in RESULTS are reused if the same code, device, engine and precision made them.

    --settings makes a shorter trial, as with epochs = 2 and width = 64.
    """
    from stepvad.evaluation import reproduce as reproduction
    from stepvad.evaluation.runs import SweepPlace, sweep

    if table is not None:
        terminal.check_output(table)
    reproduction.check_complete(name, data)
    config = options.configured(reproduction.paper_config(name), settings)
    experiments = reproduction.paper_experiments(name, config, runs)
    splits = reproduction.open_splits(name, data)
    place = SweepPlace(
        data=data,
        results=results or Path(f"{name}-results"),
        compute=Compute(device=device, precision=precision),
        checkpoints=True,
        jobs=jobs,
        executor=executor,
    )

    # the differences from the paper
    differs = reproduction.deviations(name, config, runs, splits["full"])
    _print_differences(name, len(splits), differs)
    if dry_run:
        _print_plan(place, experiments, runs)
        return

    # fits that are on disk already are not repeated
    with terminal.progress_bars() as report:
        finished = sweep(experiments, place, report=report)
        lines = reproduction.reproduced_figures(name, finished, splits, report)
    over = f"mean ± deviation over {runs} runs" if runs > 1 else "one run"
    verdict = "verdict" if not differs else f"verdict, {NOT_THE_PAPERS}"
    rows = [_cells(line) for line in lines]
    judged = [line.figure.holds(line.ours.mean) for line in lines if line.figure is not None]
    _print_table(f"{name}, {over} (%)", [*FIGURES, verdict], rows, table)
    terminal.say(f"{sum(judged)} of {len(judged)} figures of the paper hold")


def _print_differences(name: PaperDataset, n_splits: int, differs: list[str]) -> None:
    """Report all differences from the paper's experiment."""
    from stepvad.evaluation import reproduce as reproduction

    if differs:
        terminal.say(f"{NOT_THE_PAPERS}: {', '.join(differs)}")
    if n_splits < len(reproduction.SETUPS[name].splits):
        terminal.say(
            f"no {reproduction.HUMAN_RELATED}: the lines of the human-related split are left out"
        )
    if name == "msad":
        terminal.say("the reference smoothing of MSAD is none: smoothed lines equal raw ones")


def _cells(line: reproduction.ReproducedFigure) -> list[str]:
    cell, ours, figure = line.cell, line.ours, line.figure
    deviation = f" ± {ours.std:.2f}" if ours.n > 1 else ""
    return [
        cell.split,
        PROTOCOLS[cell.placement],
        "smoothed" if cell.smoothed else "raw",
        cell.aggregation,
        "AUROC" if cell.metric == "auroc" else "AP",
        f"{ours.mean:.2f}{deviation}",
        "-" if figure is None else figure.words,
        "-" if figure is None else figure.table,
        line.verdict,
    ]


def _print_plan(
    place: runs.SweepPlace, experiments: list[experiment.Experiment], n_runs: int
) -> None:
    """Print what would run and about how long it trains: a few real steps are timed."""
    from stepvad.evaluation.runs import digest_of
    from stepvad.model import training
    from stepvad.model.footage import Footage
    from stepvad.windows.views import ViewSettings

    dataset, config = place.open(), experiments[0].config
    # time a few real steps, and scale them to all epochs
    footage = Footage.from_clips(dataset.train_clips(), [ViewSettings(config)])
    steps = config.epochs * ceil(len(footage) / config.batch_size)
    batch, timed = min(len(footage), config.batch_size), replace(config, max_steps=steps)
    hours = steps * training.time_steps(batch, timed, place.compute) / 3600
    digest = digest_of(dataset)
    # fits without a result file of this data, code and engine
    missing = {e.fitting for e in experiments if not place.file(e, digest).exists()}
    echo(f"{dataset.name}: fitted on {len(footage.n_tracks):,} clips, {len(footage):,} windows")
    echo(f"one run: {config.epochs:,} epochs, {steps:,} steps, width {config.width}")
    echo(f"runs: {n_runs}, of which {n_runs - len(missing)} are in {place.results}")
    device = place.compute.device
    echo(f"training on {device}: {hours:.2g} hours a run, {hours * len(missing):.2g} in all")
    echo("a first answer: fewer --runs; more can be added later to the same results")

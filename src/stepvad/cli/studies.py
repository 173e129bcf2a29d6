"""stepvad benchmark study: the paper's studies, each with a table and a plot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from stepvad.cli.groups import grouped
from stepvad.cli.options import FitOptions, SplitName, SweepOptions, ViewOptions, whole_numbers
from stepvad.cli.tables import write_table
from stepvad.cli.terminal import check_output, print_table, progress_bars, say
from stepvad.cli.viewstudy import StudiedViews
from stepvad.config import Compute, Config
from stepvad.errors import StepvadError

if TYPE_CHECKING:
    from stepvad.evaluation.studies import Study, StudyResult

COLUMNS = ("data", "case", "AUROC", "over seeds", "95 % over clips", "difference", "AP", "EER")
NAMES = {
    "grid": "STEP, raw coordinates with either network, and kNN over T and K.",
    "components": "STEP with one part changed at a time.",
    "training": "Shorter and longer trainings.",
    "aggregations": "Aggregations of the noise scales into one score, under every protocol.",
    "confidence": "Methods with and without confidence weights.",
    "jitter": "Methods on test windows with noisy coordinates.",
    "projections": "PCA against an autoencoder and a VAE.",
    "transfer": "Fitted on one data set, measured on another; and fitted on all.",
    "views": "Several views of a window, each alone and joined; events found per false alarm.",
}
METHODS = "step,raw-modulated,raw,knn"
StudyName = Literal[
    "grid",
    "components",
    "training",
    "aggregations",
    "confidence",
    "jitter",
    "projections",
    "transfer",
    "views",
]


SMALL_FIT, ONLINE, FIVE_SEEDS = FitOptions(), ViewOptions(), SweepOptions()
ALL_VIEWS = StudiedViews()


def study(
    name: Annotated[StudyName, typer.Argument(metavar="NAME", help="Name of the study.")],
    data: Annotated[
        list[Path], typer.Argument(help="Data sets: poses under pose, labels under gt.")
    ],
    *,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Directory for the table and the figure.")
    ] = Path(),
    results: Annotated[
        Path, typer.Option(help="Directory for the results, one file per experiment.")
    ] = Path("results"),
    methods: Annotated[
        str, typer.Option(help="For studies of several methods: only these, comma-separated.")
    ] = METHODS,
    T: Annotated[str, typer.Option("--T", help="Frames in a window, comma-separated.")] = "12",
    K: Annotated[str, typer.Option("--K", help="Components, comma-separated.")] = "48",
    fitted: FitOptions = SMALL_FIT,
    view: ViewOptions = ONLINE,
    split: SplitName = "full",
    run: SweepOptions = FIVE_SEEDS,
    studied: StudiedViews = ALL_VIEWS,
) -> None:
    """Run one of the paper's studies.

        stepvad benchmark study grid people -o grid --seeds 1

    {names}

    Writes NAME.md, NAME.csv and NAME.png into the directory of -o; `views` has NAME.json for the
    picture. Mean and deviation are over seeds, intervals over clips; differences are to the
    reference of each case, paired over clips. Results already in the directory of --results are
    reused.
    """
    from stepvad.evaluation import studies
    from stepvad.evaluation.protocol import FrameView

    _check_used(name, methods, view, studied)
    scope = studies.Scope(
        base=fitted.applied(Config.short()),
        seeds=tuple(range(run.seeds)),
        T=whole_numbers("--T", T),
        K=whole_numbers("--K", K),
        methods=tuple(methods.split(",")),
        data=tuple(data),
        split=split,
    )
    output.mkdir(parents=True, exist_ok=True)
    check_output(output / f"{name}.csv")
    fits = studies.Fits(
        results=results,
        jobs=run.jobs,
        executor=run.executor,
        compute=Compute(runtime=run.runtime),
    )
    if name == "views":
        studied.run(scope, view.frames, fits, output)
        return
    chosen = next(study for study in studies.STUDIES if study.name == name)
    frames = FrameView(view.placement, view.smoothed, view.frames)
    with progress_bars() as report:
        lines = studies.run(chosen, scope, fits, frames, report=report)
    _show(chosen, lines, output)


study.__doc__ = (study.__doc__ or "").replace(
    "{names}", "\n\n    ".join(f"`{name}`: {words}" for name, words in NAMES.items())
)
study = grouped(study)


def _check_used(name: StudyName, methods: str, view: ViewOptions, studied: StudiedViews) -> None:
    """Reject options that the study does not use, rather than ignore them."""
    of_views = replace(ONLINE, frames=view.frames)
    idle = {
        "--methods": name == "views" and methods != METHODS,
        "--placement, --smoothed": name == "views" and view != of_views,
        "--views, --densities, --fps": name != "views" and studied != ALL_VIEWS,
    }
    for option, given in idle.items():
        if given:
            raise StepvadError(
                f"{option}: expected a study that uses it, got {name}", hint="leave it out"
            )


def _show(study: Study, lines: list[StudyResult], output: Path) -> None:
    from stepvad.evaluation.figures import draw

    rows = [_cells(line) for line in lines]
    print_table(f"{study.title} (%)", COLUMNS, rows)
    for suffix in (".md", ".csv"):
        write_table(COLUMNS, rows, output / f"{study.name}{suffix}")
    draw(study, lines, output)
    say(f"written: {output / study.name}.md, .csv and .png")


def _cells(line: StudyResult) -> list[str]:
    difference = "-"
    if line.difference is not None:
        low, high = line.difference.low, line.difference.high
        difference = f"{100 * line.difference.value:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"
    return [
        line.data,
        line.case.label,
        f"{100 * line.auroc.mean:.1f}",
        f"± {100 * line.auroc.std:.1f}" if line.auroc.n > 1 else "-",
        f"{100 * line.interval.low:.1f} to {100 * line.interval.high:.1f}",
        difference,
        f"{100 * line.ap:.1f}",
        f"{100 * line.eer:.1f}",
    ]

"""stepvad benchmark study views: options and tables of the study of views."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from stepvad.cli.options import FpsOption
from stepvad.cli.tables import write_table
from stepvad.cli.terminal import print_table, progress_bars, say, strict_json
from stepvad.files.atomic import replacing

if TYPE_CHECKING:
    from stepvad.config import View
    from stepvad.evaluation.densities import Density
    from stepvad.evaluation.protocol import Selection
    from stepvad.evaluation.studies import Fits, Scope
    from stepvad.evaluation.viewstudy import FrameAuroc, ViewRow, ViewTable


COLUMNS = (
    *("data", "score", "AUROC", "over seeds", "difference"),
    *("smoothed", "difference, smoothed"),
)
FOOTAGE = {"held-out": "held out", "test": "test clips"}


@dataclass(frozen=True, slots=True)
class StudiedViews:
    """Options of the study of views alone."""

    views: Annotated[
        str, typer.Option(help="Study `views`: pose, and optionally motion and place.")
    ] = "pose,motion,place"
    densities: Annotated[
        str, typer.Option(help="Study `views`: step, and knn or gmm in the same spaces.")
    ] = "step"
    fps: FpsOption = None

    def run(self, scope: Scope, frames: Selection, fits: Fits, output: Path) -> None:
        """Run the study, print its tables and write them."""
        from dataclasses import replace

        from stepvad.evaluation import viewstudy

        chosen = viewstudy.ViewScope(
            base=replace(scope.base, T=scope.T[0], K=scope.K[0]),
            seeds=scope.seeds,
            views=tuple(cast("list[View]", _words(self.views))),
            densities=tuple(cast("list[Density]", _words(self.densities))),
            data=scope.data,
            split=scope.split,
            fps=self.fps,
            frames=frames,
        )
        with progress_bars() as report:
            tables = viewstudy.run(chosen, fits, report=report)
        _show(tables, output)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def _show(tables: Sequence[ViewTable], output: Path) -> None:
    rates = [*tables[0].rows[0].found]
    columns = [*COLUMNS, *(f"found at {rate:g}/h" for rate in rates), "normal footage"]
    rows = [_cells(table, row) for table in tables for row in table.rows]
    print_table("views (%)", columns, rows)
    for suffix in (".md", ".csv"):
        write_table(columns, rows, output / f"views{suffix}")
    for table in tables:
        _print_classes(table)
    facts = {table.data: asdict(table) for table in tables}
    with replacing(output / "views.json") as file:
        file.write_text(json.dumps(strict_json(facts), indent=2) + "\n", "utf-8")
    say(f"written: {output / 'views'}.md, .csv and .json")


def _cells(table: ViewTable, row: ViewRow) -> list[str]:
    return [
        table.data,
        row.name,
        f"{100 * row.raw.auroc.mean:.1f}",
        f"± {100 * row.raw.auroc.std:.1f}" if row.raw.auroc.n > 1 else "-",
        _difference(row.raw),
        f"{100 * row.smoothed.auroc.mean:.1f}",
        _difference(row.smoothed),
        *(f"{100 * share.mean:.0f}" for share in row.found.values()),
        f"{table.hours:.2g} h, {FOOTAGE[table.normal]}",
    ]


def _difference(figure: FrameAuroc) -> str:
    lead = figure.difference
    if lead is None:
        return "-"
    return f"{100 * lead.value:+.1f} ({100 * lead.low:+.1f} to {100 * lead.high:+.1f})"


def _print_classes(table: ViewTable) -> None:
    """Print AUROC and found events of each class, if the data set knows classes."""
    from stepvad.evaluation.viewstudy import CLASS_RATE

    names = [*table.rows[0].raw.by_class]
    if names:
        title = f"{table.data}: AUROC, events found at {CLASS_RATE:g}/h, by class (%)"
        print_table(title, ["score", *names], [_classes(row, names) for row in table.rows])


def _classes(row: ViewRow, names: Sequence[str]) -> list[str]:
    figures = [(row.raw.by_class[name], row.found_by_class[name]) for name in names]
    return [row.name, *(f"{100 * auroc:.1f}, {100 * found:.0f}" for auroc, found in figures)]

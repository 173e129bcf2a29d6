"""Plot of a study: lines along an axis, maps over T and K, or dots with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stepvad.evaluation.comparison import VARIANTS
from stepvad.evaluation.studies import Study, StudyResult
from stepvad.plots import style
from stepvad.plots.curves import AxisLabels, Series, draw_panels
from stepvad.plots.dots import Dot, draw_dots
from stepvad.plots.heatmap import Grid, draw_heatmaps


def draw(study: Study, lines: Sequence[StudyResult], directory: Path) -> None:
    """Write the plot of a study, one panel per data set, and maps if there are several K."""
    path = directory / f"{study.name}.png"
    by_data: dict[str, list[StudyResult]] = {}
    for line in lines:
        by_data.setdefault(line.data, []).append(line)
    if not study.axis:
        dots = {data: [_dot(line) for line in some] for data, some in by_data.items()}
        draw_dots(dots, path, "AUROC (%), interval over clips")
        return
    panels = {data: _series(some) for data, some in by_data.items()}
    draw_panels(panels, path, AxisLabels(study.axis, "AUROC (%)", study.scale))
    if len(_every_K(lines)) > 1:
        draw_heatmaps(_maps(lines), directory / f"{study.name}-maps.png")


def _dot(line: StudyResult) -> Dot:
    value, low, high = (
        100 * share for share in (line.auroc.mean, line.interval.low, line.interval.high)
    )
    return Dot(line.case.label, line.case.method, value, low, high)


def _series(lines: Sequence[StudyResult]) -> dict[str, Series]:
    """AUROC of each seed along the axis, by line of the plot."""
    values: dict[str, dict[float, list[float]]] = {}
    for line in lines:
        along = values.setdefault(line.case.line, {})
        along[line.case.x] = [100 * value for value in line.each]
    looks = _looks(lines)
    return {name: Series.of(along, look=looks[name]) for name, along in values.items()}


def _every_K(lines: Sequence[StudyResult]) -> list[int]:
    return sorted({line.case.K for line in lines if line.case.K})


def _looks(lines: Sequence[StudyResult]) -> dict[str, style.LineStyle]:
    """Style of each line: its method's colour, and a distinct stroke if a method has several."""
    methods = {line.case.line: line.case.method for line in lines}
    looks: dict[str, style.LineStyle] = {}
    for name, method in methods.items():
        own = style.look(method)
        number = [*methods.values()][: len(looks)].count(method)
        stroke = style.STROKES[number % len(style.STROKES)]
        looks[name] = replace(own, line=stroke) if number else own
    return looks


def _maps(lines: Sequence[StudyResult]) -> Mapping[str, Grid]:
    """AUROC over T and K for each data set and method that has a K."""
    cells: dict[str, dict[tuple[int, int], float]] = {}
    for line in lines:
        if line.case.K:
            title = f"{line.data}, {VARIANTS[line.case.method][1]}"
            cells.setdefault(title, {})[int(line.case.x), line.case.K] = 100 * line.auroc.mean
    return {title: Grid.of(of_title) for title, of_title in cells.items()}

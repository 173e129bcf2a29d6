"""The paper's figures are where they belong, and ours are judged as written down."""

from __future__ import annotations

from collections import Counter

import pytest

from stepvad.evaluation.paper import FIGURES, Cell, Figure


@pytest.mark.parametrize(
    ("cell", "printed"),
    [
        (Cell("shanghaitech"), "86.2 ± 0.1"),
        (Cell("shanghaitech", "hr"), "87.7 ± 0.1"),
        (Cell("ubnormal"), "90.1 ± 0.4"),
        (Cell("ubnormal", "hr"), "90.9 ± 0.4"),
        (Cell("ubnormal", metric="ap"), "91.6"),
        (Cell("shanghaitech", "hr", metric="ap"), "85.2"),
        (Cell("ubnormal", method="raw", T=32, confidence=False), "70.6"),
        (Cell("ubnormal", method="raw-modulated"), "81.3"),
        (Cell("ubnormal", method="raw-modulated", T=32), "73.1"),
        (Cell("ubnormal", T=24, K=128), "89.2"),
        (Cell("shanghaitech", method="vanilla"), "85.6"),
        (Cell("ubnormal", drop_below=0.4), "85.9"),
        (Cell("shanghaitech", T=24, K=64, sigma_low=0.01), "84.22"),
        (Cell("ubnormal", T=16, K=32, sigma_high=2.0), "88.27"),
        (Cell("shanghaitech", T=8, K=16, drop_below=0.2), "84.98"),
        (Cell("ubnormal", K=256, aggregation="best"), "85.3"),
        (Cell("ubnormal", "hr", "backtrack", True, "ap", aggregation="top3"), "92.36"),
        (Cell("shanghaitech", placement="latest", smoothed=False), "83.55"),
        (Cell("shanghaitech", fit_on=("ubnormal",)), "77.2"),
        (Cell("ubnormal", fit_on=("shanghaitech", "ubnormal")), "88.9"),
        (Cell("msad", "ub"), "74.1"),
        (Cell("msad", "st", "backtrack", smoothed=False), "71.7"),
        (Cell("shanghaitech", aggregation="sum", jitter=0.5), "73.47"),
    ],
)
def test_a_figure_is_found_by_what_it_measures(cell: Cell, printed: str) -> None:
    assert FIGURES[cell][0].words == printed


@pytest.mark.parametrize(
    ("cell", "printed"),
    [
        (Cell("shanghaitech", sigma_low=0.5), {"82.7", "83.88"}),
        (Cell("ubnormal", T=16), {"90.2", "89.67"}),
        (Cell("ubnormal", K=64), {"90.1", "90.54"}),
        (Cell("ubnormal", aggregation="sum"), {"87.2", "86.92", "87.57"}),
        (Cell("shanghaitech", K=64), {"85.45", "85.54"}),
    ],
)
def test_where_the_tables_disagree_all_of_them_are_there(cell: Cell, printed: set[str]) -> None:
    assert {figure.printed for figure in FIGURES[cell]} == printed


def test_every_table_has_as_many_figures_as_the_paper_prints() -> None:
    counted = Counter(figure.table for figures in FIGURES.values() for figure in figures)
    assert counted == {
        "tab:sota_comparison": 6,
        "tab:sota_comparison_supp": 8,
        "tab:dimensionality_ablation": 64 - 5,  # K above the dimension of a window
        "tab:unified_ablation": 2 * 10,
        "tab:aucap": 2 * 4,
        "tab:sigma_low_sweep": 15 * 6,
        "tab:sigma_high_sweep": 12 * 6,
        "tab:drop_pose_conf": 16 * 8,
        "tab:agg_ablation": 3 * 7,
        "tab:aggregation_comprehensive": 10 * 16,
        "tab:cross_dataset": 2 * 3,
        "tab:msad_hr": 3 * 4,
        "tab:jitter_robustness": 6 * 8,
    }


@pytest.mark.parametrize(
    ("printed", "deviation", "ours", "verdict"),
    [
        ("90.4", None, 90.4, "holds"),
        ("90.4", None, 90.9, "holds"),  # half a point, which floats make a little more
        ("90.4", None, 89.9, "holds"),
        ("90.4", None, 90.91, "+0.51"),
        ("90.4", None, 88.2, "-2.20"),
        ("90.1", 0.4, 90.5, "holds"),
        ("90.1", 0.4, 89.65, "holds, -0.45 is over one deviation"),
        ("86.2", 0.1, 86.3, "holds"),
        ("86.2", 0.1, 86.5, "holds, +0.30 is over one deviation"),
        ("86.2", 0.1, 86.75, "+0.55"),
        ("70.0", 0.8, 70.7, "holds"),
        ("70.0", 0.8, 70.9, "+0.90"),
        ("70.0", None, float("nan"), "-"),
    ],
)
def test_a_figure_holds_within_half_a_point_or_one_deviation(
    printed: str, deviation: float | None, ours: float, verdict: str
) -> None:
    assert Figure(printed, "tab:any", deviation).verdict(ours) == verdict

from __future__ import annotations

from pathlib import Path

from stepvad.plots.dots import Dot, draw_dots


def test_dots_are_drawn_the_same_every_time(tmp_path: Path) -> None:
    dots = [Dot("STEP", "step", 89.0, 85.0, 92.0), Dot("σ_low = 0.5", "step", 80.0, 70.0, 88.0)]
    for name in ("a.png", "b.png"):
        draw_dots({"one": dots, "two": dots}, tmp_path / name, "AUROC (%)")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    moved = [dots[0], Dot("σ_low = 0.5", "step", 70.0, 60.0, 78.0)]
    draw_dots({"one": moved, "two": dots}, tmp_path / "c.png", "AUROC (%)")
    assert (tmp_path / "a.png").read_bytes() != (tmp_path / "c.png").read_bytes()


def test_a_case_has_its_row_in_every_panel(tmp_path: Path) -> None:
    a, b, c = (Dot(f"fitted on {name}", "step", 89.0, 85.0, 92.0) for name in "abc")
    low = Dot("fitted on c", "step", 70.0, 60.0, 80.0)
    draw_dots({"a": [a, b, c], "b": [b, a, low]}, tmp_path / "own-first.png", "AUROC (%)")
    draw_dots({"a": [a, b, c], "b": [b, low, a]}, tmp_path / "other-order.png", "AUROC (%)")
    drawn = [(tmp_path / f"{name}.png").read_bytes() for name in ("own-first", "other-order")]
    assert drawn[0] == drawn[1]

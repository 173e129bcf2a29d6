"""What axe finds wrong with a page that a browser shows."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from tests.browser import Page

SERIOUS = ("serious", "critical")


def violations(page: Page, within: str = "body") -> list[str]:
    """Serious and critical findings of axe in a part of the page, each with the first place.

    axe comes in through the debugger, as the policy of the page lets no other script run.
    """
    if not page.run("typeof window.axe === 'object'"):
        script = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
        page.run(f"{script}; true")
    found: dict[str, Any] = page.run(
        f"axe.run(document.querySelector({within!r}), {{resultTypes: ['violations']}})"
        ".then((found) => ({violations: found.violations.map((one) => ({id: one.id, "
        "impact: one.impact, help: one.help, at: one.nodes[0].html, n: one.nodes.length}))}))",
        wait=True,
    )
    return [
        f"{one['id']} ({one['impact']}): {one['help']}, {one['n']} times, as in {one['at']}"
        for one in found["violations"]
        if one["impact"] in SERIOUS
    ]

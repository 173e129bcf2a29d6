"""What changed settings take: nothing, a camera that is opened again, or a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepvad.site.settings.changes import LIVE, REOPEN, Changes, compare
from stepvad.site.settings.sections import CameraSettings, SiteSettings
from tests.site.sites import camera

BEFORE = SiteSettings(
    cameras=[camera(name=name, url="rtsp://10.0.0.1/a", zones={}) for name in ("gate", "yard")],
)


def test_every_setting_that_takes_no_restart_is_there() -> None:
    there = {*SiteSettings.model_fields, *(f"cameras.{key}" for key in CameraSettings.model_fields)}
    assert there >= LIVE | REOPEN


def changed(**keys: Any) -> Changes:
    """Changes of the site, or with the keys of the first camera under `gate`."""
    first, second = BEFORE.cameras
    if "gate" in keys:
        one = CameraSettings.model_validate(first.model_dump() | keys.pop("gate"))
        keys["cameras"] = [one, second]
    return compare(BEFORE, SiteSettings.model_validate(BEFORE.model_dump() | keys))


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({}, Changes()),
        ({"cameras": BEFORE.cameras[::-1]}, Changes()),
        ({"gate": {"threshold": 3.0, "hours": ["08:00-18:00"]}, "retention": {"events_days": 3}},
         Changes(live=("retention", "threshold of gate", "hours of gate"))),
        ({"sinks": {"file": {"path": Path("a")}}}, Changes(live=("sinks",))),
        ({"gate": {"url": "rtsp://10.0.0.2/a", "rate": 5.0, "threshold": 3.0}},
         Changes(live=("threshold of gate",), reopen=("gate",))),
        ({"gate": {"url": "demo:"}}, Changes(restart=("url of gate",))),
        ({"gate": {"name": "door"}}, Changes(restart=("camera gate", "camera door"))),
        ({"pose": {"threads": 2}, "gate": {"rate": 5.0}},
         Changes(reopen=("gate",), restart=("pose",))),
    ],
)  # fmt: skip
def test_changes_are_sorted_by_what_they_take(keys: dict[str, Any], found: Changes) -> None:
    assert changed(**keys) == found


def test_the_largest_effect_is_said() -> None:
    assert changed().effect == "none"
    assert "every camera is watched meanwhile" in changed(gate={"threshold": 3.0}).words
    assert "Opened again: gate." in changed(gate={"threshold": 3.0, "rate": 5.0}).words
    assert "because of: pose." in changed(gate={"rate": 5.0}, pose={"threads": 2}).words

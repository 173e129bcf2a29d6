"""stepvad models: what is known, what was fetched, and whether it is whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stepvad.cli import app
from stepvad.video.models import CARDS

LIGHTNING = next(card for card in CARDS if card.name == "movenet-lightning")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("STEPVAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["models", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_list_tells_licence_and_state(cache: Path) -> None:
    cache.mkdir()
    LIGHTNING.cached.write_bytes(b"half a net")
    listed = {one["name"]: one for one in json.loads(run("--json"))}
    assert {one["licence"] for one in listed.values()} == {"Apache-2.0"}
    assert listed["movenet-lightning"]["state"] == "damaged"
    assert listed["rtmdet-nano"]["default"]
    assert listed["movenet-lightning"]["measured"] == "yes"
    assert listed["yolox-nano"]["measured"] == "another export"
    assert listed["rtmpose-s"]["measured"] == "no"
    assert "rtmdet-nano (default)" in run()

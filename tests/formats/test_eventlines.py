"""Events as lines that survive the way to a file and back."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from stepvad.codec import encode
from stepvad.errors import DataError
from stepvad.formats import eventlines
from stepvad.formats.eventlines import FoundEvent
from stepvad.incidents.events import Event

EVENT = Event(first_s=1.0, last_s=2.5, tracks=(4, 7), peak=3.25, peak_s=2.0, peak_track=7)
FOUND = FoundEvent(
    id="lobby-4-10",
    clip="lobby",
    camera=None,
    model="m.safetensors",
    poses=("a", "b"),
    fps=10.0,
    threshold=2.0,
    model_sha256="0f",
    **asdict(EVENT),
)


def test_events_come_back_as_they_were(tmp_path: Path) -> None:
    eventlines.write([FOUND], tmp_path / "e.jsonl")
    assert eventlines.read(tmp_path / "e.jsonl") == {"lobby-4-10": FOUND}
    facts = json.loads((tmp_path / "e.jsonl").read_text())
    assert facts["peak"] == 3.25
    assert facts["id"] == "lobby-4-10"


LINE = encode(FOUND).decode()


@pytest.mark.parametrize("line", ["{", '{"schema": 2}', LINE.replace("3.25", "NaN")])
def test_other_lines_are_refused_with_their_number(tmp_path: Path, line: str) -> None:
    (tmp_path / "e.jsonl").write_text(f"{LINE}\n{line}\n")
    with pytest.raises(DataError, match=r"e\.jsonl, line 2: event: .*expected "):
        eventlines.read(tmp_path / "e.jsonl")

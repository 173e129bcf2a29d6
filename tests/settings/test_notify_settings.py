from __future__ import annotations

from pathlib import Path

import pytest

from stepvad.errors import ConfigError
from stepvad.settings.file import describe, load

SITE = """
name = "mill"
model = "model.safetensors"
[[cameras]]
name = "yard"
url = "demo:"
zones.door = [[0, 0], [1, 0], [1, 1]]
[[sinks.notify]]
"""


def site(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(SITE + text)
    return path


def test_what_may_be_said(tmp_path: Path) -> None:
    path = site(
        tmp_path,
        'name = "guards"\nto = ["browsers", "env:NTFY", "file:mail"]\n'
        'cameras = ["yard"]\nzones = ["door"]\nquiet_hours = ["22:00-06:00"]\n'
        "repeat_minutes = 5\nsay_when_over = true\n",
    )
    settings = load(path)
    (people,) = settings.sinks.notify
    assert people.to == ["browsers", "env:NTFY", f"file:{tmp_path}/mail"]
    assert people.browsers
    assert (people.most_per_hour, people.repeat_times) == (12, 3)
    told = describe(settings)
    assert (
        "to people (guards), events of camera yard in zone door: browsers, env:NTFY, file:" in told
    )
    assert (
        "at most 12 messages an hour, the rest in one; none from 22:00-06:00 (one message after); "
        "again every 5 minutes until someone has seen the event, at most 3 times; another when "
        "it is over"
    ) in told


def test_the_least_that_must_be_said(tmp_path: Path) -> None:
    (people,) = load(site(tmp_path, 'to = ["browsers"]')).sinks.notify
    assert people.name == "people"
    assert people.repeat_minutes is None


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("", "line 8: sinks.notify.to: expected a value, got none", '"browsers"'),
        ("to = []", "to: expected", "browsers"),
        (
            'to = ["ntfy://ntfy.sh/canary"]',
            "to: expected browsers, env:NAME or file:PATH",
            "secret",
        ),
        ('to = ["env:A", "env:A"]', "expected distinct names, got 'env:A' twice", "rename"),
        (
            'to = ["browsers"]\nquiet_hours = ["22-6"]',
            "expected hours as HH:MM-HH:MM, got '22-6'",
            "over midnight",
        ),
        ('to = ["browsers"]\nquiet_hours = ["25:00-06:00"]', "got '25:00-06:00'", "such as"),
        ('to = ["browsers"]\nquiet_hours = ["06:00-06:00"]', "got '06:00-06:00'", "00:00-24:00"),
        ('to = ["browsers"]\nmost_per_hour = 0', "most_per_hour: expected greater", "Messages"),
        ('to = ["browsers"]\ncameras = ["yrad"]', "got 'yrad'", "its cameras: yard"),
        ('to = ["browsers"]\nzones = ["gate"]', "got 'gate'", "its zones: door"),
        ('to = ["browsers"]\nin_quiet_hours = "wait"', "expected 'hold' or 'drop'", "hold:"),
        ('to = ["browsers"]\n[[sinks.notify]]\nto = ["env:A"]', "'people' twice", "rename"),
    ],
)
def test_what_is_wrong_is_said_with_a_hint(
    tmp_path: Path, text: str, problem: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(site(tmp_path, text))
    assert problem in caught.value.problem
    assert hint in caught.value.hint
    assert "canary" not in str(caught.value)

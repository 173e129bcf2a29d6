"""The pages on events and sinks are true."""

from __future__ import annotations

import re
import time
from contextlib import closing
from typing import Any, get_args

import pytest

from stepvad.codec import to_plain
from stepvad.events.record import KINDS, EndedBy, Severity, message
from stepvad.site.settings.sections import RetentionSettings, Sinks, WebhookSettings
from stepvad.site.sinks.webhook import Webhook
from tests.pages import ROOT, blocks
from tests.site.receivers import web_server
from tests.site.records import record

EVENTS = ROOT / "docs" / "reference" / "events.md"
GUIDE = ROOT / "docs" / "guides" / "alerts-elsewhere.md"
PRIVACY = ROOT / "docs" / "concepts" / "privacy.md"

TYPES = {
    "text": str,
    "number": float,
    "whole number": int,
    "object": dict,
    "null": type(None),
    "list of texts": str,
    "list of numbers": float,
    "list of whole numbers": int,
    "4 numbers": float,
}
"""What the page calls the types; of lists, the type of their items."""


def rows(*head: str) -> dict[str, list[str]]:
    """The rows of the table with this head, by what stands in their first cell."""
    _, _, table = EVENTS.read_text("utf-8").partition(f"| {' | '.join(head)} |\n")
    lines = table.partition("\n\n")[0].splitlines()[1:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first.strip("`"): rest for first, *rest in cells}


def test_the_page_on_events_has_every_field_in_order() -> None:
    assert [*rows("field", "type", "meaning")] == [*to_plain(record())]
    assert [*rows("key", "type", "meaning")] == [*to_plain(message("new", None, record()))]


def test_the_page_on_events_has_the_types_that_are_sent() -> None:
    told = [record(), record(box=None), record(why="words").ended("calm", 1060.0)]
    for name, (kind, _) in rows("field", "type", "meaning").items():
        names = kind.split(" or ")
        for one in told:
            value = to_plain(one)[name]
            if isinstance(value, list):
                length = re.match(r"\d+", names[0])
                assert length is None or len(value) == int(length[0])
                assert names[0].startswith("list") or length is not None
                assert {type(item) for item in value} == {TYPES[names[0]]}
            else:
                assert type(value) in [TYPES[one] for one in names], name


def test_the_page_on_events_has_every_word_that_is_sent() -> None:
    text = EVENTS.read_text("utf-8")
    for word in (*get_args(Severity), *get_args(EndedBy), "new", "update", "end"):
        assert f"`{word}`" in text
    assert rows("field", "type", "meaning")["schema"][1] == str(record().schema)


def test_the_snippet_tells_a_genuine_request_from_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (block,) = blocks(GUIDE)
    named: dict[str, Any] = {}
    exec(block.text, named)
    is_genuine = named["is_genuine"]
    monkeypatch.setenv("WEBHOOK_KEY", "a key")
    with web_server() as server:
        facts = WebhookSettings(name="a", url=server.address, secret="env:WEBHOOK_KEY")
        with closing(Webhook(facts, site="home")) as sink:
            sink.send("new", message("new", None, record()))
    (got,) = server.got
    assert is_genuine(got.headers, got.body, "a key")
    assert not is_genuine(got.headers, got.body, "another key")
    assert not is_genuine(got.headers, got.body + b" ", "a key")
    later = got.headers | {"Stepvad-Timestamp": str(int(got.headers["Stepvad-Timestamp"]) + 1)}
    assert not is_genuine(later, got.body, "a key")
    assert not is_genuine({}, got.body, "a key")
    assert not is_genuine(got.headers | {"Stepvad-Timestamp": "soon"}, got.body, "a key")
    monkeypatch.setattr(time, "time", lambda: 301.0 + int(got.headers["Stepvad-Timestamp"]))
    assert not is_genuine(got.headers, got.body, "a key")


def test_the_settings_of_the_guide_are_settings() -> None:
    import tomllib

    examples = re.findall(r"```toml\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert len(examples) == 3
    for text in examples:
        Sinks.model_validate(tomllib.loads(text)["sinks"])


def test_the_page_on_privacy_names_everything_that_is_stored() -> None:
    text = PRIVACY.read_text("utf-8")
    for table in (*KINDS, "epochs"):
        assert f"\n| {table.replace('_', ' ')} | " in text
    kept = RetentionSettings()
    assert f"`events_days`, {kept.events_days:g} by default" in text
    assert f"`poses_days`, {kept.poses_days:g} by default" in text
    assert "**no pixels**" in text
    assert "is anonymous" not in text

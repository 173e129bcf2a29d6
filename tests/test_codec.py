"""Every value that crosses a border comes back as it was, or is refused with the reason."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepvad.archive.scorefile import ClipWindows, InputFacts, ScoreFacts
from stepvad.archive.scoring import Manifest
from stepvad.codec import (
    VERSIONS,
    NewerVersionError,
    check_version,
    decode,
    encode,
    from_plain,
    to_plain,
)
from stepvad.errors import DataError, StepvadError
from stepvad.events.calibration import CalibrationFile
from stepvad.events.camera import CameraEventsState, Peak
from stepvad.events.exceptions import MotionException
from stepvad.events.ledger import LedgerEntry
from stepvad.events.record import MarkMessage, Record, message
from stepvad.events.rules import Event, EventDetectorState, Rules
from stepvad.events.threshold import Threshold
from stepvad.site.learning.versions import Amount, Learned
from stepvad.site.notify.plan import NotificationPlan, TrackedEvent
from stepvad.site.notify.sending_child import Answer, PushRequest, Task
from stepvad.video.extract import PartSettings
from tests.site.records import explanation, record

EXCEPTION = MotionException(
    event="e1", camera="yard", at=2.0, place=(1.0, 2.0, 3.5, 4.0), points=(((0.5, -1.0),), ())
)
EVENT = Event(first_s=1.0, last_s=2.5, tracks=(3, 4), peak=4.5, peak_s=2.0, peak_track=4)
STATE = CameraEventsState(
    epoch=2,
    wall0=1e9,
    reported_s=3.0,
    is_reported=False,
    open=record(),
    detector=EventDetectorState(((3, EVENT),), EVENT),
    peaks=(Peak(3, 20, (1.0, 2.0), 0.9, (0.0, 1.0, 2.0, 3.0), 1.0),),
)
LEARNED = Learned(
    name="20261118T020000Z",
    made=1e9,
    method="usual",
    footage=Amount(20.5, 300),
    cameras=("yard",),
    changed="Learned from 20 h",
    folds={"yard-1": 3},
    until=1e9,
)
SCORED = ScoreFacts(
    model_sha256="0" * 64,
    engine="numpy",
    energies=True,
    stepvad="0.1.0",
    inputs=(InputFacts("a.json", 1, "1" * 64), InputFacts("b.json", 2, None)),
    failed={"b.json": "cut off"},
    clips={"x": ClipWindows(None, 3, 2), "y": ClipWindows(25.0, 3)},
    windows=2,
    flat_windows=0,
    counts={"poses": 3},
)
RULES = Rules(threshold=2.0)
THRESHOLD = Threshold(value=2.0, alerts_per_hour=0.1, how="ranked", hours=3.0, events=2)
CALIBRATED = CalibrationFile(
    model_sha256="0" * 64,
    rules=RULES,
    threshold=THRESHOLD,
    cameras={"yard": THRESHOLD},
    ledgers={"yard": (LedgerEntry(begin=9.0, watched_s=60.0, quiet=(2.0, 1.5), alerts=(4.5,)),)},
    exceptions=(EXCEPTION,),
    block_stats={"yard": ((1.0,),)},
    statistics=("people",),
    rates={"yard": (25.0,)},
)
VALUES: list[Any] = [
    record(why="left knee bends further").ended("calm", 1010.0),
    message("update", record(), record(box=None, camera_fps=12.5)),
    explanation("left knee bends further"),
    STATE,
    MarkMessage("e1", "normal"),
    NotificationPlan((TrackedEvent("e1", None), TrackedEvent("e2", 5.0, 1)), (1.0, 2.5)),
    EXCEPTION,
    LEARNED,
    SCORED,
    Manifest(
        model_sha256="0" * 64,
        engine="numpy",
        energies=True,
        model="small.safetensors",
        views=[{}],
        state="done",
        failed={"b.json": "cut off"},
    ),
    Task("post", requests=(PushRequest("https://push.example", {"TTL": "60"}, b"sealed"),)),
    Answer(ok=True, words="sent", status=201),
    CALIBRATED,
    PartSettings({"pose": "a", "min_confidence": 0.25}),
]
"""One of each type, with something in every field that holds others."""


def of_type(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type, within the bounds that it states."""
    if kind is Rules:  # it checks more than its types say
        return st.just(RULES)
    origin, of = get_origin(kind), get_args(kind)
    bounds = {}
    if origin is Annotated:
        bounds = {
            name: getattr(meta, name)
            for meta in of[1:]
            for name in ("ge", "gt", "le", "lt", "min_length")
            if getattr(meta, name) is not None
        }
        kind, origin, of = of[0], get_origin(of[0]), get_args(of[0])
    if origin in (Union, UnionType):
        return st.one_of(*map(of_type, of))
    if origin is Literal:
        return st.sampled_from(of)
    if origin is tuple and of[-1] is not Ellipsis:
        return st.tuples(*map(of_type, of))
    if origin in (tuple, list):
        least = bounds.get("min_length", 0)
        return st.lists(of_type(of[0]), min_size=least, max_size=least + 2).map(origin)
    if origin in (dict, Mapping):
        return st.dictionaries(of_type(of[0]), of_type(of[1]), max_size=2)
    if is_dataclass(kind):
        return _built(kind)
    low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    return {
        int: st.integers(low, high),
        float: st.floats(
            low,
            high,
            exclude_min="gt" in bounds,
            exclude_max="lt" in bounds,
            allow_nan=False,
            allow_infinity=False,
        ),
        bool: st.booleans(),
        Any: st.none(),
        bytes: st.binary(),
        str: st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
        type(None): st.none(),
    }[kind]


@st.composite
def _built(draw: st.DrawFn, kind: Any) -> Any:
    """A value that its constructor accepts."""
    types = get_type_hints(kind, include_extras=True)
    given = {f.name: draw(of_type(types[f.name])) for f in fields(kind) if f.init}
    if kind is Record:  # what a type cannot say
        given |= {"seen": draw(st.floats(0, 1)), "camera_fps": 25.0, "model_fps": None}
        given["ended_by"] = None if given["end_time"] is None else "calm"
    return kind(**given)


@pytest.mark.parametrize("kind", [type(value) for value in VALUES], ids=lambda kind: kind.__name__)
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_value_comes_back_as_it_was(kind: Any, data: st.DataObject) -> None:
    value = data.draw(of_type(kind))
    assert decode(kind, encode(value), "value") == value
    assert from_plain(kind, to_plain(value), "value") == value
    assert json.loads(json.dumps(to_plain(value), allow_nan=False)) == to_plain(value)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every object and list in plain values, with each key in it."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in list(items):
        yield value, key
        if isinstance(one, dict | list):
            yield from places(one)


NOT_FINITE = ["NaN", "Infinity", "1e999", "9" * 400, "9" * 5000]
HOSTILE: list[str] = [
    *NOT_FINITE,
    *("null", "true", "-1", "1.5", str(2**63), '"x"', '"\\ud800"', "[]", "{}", '{"x": []}'),
    "[" * 100_000 + "]" * 100_000,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_is_hostile_is_refused_in_any_field_or_is_a_value(value: Any) -> None:
    kind, plain = type(value), to_plain(value)
    for owner, key in places(plain):
        kept = owner[key]
        for bad in HOSTILE:
            owner[key] = "#"
            text = json.dumps(plain).replace('"#"', bad)
            found, problem = None, ""
            try:
                found = decode(kind, text, "value")
            except StepvadError as error:
                problem = error.problem
            if found is None:
                assert re.search("expected .*got", problem, re.DOTALL), problem
            else:
                assert bad not in NOT_FINITE, key
                assert decode(kind, encode(found), "value") == found
        owner[key] = kept
    assert decode(kind, json.dumps(plain), "value") == value


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_missing_field_has_its_default_or_is_named(value: Any) -> None:
    kind, plain = type(value), to_plain(value)
    for field in fields(kind):
        less = {name: one for name, one in plain.items() if name != field.name}
        if field.default is MISSING and field.default_factory is MISSING:
            with pytest.raises(DataError, match=f"^value: expected {field.name}, got none$"):
                from_plain(kind, less, "value")
        elif field.name not in ("ended_by", "end_time"):  # both or neither
            from_plain(kind, less, "value")
    assert from_plain(kind, {**plain, "mood": ["calm"]}, "value") == value


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_newer_version_is_told_from_damage_wherever_it_is_stated(value: Any) -> None:
    plain = to_plain(value)
    for owner, key in [*places(plain)]:
        is_stated = key in VERSIONS and isinstance(owner, dict)
        if is_stated and not (key == "version" and "schema" in owner):  # that of an event counts
            owner[key] = 9
            with pytest.raises(NewerVersionError, match=r"^value: expected version "):
                from_plain(type(value), plain, "value")
            owner[key] = "9"
            with pytest.raises(DataError, match="got '9'") as error:
                from_plain(type(value), plain, "value")
            assert type(error.value) is DataError
            owner[key] = 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"score": "high"}, "expected a number as score, got 'high'"),
        ({"score": math.nan}, "expected a finite number as score, got nan"),
        ({"track_id": 2**63}, f"expected a whole number <= {2**63 - 1} as track_id, got {2**63}"),
        ({"severity": "panic"}, "expected alert or detection as severity, got 'panic'"),
        ({"box": [1.0, 2.0]}, "expected a list of length 4 as box, got list"),
        ({"tracks": [1, None]}, r"expected a whole number as tracks\[1\], got None"),
        ({"why": 3}, "expected a text or null as why, got 3"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_error_names_the_field_what_was_expected_and_what_came(
    change: dict[str, object], words: str
) -> None:
    with pytest.raises(DataError, match=f"^event.*: {words}"):
        from_plain(Record, to_plain(record()) | change, "event")


@pytest.mark.parametrize("text", ["", "{", "[1", "nul", b"\xff", '{"a": 1} 2', "\ud800"])
def test_what_is_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(DataError, match=r"^event: expected JSON, got: "):
        decode(Record, text, "event")
    for other in ("[]", "3", "null", '"text"'):
        with pytest.raises(DataError, match=r"^event: expected an object, got "):
            decode(Record, other, "event")


def test_an_item_of_a_mapping_is_named_in_the_error() -> None:
    for items in ({"a": 1, "b": "x"}, {"a": 1, "b": None}):
        with pytest.raises(DataError, match=r"^counts: expected a whole number as \['b'\], got "):
            from_plain(dict[str, int], items, "counts")
    with pytest.raises(DataError, match=r"^counts: expected a text"):
        from_plain(dict[str, int], {3: 1}, "counts")


def test_only_plain_values_and_arrays_are_encoded() -> None:
    with pytest.raises(TypeError, match="expected a value for JSON, got object"):
        encode({"x": object()})


def test_messages_of_children_import_nothing_heavy() -> None:
    code = (
        "import sys, stepvad.site.notify.sending_child\n"
        "print(*{'asyncio', 'pydantic', 'sqlite3', 'ssl'}.intersection(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.split()


def test_a_version_is_ours() -> None:
    check_version("thing", 2, 2)
    for version in (3, 1, 0, True, "1", None, 1.0):
        with pytest.raises(DataError, match="thing: expected version 2, got") as error:
            check_version("thing", version, 2)
        assert "newer" in error.value.hint


def test_only_a_number_above_ours_is_a_newer_version() -> None:
    with pytest.raises(NewerVersionError):
        check_version("thing", 3, 2)
    for version in (0, True, "3", None, 3.0):
        with pytest.raises(DataError) as error:
            check_version("thing", version, 2)
        assert type(error.value) is DataError


TOGETHER = """
import os, sys, threading
from stepvad.codec import decode, encode
from stepvad.events.record import SinkMessage, message
from tests.site.records import record

data = encode(message("new", None, record()))

def first(start):
    start.wait()
    decode(SinkMessage, data, "message")

sys.setswitchinterval(1e-6)
for _ in range(12):
    if os.fork() == 0:
        start = threading.Barrier(6)
        threads = [threading.Thread(target=first, args=[start]) for _ in range(6)]
        for one in threads: one.start()
        for one in threads: one.join()
        os._exit(0)
    if os.wait()[1]:
        sys.exit("crashed")
"""


def test_threads_that_decode_a_type_for_the_first_time_together_crash_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", TOGETHER], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

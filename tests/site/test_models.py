"""The models of a site, each loaded once, and the thresholds that they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepvad.detector import Detector
from stepvad.errors import ConfigError
from stepvad.evaluation import baselines
from stepvad.events.calibration import (
    RULES,
    Calibration,
    calibration_path,
    write_calibration,
)
from stepvad.events.ledger import LedgerEntry, peaks_of
from stepvad.model import modelfile
from stepvad.site import demo
from stepvad.site.learning.versions import Amount, Learned
from stepvad.site.models import NOT_LEARNED, Loaded, Models
from tests.site.records import record
from tests.site.sites import camera, one_person


def test_a_model_is_loaded_once() -> None:
    models = Models()
    assert models.load(demo.MODEL) is models.load(demo.MODEL.parent / "." / demo.MODEL.name)


def test_a_model_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected the model of the site, got no file") as caught:
        Models().load(tmp_path / "shop.safetensors")
    assert "stepvad fit POSES -o shop.safetensors" in caught.value.hint


def test_a_threshold_is_the_cameras_own_or_that_of_the_calibration(tmp_path: Path) -> None:
    model = Models().load(demo.MODEL)
    assert model.calibration is not None
    assert model.rules_of(camera()).threshold == model.calibration.threshold.value
    assert model.rules_of(camera(threshold=3.5)).threshold == 3.5
    alone = tmp_path / "model.safetensors"
    alone.write_bytes(demo.MODEL.read_bytes())
    with pytest.raises(ConfigError, match="expected a threshold or a calibration next to"):
        Models().load(alone).rules_of(camera())
    wrong = replace(model.calibration, model_sha256="0" * 64)
    write_calibration(wrong, calibration_path(alone))
    with pytest.raises(ConfigError, match="got one of another model"):
        Models().load(alone)


DAY = 86400.0
NOW = 400_000 * 3600.0


def week(*alerts: float, days: int = 7, quiet: float = 3.0) -> tuple[LedgerEntry, ...]:
    """A ledger of days, each with one quiet peak, and alerts on the last."""
    entries = [
        LedgerEntry(begin=NOW - k * DAY, watched_s=DAY, quiet=(quiet - 0.1 * k, 1.0, 0.5))
        for k in range(days)
    ]
    return (replace(entries[0], alerts=alerts), *entries[1:])


def learned(ledger: Sequence[LedgerEntry], *, per_day: float = 1.0) -> Loaded:
    """A model that a site has learned at one camera, the yard."""
    calibration = Calibration.from_ledgers(
        {"yard": ledger}, model_sha256="0" * 64, alerts_per_day=per_day
    )
    facts = Learned(
        name="a", made=NOW, method="usual", footage=Amount(), cameras=("yard",), until=NOW
    )
    detector = Models().load(demo.MODEL).detector
    return Loaded(Path("a"), detector, "0" * 64, calibration, facts)


def test_a_new_camera_borrows_no_limit_of_another_room() -> None:
    model = learned(week())
    assert model.no_limit(camera(name="yard")) == ""
    assert model.no_limit(camera(name="bedroom")) == NOT_LEARNED
    assert model.no_limit(camera(name="bedroom", threshold=3.0)) == ""
    offline = replace(model, learned=None)  # who names a model, names its limit, too
    assert offline.no_limit(camera(name="bedroom")) == ""
    assert "of other cameras" in offline.limit(camera(name="bedroom")).words


@pytest.mark.parametrize(
    ("ledger", "words"),
    [
        (week(9.0, 8.0, 7.0, 6.0, days=5), "4 alerts in 5 days, budget 5."),
        (week(9.0), "1 alert in 7 days, budget 7."),
        (week(), "No alerts in 7 days, budget 7."),
        (
            (LedgerEntry(begin=NOW, watched_s=600.0, quiet=(3.0, 2.0, 1.0)),),
            "Learning what is usual: expect two or three alerts more.",
        ),
        (week(*[9.0] * 9), "9 alerts today for a budget of 1. Has the camera moved?"),
    ],
)
def test_a_camera_says_its_alerts_and_its_budget(
    ledger: Sequence[LedgerEntry], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepvad.site.models.midnight", lambda: NOW - 3600)
    assert learned(ledger).limit(camera(name="yard")).words == words


def test_an_alert_says_for_how_many_days_none_was_as_strange() -> None:
    clip = one_person(12.0)
    model = learned(week())
    windows = model.detector.score(clip).windows
    (highest, *_) = peaks_of(windows, clip.rate(), RULES)
    at: dict[str, Any] = {
        "camera": "yard",
        "start_time": NOW + 60,
        "model_sha256": "0" * 64,
        "top_score": 1e9,
    }

    def words(ledger: Sequence[LedgerEntry], **changes: object) -> str | None:
        return Models({Path("a"): learned(ledger)}).strangest(record(**(at | changes)), clip)

    assert words(week()) == "the strangest of the last 6 days"  # since the ledger began
    higher = replace(week()[0], begin=NOW - 2.5 * DAY, quiet=(highest.limit + 1,))
    assert words((*week(), higher)) == "the strangest of the last 2 days"
    higher = replace(higher, begin=NOW - DAY)
    assert words((*week(), higher)) == "the strangest of the last day"
    assert words((*week(), replace(higher, begin=NOW - 3600))) is None
    assert words(week(), top_score=0.1) is None  # that of the event, if it is excused
    assert words(week(), model_sha256="1" * 64) is None
    offline = replace(learned(week()), learned=None)
    assert Models({Path("a"): offline}).strangest(record(**at), clip) is None


def test_the_digest_is_of_the_bytes_that_were_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another model takes the place of the file as soon as it has been read."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(demo.MODEL.read_bytes())
    wanted = modelfile.sha256(path)
    read = Path.read_bytes

    def read_and_replace(self: Path) -> bytes:
        body = read(self)
        if self == path:
            self.write_bytes(b"another model")
        return body

    monkeypatch.setattr(Path, "read_bytes", read_and_replace)
    assert Models().load(path).sha256 == wanted
    path.write_bytes(read(demo.MODEL))
    fitted, sha256 = baselines.load_with_digest(path)
    assert sha256 == wanted
    assert isinstance(fitted, Detector)
    assert fitted.sha256 == wanted

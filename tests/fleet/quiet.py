"""What a fleet should say: the same clips through the stream and the watcher of a site."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from stepvad.events.camera import CameraEvents, CameraProfile, RecordChange
from stepvad.events.rules import Rules
from stepvad.fleet.wire import EventMessage
from stepvad.site.intake import demo
from stepvad.site.models import Loaded, Models
from stepvad.stream import Stream
from stepvad.windows.values import Windows
from tests.fleet.fleets import THRESHOLD, Heard, Script


def digests(windows: Windows) -> list[str]:
    """Each window's bits, in all views; their digest comes last, so that a line cut off is told."""
    bits = [windows.x[i].tobytes() for i in range(len(windows))]
    for number, view in enumerate(windows.views):
        for row, x in zip(view.rows.tolist(), view.windows.x, strict=True):
            bits[row] += b"%d" % number + x.tobytes()
    return [
        f"{windows.track_id[i]} {windows.frame[i]} {windows.seen[i]} {_sha1(bits[i])}"
        for i in range(len(windows))
    ]


def _sha1(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


@dataclass(slots=True)
class Quiet:
    """A run that nothing happened to."""

    changes: list[RecordChange] = field(default_factory=list)
    windows: set[str] = field(default_factory=set)

    def heard(self) -> Heard:
        return Heard(
            [
                EventMessage(site="", kind=kind, before=after, after=after)
                for kind, after in self.changes
            ]
        )


def quiet(
    scripts: Sequence[Script],
    *,
    without: Iterable[tuple[str, int]] = (),
    model: Path = demo.MODEL,
    threshold: float = THRESHOLD,
) -> Quiet:
    """Every camera by itself, frame by frame; some slots may be left out."""
    loaded = Models().load(model)
    gone = set(without)
    run = Quiet()
    for one in scripts:
        name = f"{one.site}/{one.camera}"
        batches = [batch for _, batch in one.messages]
        batches.sort(key=lambda batch: (batch.connection.epoch, batch.seq, batch.lost is not None))
        watcher, epoch = None, -1
        for batch in batches:
            of = batch.connection
            if of.epoch != epoch:
                if watcher is not None:
                    run.changes += watcher.end_open("camera lost")
                epoch = of.epoch
                watcher = _watcher(name, of.rate, loaded, Rules(threshold=threshold), epoch)
                watcher.start_connection(of.wall0)
                stream, seen = Stream(loaded.detector, fps=of.rate), -1
            assert watcher is not None
            for i, slot in enumerate(batch.slots):
                if (name, slot) in gone or slot <= seen:
                    continue
                seen = slot
                windows = stream.push(slot, batch.poses(i))
                run.windows.update(digests(windows))
                scores = loaded.detector.score_windows(windows)
                run.changes += watcher.observe(slot, of.size, batch.poses(i), scores)
        assert watcher is not None
        run.changes += watcher.end_open("camera lost")
    return run


def joined(runs: Iterable[Quiet]) -> Quiet:
    """The quiet runs of some cameras as one."""
    whole = Quiet()
    for one in runs:
        whole.changes += one.changes
        whole.windows |= one.windows
    return whole


def _watcher(name: str, rate: float, loaded: Loaded, rules: Rules, epoch: int) -> CameraEvents:
    profile = CameraProfile(
        camera=name,
        rate=rate,
        rules=rules,
        detector=loaded.detector,
        model_id=loaded.name,
        model_sha256=loaded.sha256,
        zones={},
    )
    return CameraEvents(profile, lambda: epoch)


def assert_same(heard: Heard, expected: Quiet) -> None:
    """The same events, changes and times; scores to 1e-5."""
    wanted = expected.heard()
    ours, theirs = Counter(heard.facts()), Counter(wanted.facts())
    if ours != theirs:
        pytest.fail(f"said more: {[*ours - theirs]}, and less: {[*theirs - ours]}")
    assert np.allclose(heard.scores(), wanted.scores(), rtol=1e-5, atol=1e-5)
    assert set(heard.ids("new")) == set(heard.ids("end"))
    assert len(heard.ids("new")) == len(set(heard.ids("new"))), "an id began twice"
    if not heard.told:
        pytest.fail("nothing happened")

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from stepvad.codec import decode, encode, from_plain
from stepvad.errors import ConfigError, DataError
from stepvad.events.calibration import calibration_path
from stepvad.fleet import registry, streams
from stepvad.fleet.connection import ChangedError, Connection, UnavailableError, connected
from stepvad.fleet.registry import FalseAlerts, File, Rollout, Run, RunningRun, Status
from stepvad.site import demo
from tests.conftest import Command
from tests.fleet.servers import Broker, broker_settings

T = TypeVar("T")
OLD, NEW = Run(settings="[pose]\nprocesses = 1\n"), Run(settings="[pose]\nprocesses = 2\n")
SITES = [f"site-{n}" for n in range(1000)]
STAGED = registry.staged(Rollout(run=OLD), NEW, 10)


def at(server: Broker, work: Callable[[Connection], Coroutine[Any, Any, T]]) -> T:
    """Do something as an operator."""

    async def done() -> T:
        async with connected(broker_settings([server]), "admin") as admin:
            return await work(admin)

    return asyncio.run(done())


def first(value: Rollout) -> set[str]:
    return {site for site in SITES if registry.wanted(value, site) == NEW}


def test_a_tenth_of_the_sites_try_a_run_and_more_of_them_later() -> None:
    tenth = first(STAGED)
    assert 60 < len(tenth) < 140
    half = registry.staged(STAGED, NEW, 50)
    assert tenth < first(half)
    assert half.next is not None
    assert STAGED.next is not None
    assert half.next.since == STAGED.next.since

    other = Run(settings="[pose]\nprocesses = 3\n")  # others try another run first
    value = registry.staged(STAGED, other, 10)
    assert {site for site in SITES if registry.wanted(value, site) == other} != tenth


def test_what_was_tried_is_run_by_all_and_there_is_a_way_back() -> None:
    after = registry.for_all(STAGED, NEW)
    assert (after.run, after.before, after.next) == (NEW, OLD, None)
    assert registry.for_all(after, NEW).before == OLD  # once more keeps the way back
    back = registry.back(after)
    assert (back.run, back.before) == (OLD, None)
    with pytest.raises(ConfigError, match="expected something to go back to"):
        registry.back(back)
    back = registry.back(STAGED, "too many")  # what is tried goes first
    assert (back.run, back.next, back.stopped) == (OLD, None, "too many")
    assert first(back) == set()


def told(
    days: float = 0.0, false: int = 0, before: tuple[float, int] = (7.0, 0), run: Run = NEW
) -> Status:
    """The status of site a: false alerts in the days of a run, and days and alerts before it."""
    alerts = FalseAlerts(days=days, false=false, before_days=before[0], before_false=before[1])
    return Status(site="a", group="g", run=RunningRun(digest=run.digest), alerts=alerts)


@pytest.mark.parametrize(
    ("days", "false", "before", "stops"),
    [
        (1, 3, (7, 0), True),
        (1, 2, (7, 0), False),
        (1, 9, (7, 7), True),
        (1, 3, (7, 14), False),
        (7, 2000, (7, 1500), True),
        (1, 30, (0, 0), False),
        (0, 30, (7, 0), False),
    ],
)
def test_a_stage_is_stopped_if_a_site_alerts_falsely_more_often(
    days: float, false: int, before: tuple[float, int], stops: bool
) -> None:
    words = registry.to_stop(STAGED, [told(days, false, before)])
    assert (words is not None) == stops
    if words is not None:
        assert words.startswith(f"site a: {false} false alerts in {days:.1f} days, {before[1]} in")


def test_neither_chance_nor_sites_that_do_not_try_the_stage_stop_it() -> None:
    assert registry.to_stop(STAGED, [told(1, 9, run=OLD)]) is None
    assert registry.to_stop(Rollout(run=NEW), [told(1, 9)]) is None
    unlucky = told(1, 4, (7, 6))
    assert registry.to_stop(STAGED, [unlucky]) is not None
    assert registry.to_stop(STAGED, [told(1, 1, (7, 7))] * 99 + [unlucky]) is None


def test_of_two_operators_at_once_one_wins(fleet: Broker) -> None:
    def by(who: str, run: Run, meanwhile: Callable[[], object] = lambda: None) -> Rollout:
        def how(now: Rollout) -> Rollout:
            meanwhile()
            return registry.for_all(now, run)

        return at(fleet, lambda admin: registry.change(admin, "g", how, who))

    assert at(fleet, lambda admin: registry.read(admin, "g")) == (Rollout(), 0)
    with ThreadPoolExecutor() as other:
        for n in range(3):  # the first value, and later ones
            new = Run(settings=f"[pose]\nprocesses = {n + 2}\n")
            with pytest.raises(ChangedError, match="another roll-out meanwhile"):
                by("anna", OLD, lambda: other.submit(by, "ben", new).result())  # noqa: B023
            value, _ = at(fleet, lambda admin: registry.read(admin, "g"))
            assert (value.run, value.by) == (new, "ben")


def fetched(server: Broker, file: File, path: Path, stop_after: int | None = None) -> list[int]:
    """Download a file, each chunk over a connection; the chunks that came."""
    came: list[int] = []

    async def run() -> None:
        async with connected(broker_settings([server]), "site") as site:
            loop = asyncio.get_running_loop()

            def chunk_at(i: int) -> bytes:
                if len(came) == stop_after:
                    server.kill()
                work = asyncio.run_coroutine_threadsafe(registry.chunk(site, file, i), loop)
                data = work.result(20)
                came.append(i)
                return data

            await asyncio.to_thread(registry.download, chunk_at, file, path)

    asyncio.run(run())
    return came


@pytest.mark.slow
def test_a_file_in_chunks_is_never_visible_before_it_is_whole_and_its_download_goes_on(
    fleet: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "CHUNK_S", 2.0)
    data = os.urandom(20_000_000)
    file = at(fleet, lambda admin: registry.put(admin, data, "model.safetensors"))
    assert (file.chunks, file.bytes) == (40, len(data))
    path = tmp_path / "new" / "model.safetensors"
    for _ in range(3):
        with pytest.raises(UnavailableError):
            fetched(fleet, file, path, stop_after=7)
        assert not path.exists()
        fleet.start()
    assert fetched(fleet, file, path) == [*range(21, 40)]
    assert path.read_bytes() == data
    assert fetched(fleet, file, path) == []


def test_a_file_with_another_digest_or_without_a_chunk_is_never_visible(
    fleet: Broker, tmp_path: Path
) -> None:
    file = at(fleet, lambda admin: registry.put(admin, b"right", "model.safetensors"))
    with pytest.raises(UnavailableError, match="expected chunk 0 of 1, got none"):
        fetched(fleet, replace(file, sha256="a" * 64), tmp_path / "model")
    at(fleet, lambda admin: admin.publish(streams.chunk(file.sha256, 0), b"wrong"))
    with pytest.raises(DataError, match="expected the digest"):
        fetched(fleet, file, tmp_path / "model")
    assert [*tmp_path.glob("model*")] == []


@pytest.mark.parametrize(
    "changes", [{"sha256": "../../etc"}, {"bytes": 3_000_000_000}, {"bytes": 0}]
)
def test_the_description_of_a_file_is_checked(changes: dict[str, object]) -> None:
    facts = {"sha256": "0" * 64, "bytes": 5, "name": "model"} | changes
    with pytest.raises(DataError):
        decode(File, encode(facts), "file")


@pytest.fixture
def settings(fleet: Broker, tmp_path: Path) -> Path:
    path = tmp_path / "fleet.toml"
    path.write_text(f'[broker]\nservers = ["{fleet.address}"]\n')
    return path


def rolled_out(stepvad: Command, settings: Path, *words: object) -> Rollout:
    """What a group runs after a command."""
    run = stepvad("fleet", "rollout", settings, "yards", *words, "--json")
    assert run.code == 0, run.err
    return from_plain(Rollout, json.loads(run.out)["rollout"], "rollout")


def test_an_operator_rolls_out_in_stages_and_goes_back(
    stepvad: Command, settings: Path, fleet: Broker, tmp_path: Path
) -> None:
    tables = tmp_path / "tables.toml"
    tables.write_text("[retention]\nevents_days = 3\n")
    rolled_out(stepvad, settings, "--settings", tables, "--all")
    value = rolled_out(stepvad, settings, "--model", demo.MODEL, "--percent", 10)
    assert value.next is not None
    tried = value.next.run
    assert tried.model is not None
    assert tried.model.sha256 == hashlib.sha256(demo.MODEL.read_bytes()).hexdigest()
    assert tried.calibration is not None  # that beside the model
    assert tried.settings == value.run.settings == tables.read_text()
    status = replace(told(1, 9, run=tried), group="yards")
    at(fleet, lambda admin: admin.publish(streams.status("a"), encode(status)))
    shown = stepvad("fleet", "rollout", settings, "yards")
    assert "tried: walkers.safetensors" in shown.err
    told_of = " ".join(shown.out.splitlines()[1].split())
    assert told_of == "a tries 9 in 1.0 days 0 in 7.0 days -"
    # not for all while a site has more false alerts
    refused = stepvad("fleet", "rollout", settings, "yards", "--all")
    assert refused.code == 1
    assert "site a: 9 false alerts in 1.0 days, 0 in the 7.0 days before" in refused.err
    better = replace(told(1, 0, run=tried), group="yards")
    at(fleet, lambda admin: admin.publish(streams.status("a"), encode(better)))
    assert rolled_out(stepvad, settings, "--all").run == tried
    assert rolled_out(stepvad, settings, "--back").run == value.run


def test_what_makes_no_sense_or_no_site_could_use_is_refused_before_it_is_sent(
    stepvad: Command, settings: Path, tmp_path: Path
) -> None:
    model, unknown, cut = (tmp_path / name for name in ("m.safetensors", "a.toml", "b.toml"))
    model.write_bytes(demo.MODEL.read_bytes())
    facts = json.loads(calibration_path(demo.MODEL).read_text())
    calibration_path(model).write_text(json.dumps(facts | {"model_sha256": "0" * 64}))
    unknown.write_text("[retention]\nevent_days = 3\n")
    cut.write_text("[retention\n")
    cases: list[tuple[list[object], str]] = [
        (["yards", "--all", "--back"], "expected one of --percent, --all and --back"),
        (["yards", "--model", demo.MODEL], "expected --percent or --all with something new"),
        (["yards", "--model", demo.MODEL, "--back"], "expected one of --percent, --all and"),
        (["yards", "--percent", "10"], "expected --model or --settings"),
        (["yards", "--back"], "expected something to go back to"),
        (["two words"], "expected a group of letters, digits"),
        (["yards", "--all", "--model", model], "expected the calibration of"),
        (["yards", "--all", "--settings", unknown], "got 'event_days'"),
        (["yards", "--all", "--settings", cut], "expected TOML"),
    ]
    for words, problem in cases:
        run = stepvad("fleet", "rollout", settings, *words)
        assert run.code == 1
        assert problem in run.err

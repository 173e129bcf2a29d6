"""Workers: they share the shards fairly, shed what is late, and end when they hang."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from stepvad.cli.fleet import fleet
from stepvad.errors import ConfigError
from stepvad.fleet.broker.bus import ConflictError, Delivery
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.event_loop import end
from stepvad.fleet.settings import FleetSettings, ModelSettings, WorkerSettings, load, load_worker
from stepvad.fleet.subjects import DEAD, Subjects
from stepvad.fleet.wire import decode_event, encode_claim
from stepvad.fleet.worker import service, stats
from stepvad.fleet.worker.checkpoint import ShardCheckpoint
from stepvad.fleet.worker.models import FleetModels
from stepvad.fleet.worker.owned_shard import (
    OutgoingMessage,
    Outlets,
    OwnedShard,
    Patience,
    key_of,
    take,
)
from stepvad.fleet.worker.scoring import Announcement, BatchScorer
from stepvad.fleet.worker.shard import Pace, PoisonMessage, Shard
from stepvad.fleet.worker.worker import Worker
from stepvad.poses import Clip
from stepvad.site import demo
from stepvad.site.stages import STUCK
from tests.fleet.fleets import ROOT, THRESHOLD, Player, WorkerProcess, listen, script
from tests.fleet.results import assert_same, event, quiet
from tests.fleet.servers import broker, bus_settings
from tests.video.servers import SLOWER, free_port


def test_a_task_that_swallows_a_cancellation_ends_all_the_same() -> None:
    async def stubborn() -> None:
        for _ in range(3):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        await asyncio.sleep(60)

    async def run() -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(stubborn())
        await asyncio.sleep(0)
        await asyncio.wait_for(end(task), 10)
        return task

    assert asyncio.run(run()).cancelled()


def test_what_failed_is_over() -> None:
    async def fails() -> None:
        raise ValueError

    async def run() -> None:
        task = asyncio.get_running_loop().create_task(fails())
        await asyncio.sleep(0)
        await end(task)

    asyncio.run(run())


@pytest.fixture
def patience() -> Patience:
    """That of a shard that caught up at once."""
    made = Patience.from_now(15.0, now=0.0)
    assert not made.may_shed(9.0, 0.0, restarts=0)
    assert made.may_shed(0.1, 1.0, restarts=0)
    return made


def test_a_shard_that_is_taken_may_catch_up_for_so_long() -> None:
    patience = Patience.from_now(15.0, now=100.0)
    assert not patience.may_shed(30.0, 114.0, restarts=0)
    assert patience.may_shed(30.0, 115.0, restarts=0)
    assert not patience.is_caught_up


def test_frames_that_grow_old_by_and_by_are_shed(patience: Patience) -> None:
    ages = [0.1 + 0.2 * n for n in range(10)]
    assert all(patience.may_shed(age, 2.0 + n, restarts=0) for n, age in enumerate(ages))


def test_a_pause_of_the_worker_and_an_absence_of_the_broker_are_forgiven(
    patience: Patience,
) -> None:
    assert not patience.may_shed(5.0, 6.0, restarts=0)  # paused for five seconds
    assert patience.may_shed(0.2, 7.0, restarts=0)
    assert not patience.may_shed(None, 20.0, restarts=-1)  # the broker does not answer
    assert patience.may_shed(None, 60.0, restarts=-1)
    assert not patience.may_shed(40.0, 61.0, restarts=1)  # it is back
    assert not patience.may_shed(30.0, 75.0, restarts=1)
    assert patience.may_shed(30.0, 76.0, restarts=1)


def test_delays_under_overload_do_not_put_shedding_off_for_ever(patience: Patience) -> None:
    assert not patience.may_shed(3.0, 10.0, restarts=0)
    shed = [
        patience.may_shed(5.0 + n, 11.0 + n, restarts=-1 if n // 5 % 2 else n // 5)
        for n in range(40)
    ]
    assert shed == [False] * 14 + [True] * 26


def test_an_empty_stream_is_caught_up_with() -> None:
    patience = Patience.from_now(15.0, now=0.0)
    assert not patience.may_shed(None, 1.0, restarts=0, is_drained=False)
    assert patience.may_shed(None, 2.0, restarts=0, is_drained=True)
    assert patience.is_caught_up


SUBJECTS = Subjects(shards=1)


async def until(happened: Callable[[], bool], limit_s: float = 10 * SLOWER) -> None:
    deadline = time.monotonic() + limit_s
    while not happened():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.05)


def shares(*workers: Worker) -> list[int]:
    return [len(worker.owned_shards) for worker in workers]


def test_workers_share_the_shards_and_hand_them_over_without_a_trace(
    tmp_path: Path, scenes: list[Clip]
) -> None:
    models = FleetModels.load([ModelSettings(model=Path(demo.MODEL), threshold=THRESHOLD)])
    scripts = [script(f"s{i}/cam", clip, speed=3.0) for i, clip in enumerate(scenes[:4])]

    async def run() -> None:
        with broker(tmp_path) as one:
            bus_facts = bus_settings([one], shards=5, lease_s=1.0)
            settings = FleetSettings(bus=bus_facts, worker=WorkerSettings(checkpoint_s=0.3))
            async with connected(bus_facts, "a") as first, connected(bus_facts, "b") as second:
                await first.setup()
                workers = [
                    Worker(bus, settings, models, n) for bus, n in ((first, "a"), (second, "b"))
                ]
                stops = [asyncio.Event(), asyncio.Event()]
                tasks = [asyncio.create_task(workers[0].run(stops[0]))]
                await until(lambda: shares(workers[0]) == [5])
                playing = asyncio.create_task(Player(first).play(scripts))
                await asyncio.sleep(1.0)
                tasks.append(asyncio.create_task(workers[1].run(stops[1])))
                await until(lambda: sorted(shares(*workers)) == [2, 3])
                await asyncio.sleep(0.5)
                stops[0].set()
                await tasks[0]
                await until(lambda: shares(*workers) == [0, 5])
                await playing
                await until(lambda: not any(h.waiting for h in workers[1].owned_shards.values()))
                await asyncio.sleep(0.5)
                stops[1].set()
                await tasks[1]
                assert await first.leases() == {}
                assert_same(await listen(first), quiet(scripts))

    asyncio.run(run())


async def keep_lease(bus: NatsBus, name: str, value: bytes) -> None:
    revision = 0
    while True:
        revision = await bus.lease(name, value, revision)
        await asyncio.sleep(0.2)


def test_a_shard_whose_owner_lives_and_does_not_have_it_is_taken_after_a_while(
    tmp_path: Path,
) -> None:
    """As after a cut: the owner's name was stored, but the answer to it was lost."""
    models = FleetModels.load([ModelSettings(model=Path(demo.MODEL), threshold=THRESHOLD)])

    async def run() -> None:
        with broker(tmp_path) as one:
            facts = bus_settings([one], shards=1, lease_s=1.0)
            async with connected(facts, "a") as bus, connected(facts, "other") as other:
                await bus.setup()
                await other.write(key_of(0), ShardCheckpoint("other").pack(), 0)
                renewing = asyncio.create_task(keep_lease(other, "other", b'{"shards": []}'))
                worker, stop = Worker(bus, FleetSettings(bus=facts), models, "a"), asyncio.Event()
                task = asyncio.create_task(worker.run(stop))
                await asyncio.sleep(1.0)
                assert shares(worker) == [0], "its owner may be about to list it"
                await until(lambda: shares(worker) == [1])
                await end(renewing)
                stop.set()
                await task

    asyncio.run(run())


def test_a_renewal_whose_answer_was_lost_is_retried_at_intervals_until_the_lease_is_ours_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models = FleetModels.load([ModelSettings(model=Path(demo.MODEL), threshold=THRESHOLD)])

    async def run() -> None:
        with broker(tmp_path) as one:
            facts = bus_settings([one], shards=2, lease_s=2.0)
            async with connected(facts, "a") as bus, connected(facts, "other") as other:
                await bus.setup()
                worker, stop = Worker(bus, FleetSettings(bus=facts), models, "a"), asyncio.Event()
                task = asyncio.create_task(worker.run(stop))
                await until(lambda: shares(worker) == [2])
                # the broker took a renewal of which the worker does not know
                while True:
                    try:
                        await other.lease("a", (await other.leases())["a"], worker._lease)
                        break
                    except ConflictError:
                        await asyncio.sleep(0.01)
                lost = worker._lease
                await until(lambda: worker._lease not in (0, lost))
                assert not task.done()
                stop.set()
                await task

    asyncio.run(run())
    told = [r for r in caplog.records if "lease expired" in r.message]
    assert 1 <= len(told) <= 12  # in about two seconds, the first waits of a sixth of one


def test_settings_of_a_worker_are_checked_to_the_line(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text('[bus]\nservers = ["nats://user:Zq7@host:4222"]\n')
    with pytest.raises(ConfigError, match="expected servers as nats://HOST:PORT") as caught:
        load(path)
    assert "Zq7" not in str(caught.value)
    path.write_text('[bus]\nprefix = "a"\n\n[worker]\nshed = 2\n')
    with pytest.raises(ConfigError, match=r"line 5: worker.shed: expected a known key"):
        load(path)
    path.write_text('[bus]\nuser = "a"\n')
    with pytest.raises(ConfigError, match="expected both user and password"):
        load(path)
    path.write_text('[bus]\nuser = "a"\npassword = "plain"\n')
    with pytest.raises(ConfigError, match="expected env:NAME or file:PATH") as caught:
        load(path)
    assert "plain" not in str(caught.value)
    path.write_text("")
    with pytest.raises(ConfigError, match=r"at least one \[\[models\]\]"):
        load_worker(path)


def test_a_model_without_a_threshold_is_refused_before_anything_runs(tmp_path: Path) -> None:
    model = tmp_path / "model.safetensors"
    model.write_bytes(Path(demo.MODEL).read_bytes())
    with pytest.raises(ConfigError, match="expected a threshold or a calibration"):
        FleetModels.load([ModelSettings(model=model)])


def test_setup_from_the_command_line(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    with broker(tmp_path) as one:
        path = tmp_path / "fleet.toml"
        path.write_text(f'[bus]\nservers = ["{one.address}"]\nshards = 4\n')
        assert CliRunner().invoke(fleet, ["setup", str(path)]).exit_code == 0


@pytest.mark.parametrize("damage", ["newer", "damaged"])
def test_a_state_that_cannot_be_read_leaves_a_living_owner_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """A fleet may be updated worker by worker; what an older one cannot read stays as it is."""
    models = FleetModels.load([ModelSettings(model=Path(demo.MODEL), threshold=THRESHOLD)])
    version, state = (2, {"of": "tomorrow"}) if damage == "newer" else (1, {"floor": "x"})
    kept = ShardCheckpoint("theirs", state, version)

    async def run() -> None:
        with broker(tmp_path) as one:
            bus_facts = bus_settings([one], shards=1, lease_s=1.0)
            async with connected(bus_facts, "a") as bus:
                await bus.setup()
                await bus.write(key_of(0), kept.pack(), 0)
                shard = Shard(0, SUBJECTS, models, BatchScorer(), Pace())

                async def taken(alive: bool) -> OwnedShard | None:
                    return await take(
                        bus,
                        "ours",
                        shard,
                        Outlets(
                            subject=SUBJECTS.events(0),
                            dead="stepvad.dead",
                            lost=lambda owned: None,
                            announced=lambda message: None,
                        ),
                        alive=lambda name: alive,
                    )

                assert await taken(alive=True) is None
                entry = await bus.read(key_of(0))
                assert entry is not None
                assert entry.value == kept.pack()
                owned = await taken(alive=False)
                assert owned is not None
                entry = await bus.read(key_of(0))
                assert entry is not None
                assert ShardCheckpoint.unpack(entry.value) == replace(kept, owner="ours")
                await owned.consumer.close()

    asyncio.run(run())
    words = "version 1, got 2" if damage == "newer" else "expected that of a shard"
    assert "shard 0 starts without its state: " in caplog.text
    assert words in caplog.text


@pytest.mark.parametrize("is_fenced", [False, True])
def test_a_storm_of_events_is_stored_in_order_with_what_comes_between_and_only_by_the_owner(
    tmp_path: Path, *, is_fenced: bool
) -> None:
    models = FleetModels.load([ModelSettings(model=Path(demo.MODEL), threshold=THRESHOLD)])
    changes = [Announcement("north", "new", None, event(i), i, 1.0) for i in range(70)]
    poison = PoisonMessage(Delivery("stepvad.poses.0.a.b", b"?", 1, 0.0), "unreadable", "?")
    lost: list[OwnedShard] = []
    announced: list[OutgoingMessage] = []

    async def run() -> None:
        with broker(tmp_path) as one:
            async with connected(bus_settings([one], shards=1), "a") as bus:
                await bus.setup()
                shard = Shard(0, SUBJECTS, models, BatchScorer(), Pace())
                outlets = Outlets(
                    subject=SUBJECTS.events(0),
                    dead="stepvad.dead",
                    lost=lost.append,
                    announced=announced.append,
                )
                owned = await take(bus, "ours", shard, outlets, alive=lambda name: False)
                assert owned is not None
                claim, revision = owned.expect, owned.revision
                if is_fenced:
                    await bus.publish(outlets.subject, encode_claim("theirs"))
                owned.tell(changes[:60], [poison])
                owned.keep()
                owned.tell(changes[60:], [])
                owned.start(asyncio.Event())
                await until(lambda: bool(lost) or not owned.unsaid)
                kept = await bus.read(key_of(0))
                said = [decode_event(data) for data in await bus.said(outlets.subject, claim)]
                await owned.stop()
                if is_fenced:
                    assert (lost, said, announced) == ([owned], [None], [])
                    return
                assert [one.after for one in said if one] == [c.after for c in changes]
                assert (owned.expect, len(announced)) == (claim + 70, 70)
                assert owned.revision > revision
                assert kept is not None
                state = ShardCheckpoint.unpack(kept.value).shard_state()
                assert state is not None
                assert state.said == claim + 60  # all that it knows of, and nothing later
                dead = await bus.client.jetstream().stream_info(DEAD)
                assert dead.state.messages == 1

    asyncio.run(run())


SAYS_SO_S = 2.0


def status(address: str, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as page:
            return int(page.status)
    except urllib.error.HTTPError as error:
        return error.code


async def hang(address: str) -> int:
    """What is answered while the loop of the worker stands still."""
    loop = asyncio.get_running_loop()

    def ask() -> int:
        time.sleep(1.2 * SAYS_SO_S)
        return status(address, "/health")

    asked = loop.run_in_executor(None, ask)
    time.sleep(1.5 * SAYS_SO_S)
    return await asked


def test_a_worker_whose_loop_hangs_is_not_healthy_until_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "HUNG_S", SAYS_SO_S)
    models = FleetModels.load([ModelSettings(model=Path(demo.MODEL), threshold=THRESHOLD)])
    address = f"127.0.0.1:{free_port()}"

    async def run() -> list[int]:
        with broker(tmp_path) as one:
            settings = FleetSettings(bus=bus_settings([one]))
            async with connected(settings.bus, "w") as bus:
                await bus.setup()
                worker, stop = Worker(bus, settings, models, "w"), asyncio.Event()
                close = service.serve_metrics(worker, address)
                running = asyncio.create_task(worker.run(stop))
                try:
                    await asyncio.sleep(1.5 * SAYS_SO_S)
                    found = [await asyncio.to_thread(status, address, "/health")]
                    one.kill()  # a broker that is away is no reason
                    await asyncio.sleep(1.5 * SAYS_SO_S)
                    found.append(await asyncio.to_thread(status, address, "/health"))
                    found.append(await hang(address))
                    await asyncio.sleep(0.5 * SAYS_SO_S)
                    for path in ("/health", "/metrics"):
                        found.append(await asyncio.to_thread(status, address, path))
                    one.start()
                    return found
                finally:
                    stop.set()
                    await running
                    close()

    assert asyncio.run(run()) == [200, 200, 503, 200, 200]


HUNG_S = 2.0
LIMIT_S = 20 * SLOWER


class HangingWorker(WorkerProcess):
    """A worker that hangs at its first frame, in its scoring thread or in its event loop."""

    where = "thread"

    def launch(self) -> None:
        how = [
            "hanging-worker",
            str(self._settings),
            str(HUNG_S),
            self.where,
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.fleet.altered", *how],
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )


async def owners(bus: NatsBus) -> list[str]:
    """Who has a shard, without what makes each start of a worker unique."""
    found = await bus.leases()
    return [name.rpartition("-")[0] for name in found if json.loads(found[name])]


async def until_owned_by(bus: NatsBus, name: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while await owners(bus) != [name]:
        assert time.monotonic() < deadline, f"{name} did not get the shard"
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("where", ["thread", "loop"])
def test_a_worker_whose_scoring_hangs_exits_as_stuck_and_another_takes_its_shard(
    tmp_path: Path, scenes: list[Clip], workers: list[WorkerProcess], where: str
) -> None:
    models = FleetModels.load([ModelSettings(model=Path(demo.MODEL), threshold=THRESHOLD)])
    frames = script("north/door", scenes[0], ends=False)
    frames = replace(frames, messages=frames.messages[:10])

    async def run() -> int:
        with broker(tmp_path) as one:
            facts = bus_settings([one], shards=1, lease_s=1.0)
            first = HangingWorker(tmp_path, [one], "first", shards=1, lease_s=1.0)
            workers.append(first)
            first.where = where
            first.start()
            assert first.process is not None
            async with connected(facts, "second") as bus:
                await until_owned_by(bus, "first")
                second = Worker(bus, FleetSettings(bus=facts), models, "second-0")
                stop = asyncio.Event()
                running = asyncio.create_task(second.run(stop))
                try:
                    await Player(bus).play([frames])
                    await until_owned_by(bus, "second")
                    while second.stats.messages < len(frames.messages):
                        await asyncio.sleep(0.05)
                    return await asyncio.to_thread(first.process.wait, LIMIT_S)
                finally:
                    stop.set()
                    await running

    assert asyncio.run(run()) == STUCK
    log = (tmp_path / "first.log").read_text()
    assert f"hangs: no progress for {HUNG_S:g} s; exiting" in log
    assert "in hanging" in log, "the log shows where it hangs"

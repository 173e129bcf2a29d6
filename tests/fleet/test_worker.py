"""Workers in this process: they share the shards fairly and give them back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stepvad.cli.fleet import fleet
from stepvad.errors import ConfigError
from stepvad.fleet.broker.bus import ConflictError, Delivery
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.settings import FleetSettings, ModelSettings, WorkerSettings, load, load_worker
from stepvad.fleet.subjects import DEAD, Subjects
from stepvad.fleet.tasks import end
from stepvad.fleet.wire import decode_event, encode_claim
from stepvad.fleet.worker.checkpoint import ShardCheckpoint
from stepvad.fleet.worker.models import FleetModels
from stepvad.fleet.worker.outgoing import OutgoingMessage
from stepvad.fleet.worker.owned_shard import Outlets, OwnedShard, key_of, take
from stepvad.fleet.worker.scoring import Announcement, BatchScorer
from stepvad.fleet.worker.shard import Pace, PoisonMessage, Shard
from stepvad.fleet.worker.worker import Worker
from stepvad.poses import Clip
from stepvad.site.intake import demo
from tests.fleet.brokers import broker, bus_settings
from tests.fleet.fleets import THRESHOLD, Player, listen, script
from tests.fleet.messages import event
from tests.fleet.quiet import assert_same, quiet
from tests.video.servers import SLOWER

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
                await other.write(key_of(SUBJECTS.place(0)), ShardCheckpoint("other").pack(), 0)
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


def test_setup_and_lag_from_the_command_line(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    with broker(tmp_path) as one:
        path = tmp_path / "fleet.toml"
        path.write_text(f'[bus]\nservers = ["{one.address}"]\nshards = 4\n')
        assert CliRunner().invoke(fleet, ["setup", str(path)]).exit_code == 0
        found = CliRunner().invoke(fleet, ["lag", str(path)])
        assert (found.exit_code, found.stdout) == (0, "all\t0\n")
        assert CliRunner().invoke(fleet, ["lag", str(path), "--json"]).stdout == "{}\n"


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
                await bus.write(key_of(SUBJECTS.place(0)), kept.pack(), 0)
                shard = Shard(SUBJECTS.place(0), SUBJECTS, models, BatchScorer(), Pace())

                async def taken(alive: bool) -> OwnedShard | None:
                    return await take(
                        bus,
                        "ours",
                        shard,
                        Outlets(
                            subject=SUBJECTS.events(SUBJECTS.place(0)),
                            dead="stepvad.dead",
                            lost=lambda owned: None,
                            announced=lambda message: None,
                        ),
                        alive=lambda name: alive,
                    )

                assert await taken(alive=True) is None
                entry = await bus.read(key_of(SUBJECTS.place(0)))
                assert entry is not None
                assert entry.value == kept.pack()
                owned = await taken(alive=False)
                assert owned is not None
                entry = await bus.read(key_of(SUBJECTS.place(0)))
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
    changes = [Announcement("north", "new", None, event(i), i, 1.0) for i in range(700)]
    poison = PoisonMessage(Delivery("stepvad.poses.0.a.b", b"?", 1, 0.0), "unreadable", "?")
    lost: list[OwnedShard] = []
    announced: list[OutgoingMessage] = []

    async def run() -> None:
        with broker(tmp_path) as one:
            async with connected(bus_settings([one], shards=1), "a") as bus:
                await bus.setup()
                shard = Shard(SUBJECTS.place(0), SUBJECTS, models, BatchScorer(), Pace())
                outlets = Outlets(
                    subject=SUBJECTS.events(SUBJECTS.place(0)),
                    dead="stepvad.dead",
                    lost=lost.append,
                    announced=announced.append,
                )
                owned = await take(bus, "ours", shard, outlets, alive=lambda name: False)
                assert owned is not None
                claim, revision = owned.expect, owned.revision
                if is_fenced:
                    await bus.publish(outlets.subject, encode_claim("theirs"))
                owned.tell(changes[:600], [poison])
                owned.keep()
                owned.tell(changes[600:], [])
                owned.start(asyncio.Event())
                await until(lambda: bool(lost) or not owned.unsaid)
                kept = await bus.read(key_of(SUBJECTS.place(0)))
                said = [decode_event(data) for data in await bus.said(outlets.subject, claim)]
                await owned.stop()
                if is_fenced:
                    assert (lost, said, announced) == ([owned], [None], [])
                    return
                assert [one.after for one in said if one] == [c.after for c in changes]
                assert (owned.expect, len(announced)) == (claim + 700, 700)
                assert owned.revision > revision
                assert kept is not None
                state = ShardCheckpoint.unpack(kept.value).shard_state()
                assert state is not None
                assert state.said == claim + 600  # all that it knows of, and nothing later
                dead = await bus.client.jetstream().stream_info(DEAD)
                assert dead.state.messages == 1

    asyncio.run(run())

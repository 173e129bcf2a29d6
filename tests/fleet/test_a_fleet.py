"""Whole fleets: edge, brokers, worker, writer and database; as shipped and watched."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import stat
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from stepvad.events.record import Record
from stepvad.fleet.broker.nats import connected
from stepvad.fleet.subjects import SHARDS
from stepvad.fleet.worker.scoring import ScoringStats
from stepvad.fleet.worker.stats import REASONS, WorkerMetrics, WorkerStats
from stepvad.formats import write_clip
from stepvad.poses import Clip
from stepvad.site import demo
from tests.fleet.deployed import (
    FLEET,
    Database,
    Machine,
    Prometheus,
    brokers,
    expressions,
    panels,
    prepare,
    prepared,
    prometheus,
    services,
    yaml,
)
from tests.fleet.fleets import (
    RATE,
    THRESHOLD,
    Player,
    Role,
    WorkerProcess,
    bus_section,
    prepare_servers,
    script,
    several,
    stored_records,
    whole,
)
from tests.fleet.results import quiet
from tests.fleet.servers import Broker, broker, bus_settings
from tests.site.sites import NO_PAGE, write_site
from tests.video.servers import SLOWER, free_port, wait_until


def write_edge(directory: Path, server: Broker, clips: list[Clip]) -> Path:
    cameras = []
    for number, clip in enumerate(clips):
        write_clip(clip, directory / f"c{number}.parquet")
        cameras.append(
            f'[[cameras]]\nname = "c{number}"\nurl = "c{number}.parquet"\nrate = {RATE}\n'
        )
    fleet = '[fleet]\npublish = "poses"\n' + bus_section(server, "fleet.bus")
    return write_site(directory, *cameras, fleet, more=NO_PAGE)


def shape(one: Record) -> tuple[object, ...]:
    """What is the same in a run at another time: all but the clock and the number."""
    return (
        *(one.camera, one.frame_seq, one.tracks, one.track_id, one.ended_by),
        *(round(one.top_score, 3), round((one.end_time or 0) - one.start_time, 3)),
    )


def run_fleet(directory: Path, dsn: str, clips: list[Clip], n_events: int) -> WorkerProcess:
    """Play the clips through a whole fleet until its events are over."""
    directory.mkdir()
    settings = directory / "fleet.toml"
    with broker(directory / "nats") as server:
        prepare_servers(dsn, server)
        settings.write_text(bus_section(server) + '[events]\ndsn = "env:DSN"\n')
        worker = WorkerProcess(directory, [server], "w1", worker={"silent_s": 30})
        worker.start()
        try:
            with (
                Role("events", settings, DSN=dsn),
                Role("edge", write_edge(directory, server, clips)) as edge,
            ):
                wait_until(lambda: edge.log.read_text().count("the file is over") == len(clips))
                with suppress(AssertionError):  # without all frames there may be fewer
                    wait_until(
                        lambda: sum(not one.is_open for one in stored_records(dsn)) >= n_events, 60
                    )
                assert edge.stop() == 0, edge.log.read_text()
        finally:
            worker.kill()
    return worker


def test_poses_of_a_site_become_the_rows_that_the_site_itself_would_have_written(
    tmp_path: Path, dsns: Callable[[], str], scenes: list[Clip]
) -> None:
    clips = scenes[:3]
    expected = quiet([script(f"test/c{n}", clip) for n, clip in enumerate(clips)])
    wanted = sorted(shape(one) for kind, one in expected.changes if kind == "end")
    assert wanted
    for number in range(3):  # an edge that is stalled for a third of a second drops frames
        dsn = dsns()
        worker = run_fleet(tmp_path / str(number), dsn, clips, len(wanted))
        windows = whole(set(worker.windows.read_text().splitlines()))
        if windows == expected.windows:
            break
    assert windows == expected.windows
    found = stored_records(dsn)
    assert sorted(shape(one) for one in found) == wanted
    assert {one.model_id for one in found} == {demo.MODEL.stem}
    assert found[0].threshold == THRESHOLD


def asked(url: str, token: str = "") -> Any:
    """What an address answers; None if it does not."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.loads(answer.read())
    except OSError:
        return None


@contextmanager
def database(machine: Machine) -> Iterator[None]:
    """PostgreSQL with its roles."""
    directory = Path(mkdtemp(prefix="pg-"))  # short, because a socket's path is
    server = Database(directory, machine.fleet)
    machine.database = server.port
    try:
        server.start()
        server.run_sql("roles.sql")
        yield
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def set_up(machine: Machine) -> None:
    """The service `setup`, which ends by itself."""
    _, environment = machine.role("setup", "admin.toml")
    shell, flags, script = services()["setup"]["entrypoint"]
    script = script.replace("stepvad ", f"{machine.python} -m stepvad ")
    done = subprocess.run(
        [shell, flags, script],
        env=os.environ | environment,
        cwd=machine.fleet,
        capture_output=True,
        text=True,
        timeout=60 * SLOWER,
    )
    assert done.returncode == 0, done.stderr


def started(stack: ExitStack, machine: Machine, service: str, settings: str, *words: str) -> Role:
    """A role that goes on."""
    path, environment = machine.role(service, settings)
    return stack.enter_context(
        Role(words[0], path, *words[1:], python=machine.python, **environment)
    )


def logs(machine: Machine) -> str:
    """The last words of everybody."""
    found = [*machine.fleet.glob("*.log"), *machine.fleet.parent.glob("*.log")]
    return "\n".join(f"{path.name}: {path.read_text()[-2500:]}" for path in sorted(found))


def test_prepare_gives_each_key_to_one_user_and_keeps_what_is_there(tmp_path: Path) -> None:
    fleet = prepared(tmp_path, "north")
    keys = [*fleet.glob("certs/*.key"), fleet / "secrets" / "token"]
    before = {path: path.read_bytes() for path in [*keys, *fleet.glob("certs/*.pem")]}
    assert len(keys) == 11
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}
    if os.geteuid() == 0:
        mine = {"ca.key": fleet.stat().st_uid, "postgres.key": 999}
        owners = {path.name: path.stat().st_uid for path in keys}
        assert owners == {path.name: mine.get(path.name, 10001) for path in keys}
    assert "edge-south" not in (fleet / "nats" / "sites.conf").read_text()
    prepare(fleet, "north", "south")
    assert {path: path.read_bytes() for path in before} == before
    assert (fleet / "certs" / "edge-south.key").is_file()
    assert "edge-south" in (fleet / "nats" / "sites.conf").read_text()


def pending(machine: Machine) -> dict[str, int]:
    """What the exporter reads for `jetstream_consumer_num_pending`, by consumer of poses."""
    found: dict[str, int] = {}
    for port in machine.monitor.values():
        told = asked(f"http://127.0.0.1:{port}/jsz?accounts=true&streams=true&consumers=true")
        streams = [one for account in told["account_details"] for one in account["stream_detail"]]
        for stream in streams:
            if stream["name"] == "POSES":
                consumers = stream.get("consumer_detail", [])
                found |= {one["name"]: one["num_pending"] for one in consumers}
    return found


@pytest.mark.slow
def test_the_fleet_of_the_compose_file_stores_the_events_of_its_demo_site(tmp_path: Path) -> None:
    machine = Machine(prepared(tmp_path, "north", "south"))
    with ExitStack() as stack:
        running = stack.enter_context(brokers(machine))
        stack.enter_context(database(machine))
        health = [f"http://127.0.0.1:{port}/healthz" for port in machine.monitor.values()]
        wait_until(lambda: all(asked(one) == {"status": "ok"} for one in health), 30 * SLOWER)
        set_up(machine)
        worker = started(stack, machine, "worker", "worker.toml", "worker")
        started(stack, machine, "events", "events.toml", "events")
        started(stack, machine, "page", "page.toml", "events", "--serve")
        started(stack, machine, "edge", "edge.toml", "edge")
        token = (machine.fleet / "secrets" / "token").read_text().strip()
        events = partial(asked, f"http://127.0.0.1:{machine.page}/api/events", token)
        try:
            wait_until(lambda: bool((events() or {}).get("events")), 60 * SLOWER)
        except AssertionError:
            pytest.fail(logs(machine))
        assert len(pending(machine)) == SHARDS
        assert sum(pending(machine).values()) < 100
        assert worker.stop() == 0, logs(machine)
        prepare(machine.fleet, "north", "south", "west")
        running[0].send_signal(signal.SIGHUP)
        log = machine.fleet.parent / "nats-0.log"
        wait_until(lambda: "Reloaded server configuration" in log.read_text())
        assert "CN=edge-west" in (machine.fleet / "nats" / "sites.conf").read_text()
        assert "Violation" not in logs(machine)


def test_its_panels_answer_four_questions_and_do_not_overlap() -> None:
    found = panels()
    assert len({one["id"] for one in found}) == len(found) <= 12
    told = " ".join(one["description"] for one in found)
    for question in ("Is anything lost?", "Is anything late?", "Who is late?", "What is full?"):
        assert question in told
    cells = [
        (x, y)
        for one in found
        for x in range(one["gridPos"]["x"], one["gridPos"]["x"] + one["gridPos"]["w"])
        for y in range(one["gridPos"]["y"], one["gridPos"]["y"] + one["gridPos"]["h"])
    ]
    assert len(cells) == len({*cells})
    assert max(x for x, _ in cells) < 24
    assert all(one["title"] and one["description"].endswith(".") for one in found)


def test_compose_provisions_it_beside_prometheus() -> None:
    mounted = dict(one.split(":")[:2] for one in services()["grafana"]["volumes"])
    assert mounted["./grafana/dashboard.json"].startswith("/etc/grafana/dashboards/")
    there = (FLEET / "../grafana/provisioning").resolve()
    (source,) = yaml.safe_load((there / "datasources" / "prometheus.yaml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in services()


def test_a_counter_is_there_before_it_counts_and_shed_frames_are_late() -> None:
    counted = WorkerStats()
    metrics = WorkerMetrics(counted, ScoringStats(), lambda: 0, lambda: 0, lambda: 0, lambda: 0)
    samples = {one.name: one.samples for one in metrics.collect()}
    left_out = {one.labels["reason"]: one.value for one in samples["stepvad_fleet_frames_left_out"]}
    assert left_out == dict.fromkeys(REASONS, 0)
    counted.late["south"] = 0
    counted.frames["north/yard", "shed"] = 7
    counted.frames["north/yard", "missed"] = 2
    (late,) = (one for one in metrics.collect() if one.name == "stepvad_fleet_frames_late")
    assert {one.labels["site"]: one.value for one in late.samples} == {"south": 0, "north": 7}


async def play(one: Broker, scenes: list[Clip]) -> None:
    async with connected(bus_settings([one]), "player") as bus:
        await Player(bus).play(several(scenes))


def late(asked: Prometheus) -> list[str]:
    """The sites that the panel names."""
    (who,) = [one for one in panels() if one["title"].startswith("Sites with late frames")]
    return [one["metric"]["site"] for one in asked.ask(who["targets"][0]["expr"])]


@pytest.mark.slow
def test_prometheus_answers_every_question_from_what_a_worker_and_a_writer_export(
    tmp_path: Path, dsn: str, scenes: list[Clip]
) -> None:
    port = free_port()
    settings = tmp_path / "fleet.toml"
    with broker(tmp_path / "nats") as one:
        prepare_servers(dsn, one)
        settings.write_text(
            f'{bus_section(one)}[events]\ndsn = "env:DSN"\nmetrics = "127.0.0.1:{port}"\n'
        )
        worker = WorkerProcess(tmp_path, [one], "w1", records=False, worker={"shed_s": 60})
        worker.start()
        jobs = {"worker": worker.address, "events": f"127.0.0.1:{port}"}
        try:
            with Role("events", settings, DSN=dsn), prometheus(tmp_path / "prom", jobs) as asked:
                wait_until(lambda: asked.value('sum(up{job=~"worker|events"})') == 2)
                playing = threading.Thread(target=lambda: asyncio.run(play(one, scenes)))
                playing.start()
                wait_until(lambda: (asked.value("stepvad_fleet_frames_scored_total") or 0) > 100)
                assert asked.ask("stepvad_fleet_frames_late_total")  # before any frame was late
                worker.send(signal.SIGSTOP)
                time.sleep(2.5)  # for longer than a frame may be old
                worker.send(signal.SIGCONT)
                wait_until(lambda: len(late(asked)) > 0, 30)
                playing.join()
                brokers = "gnatsd_"  # of their own exporter, which does not run here
                for expression in expressions():
                    found = asked.ask(expression)
                    assert found or brokers in expression, expression
                assert asked.value(expressions()[0]) == 0  # late, but not lost
        finally:
            worker.kill()

"""The dashboard of a fleet: read by a person at night, asked of what real processes export."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from pathlib import Path

import pytest

from stepvad.fleet.broker.nats import connected
from stepvad.fleet.worker.scoring import ScoringStats
from stepvad.fleet.worker.stats import REASONS, WorkerMetrics, WorkerStats
from stepvad.poses import Clip
from tests.fleet.brokers import Broker, broker, bus_settings
from tests.fleet.dashboards import Prometheus, expressions, panels, prometheus
from tests.fleet.deployed import FLEET, services, yaml
from tests.fleet.fleets import Player, WorkerProcess
from tests.fleet.roles import Role, bus_section
from tests.fleet.runs import several
from tests.fleet.test_a_fleet import prepare
from tests.video.servers import free_port, wait_until


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
        prepare(dsn, one)
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

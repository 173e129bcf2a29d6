"""The server as a stage: its heartbeat, its end, and what /healthz says of all stages."""

from __future__ import annotations

import http.client
import threading
import time
from dataclasses import dataclass, field

import pytest
from fastapi.testclient import TestClient

from stepvad.supervision.stages import Health, Stage, StageHealth, Supervisor
from stepvad.web import Server, bind
from tests.video.servers import SLOWER, wait_until
from tests.web.sites import BEARER, HERE, Site, happen


@dataclass
class Stages:
    """Stages that do as the test says."""

    stages: list[StageHealth] = field(default_factory=list)

    def health(self) -> Health:
        return Health(tuple(self.stages))


def test_healthz_fails_when_a_stage_hangs_and_names_it_only_to_the_operator(
    mill: Site, caplog: pytest.LogCaptureFixture
) -> None:
    stages = Stages([StageHealth("scoring", 0.2, 30.0), StageHealth("web", 0.1, 30.0)])
    app = mill.app(health=stages.health)
    stranger = TestClient(app, base_url=HERE)
    assert (stranger.get("/healthz").status_code, stranger.get("/healthz").text) == (200, "ok\n")
    stages.stages[0] = StageHealth("scoring", 31.5, 30.0)
    for _ in range(3):
        answer = stranger.get("/healthz")
        assert (answer.status_code, answer.text) == (503, "hanging\n")
    said = [one.getMessage() for one in caplog.records if one.name == "stepvad.web.operations"]
    assert said == ["stages hang: scoring"]
    lines = TestClient(app, base_url=HERE, headers=BEARER).get("/metrics").text.splitlines()
    assert 'stepvad_stage_heartbeat_age_seconds{stage="scoring"} 31.5' in lines
    assert 'stepvad_stage_heartbeat_deadline_seconds{stage="web"} 30.0' in lines


def test_a_page_without_stages_is_healthy(mill: Site) -> None:
    assert TestClient(mill.app(), base_url=HERE).get("/healthz").text == "ok\n"


def test_healthz_answers_while_every_thread_is_busy(mill: Site) -> None:
    happen(mill, 1)
    server, threads = running(mill), []
    with mill.store._database._lock:
        for _ in range(60):  # more than there are threads
            line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
            line.request("DELETE", "/api/events?camera=gate", headers=BEARER)
            threads.append(line)
        time.sleep(0.5)
        began = time.monotonic()
        line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        line.request("GET", "/healthz")
        assert line.getresponse().status == 200
        assert time.monotonic() - began < 1 * SLOWER
        line.close()
    for line in threads:
        assert line.getresponse().status == 200
        line.close()
    end(server)


def running(mill: Site) -> Server:
    server = bind(mill.app(), "127.0.0.1", 0)
    threading.Thread(target=server.run, name="web", daemon=True).start()
    return server


def end(server: Server, within_s: float = 5.0) -> None:
    server.stop(time.monotonic() + within_s)
    thread = next(one for one in threading.enumerate() if one.name == "web")
    thread.join(within_s * SLOWER)
    assert not thread.is_alive()


def test_a_supervisor_starts_and_stops_the_server(mill: Site) -> None:
    supervisor = Supervisor()
    server: Stage = bind(mill.app(health=supervisor.health), "127.0.0.1", 0)
    assert isinstance(server, Server)
    supervisor.start(server)
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    line.request("GET", "/metrics", headers=BEARER)
    assert b'stepvad_stage_heartbeat_age_seconds{stage="web"}' in line.getresponse().read()
    assert supervisor.stop([server], 5) == []
    line.close()
    with pytest.raises(ConnectionRefusedError):
        line.connect()


def test_the_heart_beats_while_the_event_loop_runs(mill: Site) -> None:
    server = running(mill)
    time.sleep(1.5)
    assert server.heartbeat.age_s < 1.2 * SLOWER
    end(server)
    stopped = server.heartbeat.age_s
    time.sleep(1.2)
    assert server.heartbeat.age_s > stopped + 1


def test_a_request_that_hangs_does_not_keep_the_server(mill: Site) -> None:
    server = running(mill)
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    with mill.store._database._lock:
        line.request("DELETE", "/api/events?camera=gate", headers=BEARER)
        wait_until(lambda: not server.limit._idle and len(server.limit) == 1)
        began = time.monotonic()
        end(server, 2.0)
        assert time.monotonic() - began < 2.5 * SLOWER
    line.close()

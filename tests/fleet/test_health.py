"""Whether a worker says that it hangs, to whoever would start it again."""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from stepvad.fleet.broker.nats import connected
from stepvad.fleet.settings import FleetSettings, ModelSettings
from stepvad.fleet.worker import service, stats
from stepvad.fleet.worker.models import FleetModels
from stepvad.fleet.worker.worker import Worker
from stepvad.site.intake import demo
from tests.fleet.brokers import broker, bus_settings
from tests.fleet.fleets import THRESHOLD
from tests.video.servers import SLOWER, free_port


HUNG_S = 0.5 * SLOWER


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
        time.sleep(1.2 * HUNG_S)
        return status(address, "/health")

    asked = loop.run_in_executor(None, ask)
    time.sleep(1.5 * HUNG_S)
    return await asked


def test_a_worker_whose_loop_hangs_is_not_healthy_until_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "HUNG_S", HUNG_S)
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
                    await asyncio.sleep(1.5 * HUNG_S)
                    found = [await asyncio.to_thread(status, address, "/health")]
                    one.kill()  # a broker that is away is no reason
                    await asyncio.sleep(1.5 * HUNG_S)
                    found.append(await asyncio.to_thread(status, address, "/health"))
                    found.append(await hang(address))
                    await asyncio.sleep(0.5 * HUNG_S)
                    for path in ("/health", "/metrics"):
                        found.append(await asyncio.to_thread(status, address, path))
                    one.start()
                    return found
                finally:
                    stop.set()
                    await running
                    close()

    assert asyncio.run(run()) == [200, 200, 503, 200, 200]

"""Ray on this machine, whatever else runs here."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def local_ray(n_cpus: int) -> Iterator[Any]:
    """A cluster of one node, started again if the 30 s that Ray gives its processes are too few."""
    import ray

    for left in (4, 3, 2, 1, 0):
        try:
            ray.init(
                address="local",  # no other one that runs here
                num_cpus=n_cpus,
                include_dashboard=False,
                log_to_driver=False,
                object_store_memory=100_000_000,
            )
            break
        except Exception:
            _end(ray)
            if not left:
                raise
    try:
        yield ray
    finally:
        _end(ray)


def _end(ray: Any) -> None:
    """Ray waits for none of the processes that it started: what it leaves is not the test's."""
    ray.shutdown()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()

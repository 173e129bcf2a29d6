"""Open the store of a site from other processes, such as the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stepvad.site.store.eventstore import FILE_NAME, Store


@contextmanager
def open_store(data: Path) -> Iterator[Store]:
    """Open the store in a data directory; raise if no site has run there."""
    store = Store(data / FILE_NAME, create=False)
    try:
        yield store
    finally:
        store.close()


def file_sizes(data: Path) -> dict[Path, int]:
    """Size in bytes of each entry of a data directory; directories include all files below."""
    return {
        path: sum(one.stat().st_size for one in (path, *path.rglob("*")) if one.is_file())
        for path in sorted(data.iterdir())
    }

"""The store of a site that has run, for whoever comes from outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stepvad.site.store.eventstore import FILE_NAME, Store


@contextmanager
def open_store(data: Path) -> Iterator[Store]:
    """The store in a data directory; an error if no site has run there."""
    store = Store(data / FILE_NAME, create=False)
    try:
        yield store
    finally:
        store.close()


def file_sizes(data: Path) -> dict[Path, int]:
    """What a data directory holds, in bytes; of directories all files below them."""
    return {path: _size(path) for path in sorted(data.iterdir())}


def _size(path: Path) -> int:
    inside = [path] if path.is_file() else path.rglob("*")
    return sum(one.stat().st_size for one in inside if one.is_file())

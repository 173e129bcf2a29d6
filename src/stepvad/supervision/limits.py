"""Resource limits of a process."""

from __future__ import annotations

import logging
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger(__name__)

MANY_FILES = 65536
"""No process of a site opens more; programs that iterate over all possible files stay fast."""
FEW_FILES = 4096
"""With fewer, a site with many cameras and a busy page may run out."""


def raise_file_limit() -> int:
    """Raise the soft limit on open files towards the hard one; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_FILES if hard == resource.RLIM_INFINITY else min(hard, MANY_FILES)
    if wanted <= soft or soft == resource.RLIM_INFINITY:
        wanted = soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        logger.warning("the limit of open files stays at %d: %s", soft, error)
        return soft
    if 0 <= wanted < FEW_FILES:
        logger.warning(
            "only %d files and connections may be open at once; raise LimitNOFILE= of the service "
            "or ulimit -n",
            wanted,
        )
    return wanted


@contextmanager
def limited_memory(more: int) -> Iterator[None]:
    """Have allocations fail once this process takes `more` bytes than now; on Linux only.

    The limit counts what a process may write to (`RLIMIT_DATA`), not the address space that
    libraries reserve.
    """
    if sys.platform != "linux":
        yield
        return
    before = soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    least = min(limit for limit in (used + more, soft, hard) if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_DATA, (least, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)

"""Poses that cannot be read are left out: one damaged file must not keep a site from the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from stepvad.errors import StepvadError

logger = logging.getLogger(__name__)


@contextmanager
def leaving_out(what: str) -> Iterator[None]:
    """Log that poses are damaged, deleted or of a newer version, and go on without them."""
    try:
        yield
    except (StepvadError, OSError) as error:
        logger.warning("%s: left out, its poses cannot be read: %s", what, error)

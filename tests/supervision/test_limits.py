"""Resource limits of a process."""

from __future__ import annotations

import resource

import numpy as np
import pytest

from stepvad.supervision.limits import limited_memory


def test_memory_beyond_the_limit_is_refused_and_afterwards_granted() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with limited_memory(1 << 28):
        assert np.ones(1 << 20).sum() == 1 << 20
        with pytest.raises(MemoryError):
            np.ones(1 << 29)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert np.empty(1 << 27).size == 1 << 27

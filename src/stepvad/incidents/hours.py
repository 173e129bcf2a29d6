"""Hours of the day in which a camera or a zone may raise events, in the machine's time zone."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from stepvad.errors import ConfigError

DAY_MIN = 24 * 60
_SPAN = re.compile(r"([01]\d|2[0-4]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class WatchHours:
    """Spans of the day, in minutes since midnight: from the first one on, before the second.

    A span that ends before it starts goes over midnight. Without any span it is never time.
    """

    spans: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, hours: Sequence[str]) -> Self:
        """Parse spans such as `08:00-18:00`."""
        return cls(tuple(_span(one) for one in hours))

    def include(self, wall: float) -> bool:
        """Whether a Unix time is in one of the spans, by the clock on the wall."""
        local = time.localtime(wall)
        now = 60 * local.tm_hour + local.tm_min
        return any(
            first <= now < last if first < last else now >= first or now < last
            for first, last in self.spans
        )


def _span(text: str) -> tuple[int, int]:
    found = _SPAN.fullmatch(text)
    numbers = [int(part) for part in found.groups()] if found else []
    first, last = (
        (60 * numbers[0] + numbers[1], 60 * numbers[2] + numbers[3]) if found else (-1, -1)
    )
    if not (0 <= first < DAY_MIN and 0 <= last <= DAY_MIN and first != last):
        raise ConfigError(
            f"expected hours as HH:MM-HH:MM, got {text!r}",
            hint='such as "08:00-18:00", or "22:00-06:00" over midnight; "00:00-24:00" is all day',
        )
    return first, last

"""Messages to people: when, what they say, to whom, and how they get there."""

from __future__ import annotations

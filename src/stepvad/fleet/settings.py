"""Settings of a fleet's centre: one TOML file for its set-up, its writer and its page."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from stepvad.site.settings.file import read
from stepvad.site.settings.page import NAME, Reference, Section, Web
from stepvad.site.settings.sections import BrokerSettings


class StreamSettings(Section):
    """Sizes of the streams on the brokers; `stepvad fleet setup` applies them."""

    replicas: Literal[1, 3, 5] = Field(1, description="Brokers that keep each message.")
    events_per_site: int = Field(
        1000, ge=10, le=1_000_000, description="Changes of a site that wait for the writer at most."
    )
    events_mb: float = Field(2000.0, gt=0, description="Size limit of events that wait.")
    files_mb: float = Field(4000.0, gt=0, description="Size limit of models and calibrations.")
    poses_minutes: float = Field(15.0, ge=1, le=1440, description="How long poses are kept.")
    poses_mb: float = Field(1000.0, gt=0, description="Size limit of poses, in memory.")


class EventsSettings(Section):
    """Events in PostgreSQL."""

    dsn: Reference = Field(
        "env:STEPVAD_EVENTS_DSN",
        description="Where the address of the database is kept: env:NAME or file:PATH.",
    )
    retention_days: float = Field(
        90.0, ge=31, le=36500, description="How long events are kept; whole months are dropped."
    )
    metrics: str | None = Field(
        None,
        pattern=r"^[^\s:]+:\d+$",
        description="HOST:PORT at which the writer serves Prometheus metrics.",
    )


class FleetSettings(Section):
    """Everything that the centre of a fleet needs."""

    name: str = Field("fleet", pattern=NAME, description="Name of the fleet, on its page.")
    logs: Literal["text", "json"] = Field("text", description="Format of the log on stderr.")
    broker: BrokerSettings = Field(default_factory=BrokerSettings, description="The brokers.")
    streams: StreamSettings = Field(default_factory=StreamSettings, description="The streams.")
    events: EventsSettings = Field(default_factory=EventsSettings, description="The database.")
    web: Web = Field(default_factory=Web, description="The page; it needs a token.")


def load(path: Path | str) -> FleetSettings:
    """Load the settings of a fleet from a TOML file; paths are relative to the file."""
    return read(path, FleetSettings, "the guide on running a fleet has an example")

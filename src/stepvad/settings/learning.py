"""Settings of a site that learns its own model."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

from stepvad.errors import ConfigError
from stepvad.incidents.hours import WatchHours

DIRECTORY = "learned"
"""Directory of learned models in the data directory."""
CURRENT = "current"
"""Link to the directory of the model in use."""
MODEL_NAME = "learned.safetensors"


class LearningSettings(BaseModel):
    """How a site without a model learns its own."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    alerts_per_day: float = Field(
        1.0, gt=0, le=1000, description="False alerts allowed per camera and day."
    )
    fit_hours: list[str] = Field(
        ["02:00-05:00"],
        description="Hours in which new models are fitted, after the first ones; the site keeps "
        "watching.",
    )
    footage_hours: float = Field(
        48.0,
        gt=0,
        description="Maximum footage to fit on, roughly: blocks of ten minutes, spread evenly over "
        "all recordings.",
    )
    keep: int = Field(3, ge=1, le=100, description="Older models to keep.")

    @property
    def hours(self) -> WatchHours:
        """When it may fit."""
        return WatchHours.parse(self.fit_hours)

    @property
    def alerts_per_hour(self) -> float:
        """False alerts that each camera may raise an hour."""
        return self.alerts_per_day / 24

    @field_validator("fit_hours")
    @classmethod
    def _hours(cls, hours: list[str]) -> list[str]:
        try:
            WatchHours.parse(hours)
        except ConfigError as error:
            raise ValueError(f"{error.problem} | {error.hint}") from None
        return hours

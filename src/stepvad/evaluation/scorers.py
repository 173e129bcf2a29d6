"""What the protocol measures: anything that scores clips."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from stepvad.config import Config
from stepvad.errors import ConfigError
from stepvad.model.scoring import Scores
from stepvad.poses import Clip


class Scorer(Protocol):
    """A fitted detector, or anything that scores clips like one."""

    def score(self, clip: Clip) -> Scores:
        """Score a clip; higher is more abnormal."""
        ...


@runtime_checkable
class _WithConfig(Protocol):
    """A scorer with the settings of a model."""

    @property
    def config(self) -> Config:
        """The settings it was fitted with."""
        ...


def weighs_confidence(scorer: Scorer) -> bool:
    """Whether its scores are weighted by confidence; raises if it has no noise scales."""
    if not isinstance(scorer, _WithConfig) or scorer.config.views:
        raise ConfigError(
            "aggregation: expected a detector of one view, got a method without noise scales",
            hint="leave the aggregation out",
        )
    return scorer.config.confidence


def shortest_window(scorer: Scorer) -> int | None:
    """Frames that every window has, if they are fewer than T: those of the shortest view."""
    if isinstance(scorer, _WithConfig) and scorer.config.views:
        return scorer.config.shortest
    return None

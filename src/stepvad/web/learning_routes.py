"""API routes of learning: progress, models to go back to, and how many alerts were right."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Protocol

from fastapi import FastAPI, HTTPException, Query
from pydantic import Field

from stepvad.errors import StepvadError
from stepvad.incidents.precision import WeekOfAlerts, by_week
from stepvad.intake.status import LearningView, LiveStatus
from stepvad.site.learning.versions import LearnedFacts
from stepvad.web.answers import Strict
from stepvad.web.shown import Shown

MOST_JUDGED = 20_000
"""Newest events that are counted."""


class Learning(Protocol):
    """A site that learns its own model."""

    def versions(self) -> list[LearnedFacts]:
        """The models, the newest first."""
        ...

    def fit_now(self) -> None:
        """Fit a new model soon."""
        ...

    def use(self, name: str) -> None:
        """Go back to an older model."""
        ...


class LearningAnswer(Strict):
    """How far a site has learned; without words it has a model that others made."""

    words: str
    hours: float
    people: int
    doing: str = Field(description="fit or calibrate while it does so, else empty.")
    problem: str = Field(description="Why the latest try failed.")
    models: list[LearnedFacts]


class UseRequest(Strict):
    """The model to go back to."""

    model: str = Field(max_length=80)


def add_learning_routes(app: FastAPI, status: LiveStatus, learner: Learning | None) -> None:
    """Add the routes under /api/learning; without a learner there is nothing to change."""

    def needed() -> Learning:
        if learner is None:
            raise HTTPException(409, "this site has a model that it did not learn itself")
        return learner

    @app.get("/api/learning", tags=["learning"])
    def learning() -> LearningAnswer:
        """How far the site has learned, and its models."""
        view = status.snapshot().learning or LearningView(words="", hours=0.0, people=0)
        models = [] if learner is None else learner.versions()
        return LearningAnswer(**asdict(view), models=models)

    @app.post("/api/learning/fit", tags=["learning"], status_code=202)
    def fit() -> LearningAnswer:
        """Fit a new model now, in the background."""
        needed().fit_now()
        return learning()

    @app.post("/api/learning/use", tags=["learning"], status_code=202)
    def use(wanted: UseRequest) -> LearningAnswer:
        """Go back to an older model; the site starts again with it."""
        try:
            needed().use(wanted.model)
        except StepvadError as error:
            raise HTTPException(404, str(error)) from None
        return learning()


def add_precision_route(app: FastAPI, store: Shown) -> None:
    """Add the route that counts right and false alerts."""

    @app.get("/api/precision", tags=["events"])
    def precision(
        since: Annotated[float | None, Query(ge=0, le=1e12, description="Unix time.")] = None,
    ) -> list[WeekOfAlerts]:
        """Right and false alerts by camera and week, the latest first."""
        found = store.events(since=since, limit=MOST_JUDGED)
        return by_week(found, store.reviews())

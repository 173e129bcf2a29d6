"""Routes that play back what people did at an event or at any moment."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query

from stepvad.site.replay import Moment
from stepvad.web.routes import NOT_THERE, CameraPath, EventIdPath, Running

NO_POSES = Moment(words="A fleet keeps no poses: there is nothing to play.")


def add_replays(app: FastAPI, site: Running) -> None:
    """Add the routes."""

    @app.get("/api/events/{id}/scene", tags=["events"], responses=NOT_THERE)
    def scene(id: EventIdPath) -> Moment:
        """Everybody in view around the peak of an event."""
        site.event(id)
        return NO_POSES if site.replays is None else site.replays.event(id)

    @app.get("/api/cameras/{name}/moment", tags=["cameras"], responses=NOT_THERE)
    def moment(
        name: CameraPath,
        at: Annotated[float, Query(description="Unix time in seconds.", ge=0, le=1e12)],
    ) -> Moment:
        """The event at a time, or the people then as far as they are in memory or recorded."""
        site.camera(name)
        return NO_POSES if site.replays is None else site.replays.moment(name, at)

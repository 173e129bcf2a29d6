"""Routes that play back what people did at an event or at any moment."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict, Field

from stepvad import skeletons
from stepvad.intake.recent import UNSEEN
from stepvad.site.replay import Moment, Scene, ScenePerson
from stepvad.web.routes import NOT_THERE, CameraPath, EventIdPath, Running

NO_POSES = Moment(words="A fleet keeps no poses: there is nothing to play.")


class ScenePersonAnswer(BaseModel):
    """One person: in which frames, and x and y of each joint there, null where not seen."""

    model_config = ConfigDict(frozen=True)

    track: int
    frames: list[int]
    xy: list[list[int | None]]

    @classmethod
    def of(cls, person: ScenePerson) -> ScenePersonAnswer:
        """Build from a person of a scene."""
        rows = person.joints.reshape(len(person.frames), -1).tolist()
        xy = [[None if place == UNSEEN else place for place in row] for row in rows]
        return cls(track=person.track, frames=person.frames.tolist(), xy=xy)


class SceneAnswer(BaseModel):
    """Everybody in view of a camera for some seconds, in pixels of its picture."""

    model_config = ConfigDict(frozen=True)

    camera: str
    fps: float
    n_frames: int
    size: tuple[int, int]
    bones: list[list[int]]
    people: list[ScenePersonAnswer]
    at: int | None = Field(description="The frame of the peak, or of the moment asked for.")
    first: int = Field(description="What explanations call the first frame.")
    start: float | None = Field(description="Unix time of the first frame, if known.")
    deciding: int | None = Field(description="The track with the top score.")
    involved: list[int]

    @classmethod
    def of(cls, scene: Scene) -> SceneAnswer:
        """Build from a scene."""
        return cls(
            camera=scene.camera,
            fps=scene.fps,
            n_frames=scene.n_frames,
            size=scene.size,
            bones=skeletons.strokes(scene.skeleton),
            people=[ScenePersonAnswer.of(one) for one in scene.people],
            at=scene.at,
            first=scene.first,
            start=scene.start,
            deciding=scene.deciding,
            involved=[*scene.involved],
        )


class MomentAnswer(BaseModel):
    """What there is of a moment: an event, a scene, or words for why there is neither."""

    model_config = ConfigDict(frozen=True)

    event: str | None = Field(description="Id of the event at that time.")
    scene: SceneAnswer | None
    words: str

    @classmethod
    def of(cls, moment: Moment) -> MomentAnswer:
        """Build from a moment."""
        scene = None if moment.scene is None else SceneAnswer.of(moment.scene)
        return cls(event=moment.event, scene=scene, words=moment.words)


def add_replays(app: FastAPI, site: Running) -> None:
    """Add the routes."""

    @app.get("/api/events/{id}/scene", tags=["events"], responses=NOT_THERE)
    def scene(id: EventIdPath) -> MomentAnswer:
        """Everybody in view around the peak of an event."""
        site.event(id)
        return MomentAnswer.of(NO_POSES if site.replays is None else site.replays.event(id))

    @app.get("/api/cameras/{name}/moment", tags=["cameras"], responses=NOT_THERE)
    def moment(
        name: CameraPath,
        at: Annotated[float, Query(description="Unix time in seconds.", ge=0, le=1e12)],
    ) -> MomentAnswer:
        """The event at a time, or the people then as far as they are in memory or recorded."""
        site.camera(name)
        return MomentAnswer.of(NO_POSES if site.replays is None else site.replays.moment(name, at))

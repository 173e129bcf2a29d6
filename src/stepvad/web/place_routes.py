"""Routes of the drawings of the places that cameras see."""

from __future__ import annotations

from fastapi import FastAPI, HTTPException, Response

from stepvad.web.routes import NOT_THERE, CameraPath, Running


def add_place_routes(app: FastAPI, site: Running) -> None:
    """Add the routes."""

    @app.get(
        "/api/cameras/{name}/place",
        tags=["cameras"],
        response_class=Response,
        responses=NOT_THERE | {200: {"content": {"image/png": {}}}},
    )
    def place(name: CameraPath) -> Response:
        """The edges in the picture of a camera when nobody was in view."""
        drawing = None if site.drawings is None else site.drawings.read(site.camera(name).name)
        if drawing is None:
            raise _no_drawing(name)
        return Response(drawing, media_type="image/png")

    @app.delete("/api/cameras/{name}/place", tags=["cameras"], status_code=204, responses=NOT_THERE)
    def delete_place(name: CameraPath) -> Response:
        """Delete the drawing; it is made again when nobody is in view."""
        if site.drawings is None or not site.drawings.delete(site.camera(name).name):
            raise _no_drawing(name)
        return Response(status_code=204)


def _no_drawing(name: str) -> HTTPException:
    return HTTPException(404, f"camera {name}: expected a drawing of its place, got none")

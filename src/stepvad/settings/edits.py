"""Edits of a settings file, as the page and other programs ask for them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stepvad.settings.section import NAME, Section

Name = Annotated[str, Field(pattern=NAME)]
Corner = tuple[Annotated[float, Field(ge=0, le=1)], Annotated[float, Field(ge=0, le=1)]]
Corners = Annotated[list[Corner], Field(min_length=3, max_length=200)]
Spans = Annotated[list[Annotated[str, Field(max_length=20)]], Field(max_length=24)]
KeyValue = (
    bool
    | int
    | Annotated[float, Field(allow_inf_nan=False)]
    | Annotated[str, Field(max_length=2000)]
    | Annotated[list[Annotated[str, Field(max_length=2000)]], Field(max_length=100)]
)
KeyChanges = Annotated[dict[Name, KeyValue | None], Field(max_length=50)]
"""New values by key; None removes a key, so its default counts."""


class AddCamera(Section):
    """Add a camera after the others."""

    edit: Literal["add camera"]
    keys: KeyChanges
    zones: Annotated[dict[Name, Corners], Field(max_length=50)] = Field(default_factory=dict)
    zone_hours: Annotated[dict[Name, Spans], Field(max_length=50)] = Field(default_factory=dict)


class ChangeCamera(Section):
    """Change the settings of a camera, its name among them."""

    edit: Literal["change camera"]
    camera: Name
    keys: KeyChanges


class RemoveCamera(Section):
    """Remove a camera with the comment above it."""

    edit: Literal["remove camera"]
    camera: Name


class SetZone(Section):
    """Draw a zone, or draw it again; `hours` is when people in it raise events, None always."""

    edit: Literal["set zone"]
    camera: Name
    zone: Name
    corners: Corners
    hours: Spans | None = None


class RenameZone(Section):
    """Rename a zone."""

    edit: Literal["rename zone"]
    camera: Name
    zone: Name
    to: Name


class DeleteZone(Section):
    """Delete a zone."""

    edit: Literal["delete zone"]
    camera: Name
    zone: Name


class ChangeSection(Section):
    """Change the keys of a section, which is made if there is none."""

    edit: Literal["change section"]
    section: Annotated[str, Field(pattern=r"^[a-z_]+(\.[a-z_]+)?$", max_length=60)]
    name: Name | None = None
    """Which item, if the section is a list, such as sinks.webhooks."""
    keys: KeyChanges


class RemoveSection(Section):
    """Remove a section, or one item of a list, with the comment above it."""

    edit: Literal["remove section"]
    section: Annotated[str, Field(pattern=r"^[a-z_]+(\.[a-z_]+)?$", max_length=60)]
    name: Name | None = None


Edit = Annotated[
    AddCamera
    | ChangeCamera
    | RemoveCamera
    | SetZone
    | RenameZone
    | DeleteZone
    | ChangeSection
    | RemoveSection,
    Field(discriminator="edit"),
]

"""stepvad events delete: permanently delete events of a site or fleet."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from stepvad.cli.audited import note
from stepvad.cli.event_options import (
    AnyCamera,
    Fleet,
    Here,
    Scrub,
    Since,
    SiteDataOption,
    Until,
    Yes,
    ask,
    time_of,
)
from stepvad.cli.terminal import AsJson, check_fleet, print_json, say
from stepvad.errors import ConfigError, DataError

if TYPE_CHECKING:
    from stepvad.incidents.stored import Deleted


def delete(
    ids: Annotated[list[str] | None, typer.Argument(help="Event ids.")] = None,
    *,
    data: SiteDataOption = Here,
    fleet: Fleet = None,
    tenant: Annotated[
        str | None,
        typer.Option(help="Only events of this tenant; defaults to the fleet's own sites."),
    ] = None,
    camera: AnyCamera = None,
    since: Since = None,
    until: Until = None,
    all: Annotated[bool, typer.Option("--all", help="All events of all cameras.")] = False,
    include_open: Annotated[
        bool, typer.Option("--include-open", help="Include ongoing events.")
    ] = False,
    scrub: Scrub = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Permanently delete events with their poses, explanations and pending messages.

    An event is deleted if any part of it falls between --since and --until. The files of the store
    keep no trace of it. Backups, exports and messages already sent are not affected.

    An hour of one camera, and everything without confirmation:

        stepvad events delete --camera yard --since 2026-05-01T14:00 --until 2026-05-01T15:00

        stepvad events delete --all --yes

    All events of one fleet camera, from the fleet's database:

        stepvad events delete --fleet fleet.toml --camera north/yard --scrub
    """
    if not (ids or camera or since or until or all):
        raise ConfigError(
            "delete: expected ids, --camera, --since, --until or --all, got none of them",
            hint="choose the events, for example: --camera yard --since 2d",
        )
    if scrub and fleet is None:
        raise ConfigError(
            "--scrub: expected --fleet with it, got a site",
            hint="leave it out: the files of a site keep no trace anyway",
        )
    if tenant is not None and fleet is None:
        raise ConfigError("--tenant: expected --fleet with it, got a site")
    span = time_of(since, "--since"), time_of(until, "--until")
    chosen = Chosen(ids or None, camera, *span, include_open=include_open)
    asked = yes or as_json
    if fleet is None:
        done = _delete_from_site(data, chosen, asked=asked)
        note(data, "deleted events", f"{done.events} events")
    else:
        whose = tenant if tenant is not None or ids else ""
        done = _delete_from_fleet(fleet, chosen, tenant=whose, scrub=scrub, asked=asked)
    if as_json:
        print_json({"deleted": done.events, "kept_open": done.kept_open})
        return
    say(f"events deleted: {done.events}")
    if done.kept_open:
        say(f"ongoing events kept: {done.kept_open}; add --include-open to delete them too")


class Chosen(NamedTuple):
    """Events to delete."""

    ids: list[str] | None
    camera: str | None
    since: float | None
    until: float | None
    include_open: bool


def _delete_from_site(data: Path, chosen: Chosen, *, asked: bool) -> Deleted:
    from stepvad.site.store.access import open_store

    with open_store(data) as store:
        known = store.stored().cameras
        if chosen.camera is not None and chosen.camera not in known:
            raise DataError(
                f"camera {chosen.camera}: expected a camera that has events, got an unknown name",
                hint=f"these have: {', '.join(known) or 'none'}",
            )
        if not asked:
            ask("Permanently delete these events, their poses and their messages?")
        return store.delete(
            camera=chosen.camera,
            after=chosen.since,
            before=chosen.until,
            ids=chosen.ids,
            include_open=chosen.include_open,
        )


def _delete_from_fleet(
    fleet: Path, chosen: Chosen, *, tenant: str | None, scrub: bool, asked: bool
) -> Deleted:
    check_fleet()
    from stepvad.fleet.events import service
    from stepvad.fleet.events.wanted import Wanted
    from stepvad.fleet.settings import load

    settings = load(fleet)
    site, camera = Wanted.parts(chosen.camera)
    wanted = Wanted(
        tenant=tenant,
        site=site,
        camera=camera,
        until=chosen.until,
        ends_after=chosen.since,
        ids=chosen.ids,
    )
    if not asked:
        ask("Permanently delete these events?")
    include_open = chosen.include_open
    return asyncio.run(service.delete(settings, wanted, include_open=include_open, scrub=scrub))

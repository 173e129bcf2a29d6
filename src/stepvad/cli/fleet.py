"""stepvad fleet: the centre of many sites."""

from __future__ import annotations

import asyncio
import getpass
import re
from dataclasses import replace
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Exit, Option, Typer

from stepvad.cli import options, terminal
from stepvad.codec import to_plain
from stepvad.errors import ConfigError
from stepvad.site import stages
from stepvad.site.service import Service

if TYPE_CHECKING:
    from stepvad.fleet.registry import Rollout, Status
    from stepvad.fleet.settings import FleetSettings

fleet = Typer(name="fleet", no_args_is_help=True, help="Run the centre of many sites.")

File = Annotated[Path, Argument(metavar="FLEET.toml", help="Settings file of the fleet.")]


@fleet.command(no_args_is_help=True)
def setup(
    settings: File,
    *,
    check: Annotated[
        bool, Option("--check", help="Change nothing; exit with 1 if there is something to do.")
    ] = False,
) -> None:
    """Make the streams on the brokers and the tables of the database, or bring them up to date.

    Run it as the user `admin` of the brokers and as the owner of the database, once and after each
    change of the settings:

        stepvad fleet setup fleet.toml
    """
    loaded = _load(settings)
    found = asyncio.run(_set_up(loaded, check=check))
    for one in found:
        terminal.say(f"{'to do' if check else 'done'}: {one}")
    if check and found:
        raise Exit(1)
    terminal.say("brokers and database are as the settings say")


async def _set_up(settings: FleetSettings, *, check: bool) -> list[str]:
    """Set up streams and tables, or check them; what was done, or is to be, in words."""
    from stepvad.files import secret
    from stepvad.fleet import connection, database, streams

    dsn, days = secret(settings.events.dsn), settings.events.retention_days
    async with connection.connected(settings.broker, "admin") as broker:
        found = await streams.set_up(broker, settings.streams, check=check)
    return found + await database.set_up(dsn, days, check=check)


@fleet.command(no_args_is_help=True)
def serve(
    settings: File,
    *,
    only: Annotated[
        Literal["writer", "page"] | None, Option(help="Run the writer or the page alone.")
    ] = None,
) -> None:
    """Store the events of all sites and serve their page, until SIGTERM or Ctrl-C.

        stepvad fleet serve fleet.toml

    Several copies may run: of the writers one works, and all pages know a log-in.
    """
    loaded = _load(settings)
    from stepvad.fleet.page import serve

    raise Exit(Service().run(lambda running: serve(loaded, only, running)))


@fleet.command(no_args_is_help=True)
def plan(
    cameras: Annotated[
        Path, Argument(metavar="CAMERAS.csv", help="Table with the columns site, camera, url.")
    ],
    *,
    output: Annotated[Path, Option("--output", "-o", help="Directory for the files.")] = Path(),
    server: Annotated[
        list[str], Option(help="Address of a broker; repeat it for each.", show_default=False)
    ] = ["nats://127.0.0.1:4222"],  # noqa: B006  # typer copies it
) -> None:
    """Write the files of a fleet from a table of its cameras.

        stepvad fleet plan cameras.csv --output fleet --server tls://nats-0.nats:4222

    Settings for each site and for the centre, the users of the brokers, and the values of the chart
    for sites that run there. Run it again when the table changes: passwords stay.
    """
    terminal.check_fleet()
    from stepvad.fleet import plan

    sites = plan.read_cameras(cameras)
    for name in plan.write_plan(output, sites, server):
        terminal.say(f"written: {output / name}")
    n = sum(len(site.cameras) for site in sites)
    terminal.say(f"{len(sites)} sites, {n} cameras; reload the brokers if accounts.conf changed")


@fleet.command(no_args_is_help=True)
def rollout(
    settings: File,
    group: Annotated[str, Argument(metavar="GROUP", help="Group of sites.")],
    *,
    model: Annotated[
        Path | None, Option(help="Model file; a calibration beside it goes along.")
    ] = None,
    tables: Annotated[
        Path | None,
        Option("--settings", metavar="FILE.toml", help="Tables learning, pose and retention."),
    ] = None,
    percent: Annotated[
        int | None, Option(min=1, max=99, help="Share of the sites that try it first.")
    ] = None,
    to_all: Annotated[bool, Option("--all", help="Have all sites run it.")] = False,
    to_back: Annotated[
        bool, Option("--back", help="Withdraw what some try, or go back to what all ran before.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Have a group of sites run a model and settings, or show what they run.

    Let some sites try a model, see how they fare, then have all run it:

        stepvad fleet rollout fleet.toml yards --model model.safetensors --percent 10

        stepvad fleet rollout fleet.toml yards

        stepvad fleet rollout fleet.toml yards --all

    Sites look each minute. If false alerts rise at the first ones, it is withdrawn by itself.
    """
    is_new = model is not None or tables is not None
    if (percent is not None) + to_all + to_back > 1 or (to_back and is_new):
        raise ConfigError("rollout: expected one of --percent, --all and --back, got several")
    if is_new and percent is None and not to_all:
        raise ConfigError(
            "rollout: expected --percent or --all with something new, got neither",
            hint="let some sites try it first: --percent 10",
        )
    from stepvad.site.settings.page import NAME

    if re.fullmatch(NAME, group) is None:
        raise ConfigError(f"rollout: expected a group of letters, digits, - and _, got {group!r}")
    loaded = _load(settings)
    files, text = _new_run(model, tables)
    new: dict[str, Any] = {} if text is None else {"settings": text}

    async def done() -> tuple[Rollout, list[Status]]:
        from stepvad.fleet import registry
        from stepvad.fleet.connection import connected

        async with connected(loaded.broker, "rollout") as broker:
            told = [one for one, _ in await registry.statuses(broker) if one.group == group]
            if percent is None and not to_all and not to_back:
                return (await registry.read(broker, group))[0], told
            for key, path in files.items():
                new[key] = path and await registry.put(broker, path.read_bytes(), path.name)

            def after(now: Rollout) -> Rollout:
                return registry.back(now) if to_back else _after(now, told, new, percent)

            return await registry.change(broker, group, after, getpass.getuser()), told

    value, told = asyncio.run(done())
    if as_json:
        terminal.print_json({"rollout": to_plain(value), "sites": [to_plain(one) for one in told]})
    else:
        _print_rollout(value, told)


def _print_rollout(value: Rollout, told: list[Status]) -> None:
    """Print what a group runs, and what its sites say."""
    for what, run in (("all", value.run), ("tried", value.next.run if value.next else None)):
        if run is not None:
            runs = f"{run.model.name} ({run.model.sha256[:12]})" if run.model else "their own model"
            terminal.say(f"{what}: {runs}{', and settings' if run.settings else ''}")
    if value.stopped:
        terminal.say(f"withdrawn: {value.stopped}")
    names = {"": "its own", value.run.digest: "as all"}
    if value.next is not None:
        names[value.next.run.digest] = "tries"
    rows = []
    for one in sorted(told, key=lambda one: one.site):
        alerts = (
            (one.alerts.false, one.alerts.days),
            (one.alerts.before_false, one.alerts.before_days),
        )
        rates = [f"{n} in {days:.1f} days" if days else "-" for n, days in alerts]
        runs = names.get(one.run.digest, "what was before")
        rows.append([one.site, runs, *rates, one.refused or "-"])
    terminal.print_table("", ["site", "runs", "false alerts", "before", "refused"], rows)


def _after(now: Rollout, told: list[Status], new: dict[str, Any], percent: int | None) -> Rollout:
    """The value of a group once some sites try something, or all run it."""
    from stepvad.fleet import registry

    if new:
        run = replace(now.run, **new)
    elif now.next is not None:
        run = now.next.run
    else:
        raise ConfigError("rollout: expected --model or --settings, got neither, and none is tried")
    if percent is not None:
        return registry.staged(now, run, percent)
    if reason := registry.to_stop(now, told):
        raise ConfigError(
            f"rollout: expected no more false alerts, got more: {reason}",
            hint="withdraw it with --back",
        )
    return registry.for_all(now, run)


def _new_run(model: Path | None, tables: Path | None) -> tuple[dict[str, Path | None], str | None]:
    """Files and settings for sites, checked as far as it can be done here."""
    from stepvad.events.calibration import calibration_path, read_calibration
    from stepvad.site.settings.file import lay_over, parse, read_text

    files: dict[str, Path | None] = {}
    if model is not None:
        from stepvad.detector import Detector

        sha256, beside = Detector.load(model).sha256, calibration_path(model)
        if beside.exists() and read_calibration(beside).model_sha256 != sha256:
            raise ConfigError(f"{beside}: expected the calibration of {model}, got another")
        files = {"model": model, "calibration": beside if beside.exists() else None}
    if tables is None:
        return files, None
    text = read_text(tables, "name a TOML file with tables such as [learning]")
    try:
        lay_over('cameras = [{name = "x", url = "demo:"}]', tables, parse(text))
    except TOMLDecodeError as error:
        raise ConfigError(f"{tables}: expected TOML, got: {error}") from None
    return files, text


def _load(path: Path) -> FleetSettings:
    """The settings of a fleet, whose log they set up."""
    settings = options.load_fleet(path)
    stages.set_up(settings.logs)
    return settings

"""stepvad learning: the models that a site has learned, and going back to one."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from stepvad.cli.terminal import AsJson, print_json, say

learning = typer.Typer(
    no_args_is_help=True, help="List the models that a site has learned, fit one, or go back."
)

SiteFile = Annotated[Path, typer.Argument(metavar="SITE.toml", help="Settings file of the site.")]


@learning.command("list")
def list_(site: SiteFile, *, as_json: AsJson = False) -> None:
    """List the models that a site has learned, newest first.

    stepvad learning list site.toml
    """
    from stepvad.settings.file import load
    from stepvad.site.learning.versions import Versions, facts

    found = facts(Versions(load(site).data))
    if as_json:
        print_json([asdict(one) for one in found])
        return
    for one in found:
        made = datetime.fromtimestamp(one.made).astimezone().isoformat(" ", "minutes")
        typer.echo(f"{one.name}{', in use' if one.is_current else ''}: made {made}")
        typer.echo(f"  {one.changed}")
        typer.echo(f"  alerts at scores of {one.threshold:.3g} or more: {one.promise}")
    if not found:
        say("no model has been learned yet")


@learning.command()
def use(
    site: SiteFile,
    model: Annotated[str, typer.Argument(help="Name of a model, from `stepvad learning list`.")],
) -> None:
    """Return to an older model; restart a running site to use it.

    stepvad learning use site.toml 20261117T030012Z
    """
    from stepvad.settings.file import load
    from stepvad.site.learning.versions import Versions

    Versions(load(site).data).use(model)
    say(f"the site uses {model} after its next start")


@learning.command()
def fit(site: SiteFile) -> None:
    """Fit a new model on the site's recordings now, instead of at night.

    stepvad learning fit site.toml
    """
    from stepvad.cli.terminal import progress_bars
    from stepvad.settings.file import load
    from stepvad.site.learning import rounds

    with progress_bars() as report:
        learned = rounds.fit(load(site), report=report)
    typer.echo(learned.changed)
    say("restart a running site to use the new model")

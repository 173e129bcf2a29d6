"""stepvad models: the networks that find people and joints; list, fetch, verify, bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stepvad.cli.terminal import AsJson, check_output, notes_of, print_json, print_table, say
from stepvad.errors import ModelFileError

models = typer.Typer(no_args_is_help=True, help="Networks that find people and their joints.")
STATES = {True: "fetched", False: "damaged", None: "-"}
Names = Annotated[
    list[str] | None,
    typer.Argument(help="Names of networks; without any, the default detector and pose network."),
]


@models.command("list")
def list_(*, as_json: AsJson = False) -> None:
    """List the known networks: licence, whether downloaded, and whether our figures use that file.

    stepvad models list
    """
    from stepvad.video.models import CARDS, DETECTOR, POSE, is_whole

    rows = [
        {
            "name": card.name,
            "role": card.role,
            "default": card.name in (DETECTOR, POSE),
            "measured": card.measured,
            "licence": card.licence,
            "state": STATES[is_whole(card)],
            "file": str(card.cached),
            "url": card.url,
            "sha256": card.sha256,
        }
        for card in CARDS
    ]
    if as_json:
        print_json(rows)
        return
    columns = ["name", "role", "measured", "licence", "state", "from"]
    cells = [
        [
            f"{row['name']}{' (default)' if row['default'] else ''}",
            *(str(row[name]) for name in ("role", "measured", "licence", "state")),
            str(row["url"]).partition("//")[2].partition("/")[0] or "your own file",
        ]
        for row in rows
    ]
    print_table("networks", columns, cells)


@models.command()
def fetch(
    names: Names = None,
    *,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Take them from a bundle or a directory of ONNX files instead."
        ),
    ] = None,
) -> None:
    """Download networks into the cache and verify them.

    The default ones:

        stepvad models fetch

    On a machine without internet, from a bundle made elsewhere:

        stepvad models fetch --from networks.zip
    """
    from stepvad.video.models import CARDS, cards_of, model_file, read_bundle

    if bundle is not None:
        chosen = read_bundle(bundle, tuple(cards_of(names)) if names else CARDS)
    else:
        chosen = cards_of(names or [])
        with notes_of("stepvad.video"):
            for card in chosen:
                model_file(card.name)
    for card in chosen:
        say(f"{card.name}: {card.cached}, licence {card.licence}")


@models.command()
def verify() -> None:
    """Check the downloaded networks against their checksums; fails if one is damaged.

    stepvad models verify
    """
    from stepvad.video.models import CARDS, is_whole

    states = {card: is_whole(card) for card in CARDS}
    for card, whole in states.items():
        if whole is not None:
            say(f"{card.name}: {'as published' if whole else 'damaged'}, {card.cached}")
    damaged = [card for card, whole in states.items() if whole is False]
    if damaged:
        raise ModelFileError(
            f"{damaged[0].cached}: expected the checksum {damaged[0].sha256}, got another",
            hint="remove it and fetch it again: stepvad models fetch",
        )
    if all(whole is None for whole in states.values()):
        say("no networks downloaded yet")


@models.command("bundle")
def bundle_(
    output: Annotated[Path, typer.Option("-o", "--output", help="The zip file to write.")],
    names: Names = None,
) -> None:
    """Pack networks with their licences and checksums, for machines without internet.

    stepvad models bundle -o networks.zip
    """
    from stepvad.video.models import cards_of, write_bundle

    check_output(output)
    chosen = cards_of(names or [])
    with notes_of("stepvad.video"):
        write_bundle(chosen, output)
    say(f"{output}: {', '.join(card.name for card in chosen)}")

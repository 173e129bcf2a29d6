"""A table of cameras as the files of a fleet: sites, users of the brokers, values of the chart."""

from __future__ import annotations

import csv
import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stepvad.errors import DataError
from stepvad.files import replacing
from stepvad.fleet.permissions import Owner, accounts
from stepvad.site.settings.file import validate
from stepvad.site.settings.page import NAME
from stepvad.site.settings.sections import SiteSettings

REQUIRED = ("site", "camera", "url")
OPTIONAL = {"group": "sites", "certificate": "1", "model": "", "rate": "", "credentials": ""}
"""Columns of the table; the optional ones with what stands for an empty cell."""
SITES, SECRETS, CENTRE = "sites", "secrets", ("admin", "writer", "page")
"""Directories of a plan, and the users of the centre."""


@dataclass(frozen=True, slots=True)
class PlannedSite:
    """A site with its cameras."""

    name: str
    """Also its user at the brokers, and the common name of its certificate."""
    group: str
    certificate: str
    """Number of its certificate; a higher one has the brokers refuse the one before."""
    cameras: tuple[Mapping[str, str], ...]
    """Rows of the table, by column."""

    @property
    def is_central(self) -> bool:
        """True if it runs beside the brokers: its cameras are devices that send poses."""
        return self.cameras[0]["url"].startswith("nats:")

    @property
    def devices(self) -> list[str]:
        """The users of its devices, each of which sends the poses of one camera."""
        return [f"{self.name}-{one['camera']}" for one in self.cameras if self.is_central]


def read_cameras(path: Path) -> list[PlannedSite]:
    """The sites of a table with the columns site, camera, url and perhaps others, in its order."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        header = rows.fieldnames or []
        if not {*REQUIRED} <= {*header} <= {*REQUIRED, *OPTIONAL}:
            raise DataError(
                f"{path}: expected the columns {', '.join(REQUIRED)} and perhaps "
                f"{', '.join(OPTIONAL)}, got {', '.join(header) or 'none'}",
                hint="the guide on running a fleet has an example",
            )
        found: dict[str, PlannedSite] = {}
        for row in rows:
            where = f"{path}, line {rows.line_num}"
            site = _read(row, where)
            name = site.cameras[0]["camera"]
            known = found.setdefault(site.name, replace(site, cameras=()))
            if known != replace(site, cameras=known.cameras):
                raise DataError(f"{where}: expected one group and certificate for {site.name}")
            if name in [one["camera"] for one in known.cameras]:
                raise DataError(f"{where}: expected {name} of {site.name} once, got two")
            if known.cameras and site.is_central != known.is_central:
                raise DataError(
                    f"{where}: expected cameras of {site.name} that all send poses or none",
                    hint="a site that reads poses runs at the centre: make it one of its own",
                )
            found[site.name] = replace(known, cameras=known.cameras + site.cameras)
    if not found:
        raise DataError(f"{path}: expected at least one camera, got none")
    return [*found.values()]


def _read(row: Mapping[str, str | None], where: str) -> PlannedSite:
    """The site of a row, with its camera alone."""
    told = {key: row.get(key) or OPTIONAL.get(key, "") for key in (*REQUIRED, *OPTIONAL)}
    if not told["url"]:
        raise DataError(f"{where}: expected the address of the camera, got none")
    for key in ("site", "camera", "group"):
        if not re.fullmatch(NAME, told[key]):
            what = f"{where}: {key}: expected letters, digits, - and _, got {told[key]!r:.80}"
            raise DataError(what)
    certificate = told["certificate"]
    if not (certificate.isascii() and certificate.isdecimal()):
        raise DataError(f"{where}: certificate: expected a number, got {certificate!r:.80}")
    return PlannedSite(told["site"], told["group"], certificate, (told,))


def site_toml(site: PlannedSite, servers: Sequence[str]) -> str:
    """The settings file of a site, checked as the site will; paths are relative to the file."""
    lines = [f"name = {_text(site.name)}", f"data = {_text(site.name + '-data')}", ""]
    for camera in site.cameras:
        name, url, rate = camera["camera"], camera["url"], camera["rate"]
        lines += ["[[cameras]]", f"name = {_text(name)}", f"url = {_text(url)}"]
        lines += [f"rate = {rate}"] if rate else []
        named = ("credentials", "model")
        lines += [f"{key} = {_text(camera[key])}" for key in named if camera[key]]
        lines.append("")
    lines += ["[fleet]", f"servers = {_text([*servers])}", f"group = {_text(site.group)}"]
    lines += _login(site.name, servers, "../")
    text = "\n".join([*lines, ""])
    validate(text, Path(SITES) / f"{site.name}.toml", SiteSettings)
    return text


def _login(user: str, servers: Sequence[str], up: str) -> list[str]:
    """How a user logs in: by a certificate, or by a password in a directory `up` from here."""
    if not uses_tls(servers):
        return [f"user = {_text(user)}", f'password = "file:{up}{SECRETS}/{user}"']
    names = {"ca": "ca.pem", "cert": f"{user}.pem", "key": f"{user}.key"}
    files = ", ".join(f'{key} = "certs/{name}"' for key, name in names.items())
    return [f"tls = {{ {files} }}"]


def accounts_of(sites: Sequence[PlannedSite], passwords: Mapping[str, str]) -> str:
    """The users of the brokers; who has no password comes with a certificate."""
    renewed = [one for one in sites if one.certificate != "1"]
    owner = Owner(
        sites={one.name: one.group for one in sites if not one.is_central},
        replicas={one.name: one.group for one in sites if one.is_central},
        devices={device: one.name for one in sites for device in one.devices},
        passwords=passwords,
        subjects={one.name: f"CN={one.name},OU={one.certificate}" for one in renewed},
    )
    return accounts(owner)


def uses_tls(servers: Iterable[str]) -> bool:
    """True if the brokers ask for certificates instead of passwords."""
    return any(server.startswith("tls://") for server in servers)


def chart_values(sites: Sequence[PlannedSite], servers: Sequence[str]) -> str:
    """The values of the chart for the sites that it runs, as YAML, which JSON is."""
    own = {one.name: {"settings": site_toml(one, servers)} for one in sites if one.is_central}
    return json.dumps({"sites": own}, indent=2) + "\n"


def write_plan(directory: Path, sites: Sequence[PlannedSite], servers: Sequence[str]) -> list[str]:
    """Write the files of a fleet, as far as they differ from what is there; which were written.

    Secrets that are there stay, so that a plan can be made again with more cameras.
    """
    users = [*CENTRE, *(name for one in sites for name in (one.name, *one.devices))]
    if len({*users}) < len(users):
        raise DataError(f"expected users of other names than {', '.join(CENTRE)}, each once")

    def secret(name: str) -> str:
        path = directory / SECRETS / name
        return path.read_text("utf-8").strip() if path.exists() else secrets.token_urlsafe(24)

    # all is checked before the first file is written
    files = {f"{SITES}/{one.name}.toml": site_toml(one, servers) for one in sites}
    passwords = {} if uses_tls(servers) else {user: secret(user) for user in users}
    for name, text in (passwords | {"token": secret("token")}).items():
        files[f"{SECRETS}/{name}"] = text + "\n"
    # to set the fleet up with, and to run its writer and its page on one machine
    lines = ["[broker]", f"servers = {_text([*servers])}", *_login("admin", servers, "")]
    files["fleet.toml"] = "\n".join([*lines, "", "[web]", f'token = "file:{SECRETS}/token"', ""])
    files["accounts.conf"] = accounts_of(sites, passwords)
    files["values.yaml"] = chart_values(sites, servers)
    done = []
    for name, text in files.items():
        path = directory / name
        if not path.exists() or (name != "fleet.toml" and path.read_text("utf-8") != text):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with replacing(path) as temporary:
                temporary.write_text(text, encoding="utf-8")
            done.append(name)
    return done


def _text(value: str | list[str]) -> str:
    """A string or a list of strings in TOML, whose basic strings are those of JSON."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

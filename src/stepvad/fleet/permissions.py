"""Users of the brokers and their rights, as text that the configuration of the brokers includes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepvad.fleet import streams
from stepvad.fleet.streams import EVENTS, FILES, MARKS, POSES, REGISTRY, STATUS

MAX_PAYLOAD = 1_000_000
"""Most bytes of a message of a site: the answer to a question is the largest."""
SUBSCRIPTIONS = 50
"""Most subscriptions of a site; it has its inbox and its questions."""
SPARE = 20
"""Connections of sites beyond two for each, of which one may be a lost one."""

_API, _GET = "$JS.API", "$JS.API.DIRECT.GET"
_SERVICES = (
    streams.events("*"),
    streams.status("*"),
    streams.poses("*", "*"),
    f"{_GET}.{REGISTRY}.{streams.registry('*')}",
    f"{_GET}.{FILES}.{streams.chunk('*', '*')}",
    f"{_GET}.{MARKS}.{streams.marks('*')}",
)
"""Subjects that pass from the account of the sites to that of the centre, and nothing else does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The users of one fleet, in two accounts that share nothing with those of other owners.

    The account CENTRE has the streams, and the users `admin`, `writer` and `page`. The account
    SITES has the sites and the devices: a broker does not check where an answer goes, so a site
    that could ask the centre's account could have it purge a stream.
    """

    name: str = ""
    """In front of accounts and users, as in `east-admin`; needed only beside other owners."""
    sites: Mapping[str, str]
    """The group of each site."""
    replicas: Mapping[str, str] = field(default_factory=dict)
    """The same of sites that run at the centre and read poses; they are users of CENTRE."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """The site of each device that finds poses itself."""
    passwords: Mapping[str, str] = field(default_factory=dict)
    """By user, without the owner's name, plain or as bcrypt; others come with a certificate."""
    subjects: Mapping[str, str] = field(default_factory=dict)
    """By user: the subject of the certificate if it is not `CN=USER`."""
    memory_mb: int | None = None
    disk_mb: int | None = None
    """What the streams may take of the brokers; all there is by default."""


def accounts(*owners: Owner) -> str:
    """The accounts of all owners, in the form of the brokers' configuration."""
    return "\n".join(["accounts {", *(line for one in owners for line in _pair(one)), "}", ""])


def _pair(owner: Owner) -> list[str]:
    prefix = f"{owner.name}-" if owner.name else ""
    centre, sites = f"{prefix}CENTRE", f"{prefix}SITES"
    n_users = len(owner.sites) + len(owner.devices)
    limits = {
        "max_connections": 2 * n_users + SPARE,
        "max_subscriptions": SUBSCRIPTIONS,
        "max_payload": MAX_PAYLOAD,
    }
    ask = streams.ask("*")
    own = [
        _user(owner, "admin"),
        _user(owner, "writer", _writer(owner)),
        _user(owner, "page", _page(owner)),
        *(_user(owner, name, _replica(owner, name)) for name in owner.replicas),
    ]
    theirs = [
        *(_user(owner, name, _site(owner, name, group)) for name, group in owner.sites.items()),
        *(_user(owner, name, _device(owner, name, at)) for name, at in owner.devices.items()),
    ]
    return [
        f"  {centre} {{",
        f"    jetstream: {_storage(owner)}",
        *_list("exports", [{"service": one, "accounts": [sites]} for one in _SERVICES]),
        *_list("imports", [{"service": {"account": sites, "subject": ask}}]),
        *_list("users", own),
        "  }",
        f"  {sites} {{",
        f"    limits: {json.dumps(limits)}",
        *_list("exports", [{"service": ask, "accounts": [centre]}]),
        *_list("imports", [{"service": {"account": centre, "subject": one}} for one in _SERVICES]),
        *_list("users", theirs),
        "  }",
    ]


def _storage(owner: Owner) -> str:
    named = {"max_memory": owner.memory_mb, "max_file": owner.disk_mb}
    given = {name: mb * streams.MB for name, mb in named.items() if mb is not None}
    return json.dumps(given | {"max_streams": 6}) if given else "enabled"


def _list(name: str, values: Sequence[Any]) -> list[str]:
    """A list with a line for each value; JSON is a form of the configuration."""
    lines = [f"      {value if isinstance(value, str) else json.dumps(value)}" for value in values]
    return [f"    {name}: [", *lines, "    ]"]


def _user(owner: Owner, name: str, may: Rights | None = None) -> str:
    """A user, who may do anything in the account if nothing is listed."""
    facts: dict[str, Any] = {"user": _login(owner, name)}
    if may is not None:
        publish, subscribe = may
        rights: dict[str, Any] = {"publish": {"allow": publish}, "subscribe": {"allow": subscribe}}
        if any(one.startswith("ask.") for one in subscribe):
            # on the subject that a question came with
            rights["allow_responses"] = {"max": 1, "expires": "30s"}
        facts["permissions"] = rights
    if name in owner.passwords:
        facts["password"] = owner.passwords[name]
    return json.dumps(facts, ensure_ascii=False)


def _login(owner: Owner, name: str) -> str:
    user = f"{owner.name}-{name}" if owner.name else name
    return user if name in owner.passwords else owner.subjects.get(name, f"CN={user}")


def _inbox(owner: Owner, name: str) -> str:
    """Answers arrive below the user, or below the name of whoever comes with a certificate."""
    return f"_INBOX.{_login(owner, name) if name in owner.passwords else name}.>"


Rights = tuple[Sequence[str], Sequence[str]]
"""Subjects to publish, and to subscribe to."""


def _site(owner: Owner, name: str, group: str) -> Rights:
    """Own events and status, own questions; by direct get its group, its marks and all files.

    No rights to consumers: one could deliver whatever is in a stream to any subject.
    """
    return (
        streams.events(name),
        streams.status(name),
        f"{_GET}.{REGISTRY}.{streams.registry(group)}",
        f"{_GET}.{FILES}.{streams.chunk('*', '*')}",
        f"{_GET}.{MARKS}.{streams.marks(name)}",
    ), (streams.ask(name), _inbox(owner, name))


def _device(owner: Owner, name: str, site: str) -> Rights:
    return (streams.poses(site, "*"),), (_inbox(owner, name),)


def _replica(owner: Owner, name: str) -> Rights:
    publish, subscribe = _site(owner, name, owner.replicas[name])
    return (*publish, *_consumers(POSES)), subscribe


def _writer(owner: Owner) -> Rights:
    return (*_consumers(EVENTS), f"{_API}.STREAM.PURGE.{EVENTS}"), (_inbox(owner, "writer"),)


def _page(owner: Owner) -> Rights:
    """Look at everything but events and poses; ask sites, mark, and change what sites run."""
    return (
        streams.ask("*"),
        streams.marks("*"),
        streams.registry("*"),
        *(f"{_GET}.{stream}.>" for stream in (REGISTRY, FILES, MARKS, STATUS)),
        *_consumers(STATUS),
    ), (streams.status("*"), _inbox(owner, "page"))


def _consumers(stream: str) -> Sequence[str]:
    """The rights to read a stream."""
    names = "CREATE.{0}", "CREATE.{0}.>", "MSG.NEXT.{0}.*", "INFO.{0}.*", "DELETE.{0}.*"
    return (
        f"{_API}.STREAM.INFO.{stream}",
        *(f"{_API}.CONSUMER.{name.format(stream)}" for name in names),
    )

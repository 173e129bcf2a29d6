"""Accounts of the broker, one for each tenant, as text that its settings include."""

from __future__ import annotations

from collections.abc import Iterable

from stepvad.fleet.settings import TenantSettings
from stepvad.fleet.subjects import Subjects

HEAD = """\
# Made by stepvad fleet tenant. Each tenant is an account: its sites publish their own poses and
# events, ask where to send them, and hear their own answers; nothing else passes.
"""


def accounts(tenants: Iterable[TenantSettings], subjects: Subjects) -> str:
    """All accounts; reload the broker after a change."""
    return HEAD + "".join(_account(tenant, subjects) for tenant in tenants)


def edge_user(site: str, generation: int) -> str:
    """The subject of the certificate of a site's edge."""
    unit = "" if generation == 1 else f",OU={generation}"
    return f"CN=edge-{site}{unit}"


def where(subjects: Subjects, tenant: str) -> str:
    """The subject on which an edge asks for the partitions of its tenant."""
    bucket = subjects.directory
    return f"$JS.API.DIRECT.GET.KV_{bucket}.$KV.{bucket}.{tenant}"


def _account(tenant: TenantSettings, subjects: Subjects) -> str:
    name = tenant.name
    of = subjects.of_tenant(name)
    imports = (f"{of}.poses.>", f"{of}.edge-events.*", where(subjects, name))
    lines = "".join(
        f'    {{ service: {{ account: FLEET, subject: "{one}" }} }}\n' for one in imports
    )
    users = "".join(_user(tenant, site, subjects) for site in tenant.sites)
    return (
        f"{name} {{\n"
        f"  limits {{ max_connections: {tenant.connections}, max_subscriptions: 100 }}\n"
        f"  imports: [\n{lines}  ]\n"
        f"  users: [\n{users}  ]\n"
        "}\n"
    )


def _user(tenant: TenantSettings, site: str, subjects: Subjects) -> str:
    may = (
        subjects.poses_of_site(site, tenant.name),
        subjects.edge_events(site, tenant.name),
        where(subjects, tenant.name),
    )
    allowed = ", ".join(f'"{one}"' for one in may)
    return (
        f'    {{\n      user: "{edge_user(site, tenant.generation)}"\n'
        "      permissions: {\n"
        f"        publish: {{ allow: [{allowed}] }}\n"
        f'        subscribe: {{ allow: ["_INBOX.edge-{site}.>"] }}\n'
        "      }\n    }\n"
    )

"""Names of tenants: owners of sites, who see nothing of each other."""

from __future__ import annotations

import re

from stepvad.errors import ConfigError

LONGEST = 48
"""The name of a database role, `stepvad_tenant_NAME`, has at most 63 characters."""
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{LONGEST - 1}}}")


def is_tenant(name: str) -> bool:
    """Whether a tenant may have this name: one part of a subject, without dots."""
    return _NAME.fullmatch(name) is not None


def checked_tenant(name: str) -> str:
    """The name of a tenant, if it may be one."""
    if not is_tenant(name):
        raise ConfigError(
            f"tenant: expected 1 to {LONGEST} letters, digits, - or _, got {name!r:.80}",
            hint="the first is a letter or a digit",
        )
    return name

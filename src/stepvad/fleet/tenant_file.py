"""Change the tenants in the settings file of a fleet's administrator, and what is made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from stepvad.errors import ConfigError, os_reason
from stepvad.files import replacing
from stepvad.fleet.broker.accounts import accounts
from stepvad.fleet.settings import HINT, FleetSettings, TenantSettings, load
from stepvad.site.settings.editing import ChangeSection, Edit, KeyValue, RemoveSection, edited
from stepvad.site.settings.file import validate
from stepvad.site.settings.live import check_unchanged, read_settings

SECTION = "tenants"


def tenant_named(settings: FleetSettings, name: str) -> TenantSettings:
    """The tenant of a name."""
    for tenant in settings.tenants:
        if tenant.name == name:
            return tenant
    known = ", ".join(tenant.name for tenant in settings.tenants) or "none"
    raise ConfigError(f"tenant: expected one of {known}, got {name}")


def add_tenant(
    path: Path, name: str, sites: Sequence[str], limits: Mapping[str, KeyValue]
) -> FleetSettings:
    """Add a tenant to the file."""
    if any(tenant.name == name for tenant in load(path).tenants):
        raise ConfigError(
            f"tenant: expected a new name, got {name}, which exists",
            hint="stepvad fleet tenant limits changes it",
        )
    return change_tenant(path, name, {"sites": [*sites], **limits})


def change_tenant(path: Path, name: str, keys: Mapping[str, KeyValue]) -> FleetSettings:
    """Set keys of a tenant, which is made if there is none."""
    return _apply(
        path, ChangeSection(edit="change section", section=SECTION, name=name, keys=dict(keys))
    )


def remove_tenant(path: Path, name: str) -> FleetSettings:
    """Remove a tenant from the file."""
    tenant_named(load(path), name)
    return _apply(path, RemoveSection(edit="remove section", section=SECTION, name=name))


def write_accounts(settings: FleetSettings) -> Path | None:
    """Write the accounts that the broker includes; None if the settings name no file."""
    path = settings.accounts
    if path is None:
        return None
    try:
        # the same file, not another in its place: a container sees only the one it was given
        path.write_text(accounts(settings.tenants, settings.bus.subjects))
    except OSError as error:
        raise ConfigError(f"accounts: expected to write {path}, got: {os_reason(error)}") from None
    return path


def _apply(path: Path, edit: Edit) -> FleetSettings:
    before = read_settings(path)
    text = edited(before.text, [edit])
    made = validate(text, path, FleetSettings, HINT)
    with replacing(path.resolve(), ConfigError) as temporary:
        temporary.write_text(text)
        check_unchanged(path, before.digest)
    return made

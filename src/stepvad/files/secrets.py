"""Secrets by reference, to keep them out of command lines and settings files."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from stepvad.errors import ConfigError, os_reason

_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:.+")


def is_reference(text: str) -> bool:
    """Whether a text is a reference to a secret."""
    return _REFERENCE.fullmatch(text) is not None


def secret(reference: str) -> str:
    """Read the secret that `env:NAME` or `file:PATH` refers to."""
    kind, _, name = reference.partition(":")
    if kind == "file":
        return secret_line(Path(name))
    value = os.environ.get(name, "")
    if not value:
        raise ConfigError(
            f"env:{name}: expected the environment variable {name}, got none",
            hint="set it where stepvad is started, for systemd with EnvironmentFile=",
        )
    return value


def secret_line(path: Path, what: str = "a secret") -> str:
    """Read the single line of a file; raise if others may read or write it."""
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = os_reason(error) if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(
            f"{path}: expected a file with {what}, got: {reason}",
            hint="check the path and its permissions",
        ) from None
    if os.name == "posix" and mode & (stat.S_IROTH | stat.S_IWOTH):
        raise ConfigError(
            f"{path}: expected a file that others cannot read, got mode {stat.S_IMODE(mode):03o}",
            hint=f"chmod 600 {path}",
        )
    if not text or "\n" in text:
        raise ConfigError(
            f"{path}: expected one line, {what}, got {len(text.splitlines())}",
            hint=f"write {what} and nothing else",
        )
    return text

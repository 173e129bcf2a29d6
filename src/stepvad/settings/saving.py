"""Read and replace the text of a settings file; nobody's change is lost."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from stepvad.errors import ConfigError
from stepvad.files.atomic import replacing
from stepvad.settings.file import MAX_BYTES, SiteSettings, read_text, validate

BEFORE = ".before"
"""Added to the name of the file with the settings before the last change."""


class FileChangedError(ConfigError):
    """The file is not the one that the change was made for."""


@dataclass(frozen=True, slots=True)
class SettingsText:
    """The text of a settings file, and the digest that tells it from any other."""

    text: str
    digest: str


def read_settings(path: Path) -> SettingsText:
    """Read the text of a settings file."""
    text = read_text(path, "check it on the machine itself")
    return SettingsText(text, digest_of(text.encode()))


def digest_of(data: bytes) -> str:
    """The digest of a file."""
    return hashlib.sha256(data).hexdigest()


def check_unchanged(path: Path, digest: str) -> SettingsText:
    """Read the file; raise if it is not the one with this digest."""
    now = read_settings(path)
    if now.digest != digest:
        raise FileChangedError(
            f"{path}: expected the file as you loaded it, got one that was changed since",
            hint="load it again and make your change there",
        )
    return now


def save_settings(path: Path, text: str, digest: str) -> SettingsText:
    """Replace a settings file if the loader takes the text and nobody changed it meanwhile.

    The text before is kept beside it. A link stays a link: the file behind it is replaced.
    """
    path = path.resolve()
    before = check_unchanged(path, digest)
    if "\r\n" in before.text and "\r\n" not in text:  # browsers know one end of a line
        text = text.replace("\n", "\r\n")
    data = text.encode()
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path}: expected up to {MAX_BYTES} bytes, got {len(data)}")
    validate(text, path, SiteSettings)
    if data == before.text.encode():
        return before
    with replacing(path.with_name(path.name + BEFORE), ConfigError) as kept:
        kept.write_bytes(before.text.encode())
    with replacing(path, ConfigError) as temporary:
        temporary.write_bytes(data)
        check_unchanged(path, digest)
    return SettingsText(text, digest_of(data))

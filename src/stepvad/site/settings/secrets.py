"""Rule that keeps secrets of the machine where the settings file already sends them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple
from urllib.parse import urlsplit

from stepvad.errors import ConfigError
from stepvad.files import is_reference, replacing
from stepvad.site.settings.editing import KeyChanges
from stepvad.site.settings.page import BROWSERS
from stepvad.site.settings.sections import CameraSettings, SiteSettings
from stepvad.video.url import PLACEHOLDER, USUAL_PORTS

DIRECTORY = "secrets"
"""Directory of the data directory with passwords that were typed on the page."""


class SecretUse(NamedTuple):
    """A secret of the machine, by its reference, and what it is used for."""

    reference: str
    place: str
    """Scheme, host and port that get it, or its use on the machine."""


def check_secrets(wanted: SiteSettings, saved: SiteSettings, typed: Collection[str] = ()) -> None:
    """Raise unless the saved settings use every secret of the wanted ones for the same host.

    The references in `typed` may go anywhere. Settings that come from a browser pass here: whoever
    took over an administrator's session may otherwise have any environment variable and any private
    file sent to a host of their own.
    """
    known = {*secret_uses(saved)}
    for use in secret_uses(wanted):
        if use not in known and use.reference not in typed:
            raise SecretError(
                f"expected secrets that the saved settings use for {use.place}, got "
                f"{use.reference}",
                hint="type the password itself, or write this one into the settings file on the "
                "machine itself; the page uses a secret only where the file does",
            )


class SecretError(ConfigError):
    """A secret that the browser may not use there."""


@contextmanager
def typed_passwords(
    data: Path, cameras: Iterable[KeyChanges], *, keep: bool
) -> Iterator[Collection[str]]:
    """Put `user:password` as typed for cameras into private files, and references in its place.

    Yields the references. The files go if something fails, or if they are not to be kept.
    """
    made: dict[str, Path] = {}
    for keys in cameras:
        typed = keys.get("credentials")
        if not isinstance(typed, str) or ":" not in typed or is_reference(typed):
            continue
        path = (data / DIRECTORY / f"camera-{token_hex(6)}.secret").absolute()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(path, ConfigError) as temporary:
            temporary.write_text(f"{typed}\n", encoding="utf-8")
        keys["credentials"] = f"file:{path}"
        made[f"file:{path}"] = path
    try:
        yield made
        if keep:
            made.clear()
    finally:
        for path in made.values():
            path.unlink(missing_ok=True)


def secret_uses(settings: SiteSettings) -> Iterator[SecretUse]:
    """Every secret that settings name, with the place where it goes."""
    sinks = settings.sinks
    for camera in settings.cameras:
        if camera.kind == "stream":
            yield from _of_camera(camera)
    for webhook in sinks.webhooks:
        if webhook.secret is not None:
            yield SecretUse(webhook.secret, place_of(webhook.url))
    if sinks.mqtt is not None and sinks.mqtt.password is not None:
        scheme = "mqtts" if sinks.mqtt.tls else "mqtt"
        yield SecretUse(sinks.mqtt.password, f"{scheme}://{sinks.mqtt.host}:{sinks.mqtt.port}")
    for people in sinks.notify:
        yield from (SecretUse(to, "messages to people") for to in people.to if to != BROWSERS)
    if settings.web.token is not None:
        yield SecretUse(settings.web.token, "the token of the page")


def place_of(url: str) -> str:
    """Scheme, host and port of an address, without its credentials and path."""
    parts = urlsplit(url)
    host = parts.netloc.lower().rpartition("@")[2]
    # without a port, the usual one; a colon may also be part of an IPv6 address
    port = "" if re.search(r":\d+$", host) else f":{USUAL_PORTS[parts.scheme]}"
    return f"{parts.scheme}://{host}{port}"


def _of_camera(camera: CameraSettings) -> Iterator[SecretUse]:
    # where credentials stand, variables go to the host; elsewhere they are part of the address
    # itself, which may stay as it is and nothing else
    names = PLACEHOLDER.findall(camera.url)
    login = urlsplit(camera.url).netloc.rpartition("@")[0]
    is_plain = len(names) == len(PLACEHOLDER.findall(login))
    place = place_of(camera.url) if is_plain else camera.url
    references = [f"env:{name}" for name in names]
    references += [camera.credentials] if camera.credentials else []
    for reference in references:
        yield SecretUse(reference, place)
        if camera.tls_insecure:  # a check of the certificate may come, but not go
            yield SecretUse(reference, f"{place} without a check of its certificate")

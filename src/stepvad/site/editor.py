"""Change the settings file of a running site; the site then starts again with it."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stepvad.errors import ConfigError, os_reason
from stepvad.settings.editing import edited
from stepvad.settings.edits import AddCamera, Edit, KeyChanges
from stepvad.settings.file import SettingsError, validate
from stepvad.settings.saving import SettingsText, check_unchanged, read_settings, save_settings
from stepvad.settings.sections import SiteSettings
from stepvad.site.camera_trial import CameraPicture, CameraProblem, try_camera
from stepvad.site.checking import check
from stepvad.site.sink_test import send_test

logger = logging.getLogger(__name__)

TRIED = "tried"
"""Name of a camera while it is tried."""
TRIED_KEYS = ("url", "credentials", "tls_ca", "tls_insecure", "picture_rate", "rate")


class BusyError(ConfigError):
    """One at a time."""


class SettingsEditor:
    """The settings file of a running site; thread-safe."""

    def __init__(self, path: Path, running: SiteSettings, reload: Callable[[], None]) -> None:
        """`reload` starts the site again with the file as it is then."""
        self.path = path.absolute()
        self.running = running
        self._reload = reload
        self._saving, self._trying, self._testing = (threading.Lock() for _ in range(3))

    def read(self) -> SettingsText:
        """The file as it is."""
        return read_settings(self.path)

    def validate(self, text: str) -> SiteSettings:
        """The settings in a text, as `stepvad watch` reads them."""
        return validate(text, self.path, SiteSettings)

    def check(self, text: str) -> list[str]:
        """Check a text as `stepvad watch --check` does; a line for each check that passes."""
        settings = self.validate(text)
        lines = [*check(settings)]
        web = settings.web
        if web.enabled and web.port not in (0, self.running.web.port):
            _check_free(web.host, web.port)
        return lines

    def edited(self, digest: str, edits: Sequence[Edit]) -> str:
        """The text of the file after some edits; nothing is saved."""
        return edited(check_unchanged(self.path, digest).text, edits)

    def save(self, digest: str, text: str) -> SettingsText:
        """Replace the text of the file, then start the site again if it has changed."""
        with self._saving:
            self.check(text)
            saved = save_settings(self.path, text, digest)
            if saved.digest != digest:
                logger.warning("%s was changed from the page", self.path)
                self._reload()
            return saved

    def try_camera(self, keys: KeyChanges) -> CameraPicture | CameraProblem:
        """Open a camera that the file need not have; one at a time."""
        given = {key: keys[key] for key in TRIED_KEYS if keys.get(key) is not None}
        new = AddCamera(edit="add camera", keys={"name": TRIED, **given})
        try:
            camera = self.validate(edited('model = "unused"\n', [new])).camera(TRIED)
        except SettingsError as error:
            raise ConfigError(error.what, hint=error.hint) from None
        with _alone(self._trying, "another camera is being tried"):
            return try_camera(camera, self.running.pose, self.running.logs)

    def test_sink(self, name: str) -> None:
        """Send a test through a sink of the running site; one at a time."""
        with _alone(self._testing, "another test is being sent"):
            send_test(self.running, name)


@contextmanager
def _alone(lock: threading.Lock, words: str) -> Iterator[None]:
    if not lock.acquire(blocking=False):
        raise BusyError(
            f"expected one at a time, got a second: {words}", hint="wait until it has finished"
        )
    try:
        yield
    finally:
        lock.release()


def _check_free(host: str, port: int) -> None:
    """Raise if another program listens where the page is to be: it would not come back."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(
                f"web: expected to listen on {host} port {port}, got: {os_reason(error)}",
                hint="another program may use it: choose another host or port under [web]",
            ) from None

"""Change the settings file of a running site, and run it by them; nobody's change is lost."""

from __future__ import annotations

import hashlib
import logging
import socket
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from stepvad.errors import ConfigError, os_reason
from stepvad.files import replacing
from stepvad.site.checking import check
from stepvad.site.settings.changes import Changes, compare
from stepvad.site.settings.editing import AddCamera, Edit, KeyChanges, edited
from stepvad.site.settings.file import MAX_BYTES, SettingsError, read_text, site_settings, validate
from stepvad.site.settings.secrets import check_secrets
from stepvad.site.settings.sections import CameraSettings, Sinks, SiteSettings
from stepvad.site.sinks import send_test
from stepvad.site.trial import CameraPicture, CameraProblem, try_camera

logger = logging.getLogger(__name__)

BEFORE = ".before"
"""Added to the name of the file with the settings before the last change."""

TRIED = "tried"
"""Name of a camera while it is tried."""
TRIED_KEYS = ("url", "credentials", "tls_ca", "tls_insecure", "picture_rate", "rate")


ApplySettings = Callable[[SiteSettings, Changes], list[str]]
"""Runs a site by other settings; returns the stages in the way, which only a restart replaces."""


class SettingsEditor:
    """The settings file of a running site; thread-safe."""

    def __init__(self, path: Path, running: SiteSettings, reload: Callable[[], None]) -> None:
        """`reload` starts the site again with the file as it is then."""
        self.path = path.absolute()
        self.running = running
        """The settings in force."""
        self.apply: ApplySettings | None = None
        """Applies what takes no restart; without it everything takes one."""
        self._reload = reload
        self._saving, self._trying, self._testing = (threading.Lock() for _ in range(3))

    def current(self) -> SettingsText:
        """The file as it is."""
        return read_settings(self.path)

    def validate(self, text: str) -> SiteSettings:
        """The settings in a text, as `stepvad watch` reads them."""
        return site_settings(text, self.path)

    def _check(self, settings: SiteSettings, typed: Collection[str]) -> None:
        """Check settings as `stepvad watch --check` does, and what only a running site knows."""
        check_secrets(settings, self._saved(), typed)
        _, web = [*check(settings)], settings.web
        if web.enabled:
            # the port that the page has now is taken by the page itself
            _check_free(web.host, 0 if web.port == self.running.web.port else web.port)
        if settings.data != self.running.data:
            _check_data(settings.data)

    def edited(self, digest: str, edits: Sequence[Edit]) -> str:
        """The text of the file after some edits; nothing is saved."""
        return edited(check_unchanged(self.path, digest).text, edits)

    def changes(self, text: str) -> Changes:
        """What it takes to run the site by a text."""
        return compare(self.running, self.validate(text))

    def save(
        self, digest: str, text: str, typed: Collection[str] = ()
    ) -> tuple[SettingsText, Changes]:
        """Replace the text of the file, then run the site by it; `typed` secrets are new."""
        with self._saving:
            # nothing that the site would refuse at its start is saved
            after, before = self.validate(text), check_unchanged(self.path, digest)
            changes = compare(self.running, after)
            # sinks that stay as they are cost no process that looks at their addresses
            known = {} if changes.restart or "sinks" in changes.live else {"sinks": Sinks()}
            self._check(after.model_copy(update=known), typed)
            saved = save_settings(self.path, text, digest)
            if saved.digest != digest:
                logger.warning("%s was changed from the page; %s", self.path, changes.words)
            try:
                return saved, self._run_by(after, changes)
            except Exception as error:
                # neither half: the file is as it was, and so is the site once it has restarted
                logger.exception("the changed settings could not be applied")
                save_settings(self.path, before.text, saved.digest)
                self._reload()
                raise ConfigError(
                    f"{self.path}: expected to apply the change, got: {type(error).__name__}",
                    hint="nothing is saved, and the site restarts with the settings before; its "
                    "log has the reason",
                ) from error

    def _run_by(self, after: SiteSettings, changes: Changes) -> Changes:
        """Apply changes or restart the site; return what it took."""
        if changes.effect == "none":
            return changes
        left = ["all"] if changes.restart or self.apply is None else self.apply(after, changes)
        if left:
            self._reload()
            return replace(changes, restart=changes.restart or tuple(left))
        self.running = after
        return changes

    def _saved(self) -> SiteSettings:
        """The settings in the file; those that run if somebody broke it by hand."""
        try:
            return self.validate(self.current().text)
        except ConfigError:
            return self.running

    def tried(self, keys: KeyChanges, typed: Collection[str] = ()) -> CameraSettings:
        """A camera that the file need not have, with secrets that its host gets anyway."""
        # only the keys that say how to reach the camera
        given = {key: keys[key] for key in TRIED_KEYS if keys.get(key) is not None}
        new = AddCamera(edit="add camera", keys={"name": TRIED, **given})
        try:
            wanted = self.validate(edited('model = "unused"\n', [new]))
        except SettingsError as error:
            raise ConfigError(error.what, hint=error.hint) from None
        check_secrets(wanted, self._saved(), typed)
        return wanted.camera(TRIED)

    def try_camera(self, camera: CameraSettings) -> CameraPicture | CameraProblem:
        """Open a camera; one at a time."""
        with _one_at_a_time(self._trying, "another camera is being tried"):
            return try_camera(camera, self.running.pose, self.running.logs)

    def test_sink(self, name: str) -> str:
        """Send a test through a sink of the running site, one at a time; what came back."""
        with _one_at_a_time(self._testing, "another test is being sent"):
            return send_test(self.running, name)


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
    # refused if anybody else changed the file since it was loaded
    before = check_unchanged(path, digest)
    if "\r\n" in before.text and "\r\n" not in text:  # browsers know one end of a line
        text = text.replace("\n", "\r\n")
    data = text.encode()
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path}: expected up to {MAX_BYTES} bytes, got {len(data)}")
    validate(text, path, SiteSettings)
    if data == before.text.encode():
        return before
    # the text before stays beside it; checked once more at the last moment
    with replacing(path.with_name(path.name + BEFORE), ConfigError) as kept:
        kept.write_bytes(before.text.encode())
    with replacing(path, ConfigError) as temporary:
        temporary.write_bytes(data)
        check_unchanged(path, digest)
    return SettingsText(text, digest_of(data))


class BusyError(ConfigError):
    """One at a time."""


@contextmanager
def _one_at_a_time(lock: threading.Lock, words: str) -> Iterator[None]:
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
                f"web: expected to listen on {host}{f' port {port}' if port else ''}, got: "
                f"{os_reason(error)}",
                hint="another program may use it: choose another host or port under [web]",
            ) from None


def _check_data(data: Path) -> None:
    """Raise if a site could keep nothing in this data directory, or if another site uses it."""
    from stepvad.site.app import exclusive_lock

    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=data), exclusive_lock(data):
            pass
    except OSError as error:
        raise ConfigError(
            f"data: expected a directory that the site can write to, got: {os_reason(error)}",
            hint="name another one, or leave out data",
        ) from None

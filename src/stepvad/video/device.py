"""Cameras attached to this machine, such as USB cameras."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from stepvad.errors import DataError
from stepvad.video.source import BOUNDED, decoding_errors, pyav

PREFIXES = ("/dev/video", "/dev/v4l/", "usb:")
"""How addresses of attached cameras begin."""

PROBE_S = 10.0
"""Timeout of a trial opening; some cameras take seconds to wake up."""

_ADDRESS = re.compile(r"(?P<file>[^?]+)(?:\?(?P<options>.*))?", re.DOTALL)
_SIZE = re.compile(r"[1-9]\d{1,4}x[1-9]\d{1,4}")
_RATE = re.compile(r"[1-9]\d{0,2}(\.\d+)?")

_REASONS = {
    errno.ENOENT: (
        "no such device",
        "plug the camera in; v4l2-ctl --list-devices shows what is there",
    ),
    errno.EACCES: (
        "no permission",
        "add the user to the group video (sudo usermod -aG video NAME), then log in again",
    ),
    errno.EBUSY: (
        "a device that another program uses",
        "close that program; fuser DEVICE shows which it is",
    ),
}
_REASONS[errno.ENODEV] = _REASONS[errno.ENXIO] = _REASONS[errno.ENOENT]
_REASONS[errno.EPERM] = _REASONS[errno.EACCES]
_NO_CAMERA = "another device of the camera may have the picture: v4l2-ctl --list-devices"


@dataclass(frozen=True, slots=True)
class Device:
    """An attached camera, by FFmpeg's names: the input format and its file.

    `size` (`1280x720`) and `rate` ask the camera for a mode; it may choose one nearby.
    """

    format: str
    file: str
    size: str | None = None
    rate: str | None = None

    def __str__(self) -> str:
        return self.file

    def redact(self, text: str) -> str:
        """The text as it is: an attached camera has no credentials."""
        return text

    def options(self) -> dict[str, str]:
        """FFmpeg's options."""
        asked = {"video_size": self.size, "framerate": self.rate}
        return BOUNDED | {name: value for name, value in asked.items() if value is not None}

    def check(self) -> None:
        """Raise if the device file is missing or may not be read; does not open it."""
        if self.format != "v4l2":
            return
        try:
            if not stat.S_ISCHR(Path(self.file).stat().st_mode):
                raise DataError(f"{self}: expected a camera, got another file", hint=_NO_CAMERA)
        except OSError as error:
            raise self._failed(error) from None
        if not os.access(self.file, os.R_OK | os.W_OK, effective_ids=True):
            raise self._failed(PermissionError(errno.EACCES, "no permission"))

    def open(self, timeout_s: tuple[float, float]) -> Any:
        """Open it with timeouts for opening and reading."""
        self.check()
        try:
            return pyav().open(
                self.file, format=self.format, options=self.options(), timeout=timeout_s
            )
        except ValueError:
            raise DataError(
                f"{self}: expected a PyAV that reads {self.format}, got one without it",
                hint="install PyAV from PyPI, or build it with FFmpeg's devices",
            ) from None
        except decoding_errors() as error:
            raise self._failed(error) from None

    def probe(self) -> None:
        """Open and close it: raises if it is missing, in use or not permitted."""
        self.open((PROBE_S, PROBE_S)).close()

    def _failed(self, error: Exception) -> DataError:
        number = getattr(error, "errno", None)
        got, hint = _REASONS.get(number or 0, (getattr(error, "strerror", None), _NO_CAMERA))
        return DataError(f"{self}: expected a camera, got {got or error}", hint=hint)


def is_device(address: str) -> bool:
    """Whether an address is that of an attached camera, not of a network camera or a file."""
    return address.startswith(PREFIXES)


def device_of(address: str, platform: str = sys.platform) -> Device:
    """The camera of an address such as `/dev/video0?size=1280x720&rate=15`.

    Without a path it is `usb:` and a number, on Windows `usb:` and the camera's name.
    """
    match = _ADDRESS.fullmatch(address)
    options = {} if match is None else _options(address, match["options"] or "")
    file = "" if match is None else match["file"].removeprefix("usb:")
    if not file:
        raise DataError(
            f"{address}: expected a camera after usb:, got none", hint="write usb:0 or /dev/video0"
        )
    size, rate = options.get("size"), options.get("rate")
    match platform:
        case "darwin":
            # Without a rate FFmpeg asks for 29.97, which most cameras of a Mac refuse.
            return Device("avfoundation", file, size, rate or "30")
        case "win32":
            return Device("dshow", f"video={file}", size, rate)
    return Device("v4l2", f"/dev/video{file}" if file.isdecimal() else file, size, rate)


def _options(address: str, text: str) -> dict[str, str]:
    """The mode that an address asks for."""
    options = dict(parse_qsl(text, keep_blank_values=True))
    forms = {"size": _SIZE, "rate": _RATE}
    for name, value in options.items():
        if name not in forms or not forms[name].fullmatch(value):
            raise DataError(
                f"{address}: expected ?size=WIDTHxHEIGHT&rate=FRAMES_PER_SECOND, got "
                f"{name}={value}",
                hint="such as /dev/video0?size=1280x720&rate=15",
            )
    return options

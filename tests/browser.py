"""Chromium without a window, spoken to through pipes: it needs no port and no other package."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe"),
)
PATIENCE_S = 60.0


class NavigatedError(Exception):
    """The page went away while it was asked."""


class Page:
    """One page of a browser; what it complains about is in `complaints`."""

    def __init__(self, orders: IO[bytes], answers: IO[bytes]) -> None:
        self._orders, self._answers = orders, answers
        self._heard = bytearray()
        self._number, self._session = 0, ""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.workers: dict[str, str] = {}
        """Registrations of service workers by scope, once `ServiceWorker.enable` was called."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask the browser for something and wait for the answer."""
        self._number += 1
        order = {"id": self._number, "method": method, "params": params}
        if self._session:
            order["sessionId"] = self._session
        self._orders.write(json.dumps(order).encode() + b"\0")
        self._orders.flush()
        while True:
            said = self._hear()
            if said.get("id") == self._number:
                if "navigated" in said.get("error", {}).get("message", ""):
                    raise NavigatedError
                assert "error" not in said, said
                return said["result"]

    def _hear(self) -> dict[str, Any]:
        """The next thing the browser says; complaints and requests are kept."""
        said: dict[str, Any] = json.loads(self._text())
        match said.get("method"):
            case "Runtime.exceptionThrown" | "Log.entryAdded" | "Runtime.consoleAPICalled":
                self.complaints.append(json.dumps(said["params"]))
            case "Network.requestWillBeSent":
                self.requests.append(said["params"]["request"]["url"])
            case "ServiceWorker.workerRegistrationUpdated":
                for one in said["params"]["registrations"]:
                    self.workers[one["scopeURL"]] = one["registrationId"]
        return said

    def _text(self) -> bytes:
        """The bytes up to the next zero."""
        looked = 0
        while (end := self._heard.find(0, looked)) < 0:
            looked = len(self._heard)
            more = os.read(self._answers.fileno(), 1 << 16)
            assert more, "the browser is gone"
            self._heard += more
        text = bytes(self._heard[:end])
        del self._heard[: end + 1]
        return text

    def open(self, path: Path, *, width: int, height: int = 900, **media: str) -> None:
        """Show a file at a size; `media` such as `scheme="dark"` or `motion="reduce"`."""
        features = [
            {"name": "prefers-color-scheme", "value": media.get("scheme", "light")},
            {"name": "prefers-reduced-motion", "value": media.get("motion", "no-preference")},
        ]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.readyState === 'complete'")

    def run(self, script: str, *, wait: bool = False) -> Any:
        """The value of an expression in the page; of a promise what it promises, with `wait`."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=wait
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, script: str) -> None:
        """Until an expression is true."""
        late = time.monotonic() + PATIENCE_S
        while not self._is_true(script):
            assert time.monotonic() < late, f"waited in vain for {script}"
            time.sleep(0.05)

    def _is_true(self, script: str) -> bool:
        """Whether it is; not while one page goes and the next comes."""
        try:
            return bool(self.run(script))
        except NavigatedError:
            return False

    def press(self, key: str, code: str, text: str = "", *, number: int = 0) -> None:
        """A key, down and up; some are known by their number only."""
        more: dict[str, Any] = {"text": text} if text else {}
        if number:
            more["windowsVirtualKeyCode"] = number
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=code, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=code)

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """What the page looks like, as PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def print(self, path: Path) -> None:
        """The page on paper, as PDF."""
        made = self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)
        path.write_bytes(base64.b64decode(made["data"]))


@contextmanager
def browser(profile: Path, *flags: str) -> Iterator[Page]:
    """A browser that ends with the block, with more flags for its command line."""
    assert CHROMIUM is not None
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    far = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{far[0]} 4>&{far[1]}', "bash", CHROMIUM, *FLAGS,
         *flags, f"--user-data-dir={profile}"],
        pass_fds=far,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    for end in (theirs_in, theirs_out, *far):
        os.close(end)
    with os.fdopen(ours_out, "wb") as orders, os.fdopen(ours_in, "rb") as answers:
        try:
            yield Page(orders, answers)
        finally:
            process.terminate()
            process.wait()

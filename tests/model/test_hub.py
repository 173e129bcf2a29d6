"""Models from the Hugging Face Hub: the real client, and a server with the Hub's addresses."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stepvad import Detector
from stepvad.errors import MissingExtraError, ModelFileError
from stepvad.model import hub
from stepvad.site.intake import demo

COMMIT = "c0ffee" * 6 + "c0ff"
MODEL = demo.MODEL.read_bytes()
ADDRESS = "hf://stepvad/walkers/walkers.safetensors"


class Hub(BaseHTTPRequestHandler):
    """One repository with one file, on its main branch and by its commit."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        known = [f"/stepvad/walkers/resolve/{one}/walkers.safetensors" for one in ("main", COMMIT)]
        found = self.path in known
        self.send_response(200 if found else 404)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(MODEL).hexdigest()}"')
        if not found:
            self.send_header("X-Error-Code", "EntryNotFound")
        self.send_header("Content-Length", str(len(MODEL) if found else 0))
        self.end_headers()
        if found and with_body:
            with suppress(ConnectionError):
                self.wfile.write(MODEL)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def client(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The client reads its settings once, when it is imported: they are set where it keeps them."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", _template(endpoint))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _template(endpoint: str) -> str:
    return endpoint + "/{repo_id}/resolve/{revision}/{filename}"


@pytest.mark.parametrize("name", [ADDRESS, Path(ADDRESS), ADDRESS.replace("rs/", f"rs@{COMMIT}/")])
def test_a_model_is_read_from_the_hub(client: Path, name: str | Path) -> None:
    assert Detector.load(name).model.sha256 == hashlib.sha256(MODEL).hexdigest()
    assert [*client.rglob("walkers.safetensors")]


def test_it_is_in_the_cache_when_the_hub_is_away(
    client: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants as constants

    Detector.load(ADDRESS)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert Detector.load(ADDRESS).model.sha256
    shutil.rmtree(client)
    with pytest.raises(ModelFileError, match="on the Hub, got: "):
        Detector.load(ADDRESS)


def test_what_is_not_there_is_one_sentence(client: Path) -> None:
    with pytest.raises(ModelFileError, match="on the Hub, got: ") as info:
        Detector.load("hf://stepvad/walkers/other.safetensors")
    assert "\n" not in info.value.problem


@pytest.mark.parametrize(
    "name", ["hf://model.safetensors", "hf://owner/name/model.pickle", "hf://a/b@/m.safetensors"]
)
def test_an_address_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ModelFileError, match="expected hf://OWNER/NAME/FILE"):
        hub.local(Path(name))


def test_other_paths_stay_as_they_are() -> None:
    for name in ("model.safetensors", "hf/model.safetensors", "/hf:/a/b/c.safetensors"):
        assert hub.local(Path(name)) == Path(name)


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match="the hub extra"):
        hub.local(Path(ADDRESS))


@pytest.mark.slow
def test_commands_take_the_address(endpoint: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "stepvad", "inspect", ADDRESS]
    env = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    run = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    assert "32" in run.stdout

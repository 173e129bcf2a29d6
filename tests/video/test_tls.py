"""A camera's password goes to the camera, and to nobody who answers in its place."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest

from stepvad.errors import ConfigError
from stepvad.video.camera import Camera, StateChange, _url_options
from stepvad.video.url import CameraTls, Url, check_server
from tests.video.clips import write_video
from tests.video.servers import (
    CANARY,
    SLOWER,
    RtspServer,
    has_rtsp_server,
    shows_nothing,
    wait_until,
    web_server,
)
from tests.video.tls_servers import make_certificates, recording_server, redirects_to

av = pytest.importorskip("av")
SCHEMES = ["rtsps", "https"]


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certs"))


def address(scheme: str, port: int, tls: CameraTls | None = None) -> Url:
    return Url(f"{scheme}://viewer:{CANARY}@127.0.0.1:{port}/camera", tls=tls)


def attempts(url: Url, count: int) -> list[StateChange]:
    """Let a camera fail this many times; the changes of state it tells."""
    changes: list[StateChange] = []
    camera = Camera("door", url, on_state=changes.append, stall_s=2.0)
    reader = threading.Thread(target=lambda: list(camera), daemon=True)
    reader.start()
    wait_until(lambda: camera._epoch >= count)
    camera.stop()
    reader.join(10)
    return changes


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_certificate_that_nobody_signed_gets_no_password(certs: Path, scheme: str) -> None:
    with recording_server(certs / "self.pem") as server:
        changes = attempts(address(scheme, server.port), 2)
    assert server.connections >= 2  # it goes on trying
    assert not server.got_password
    assert server.requests == []
    assert [change.state for change in changes] == ["offline"]
    for word in ("expected a certificate for 127.0.0.1", "got: self-signed", "tls_ca"):
        assert word in changes[0].reason
    assert shows_nothing(*changes)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_certificate_for_another_host_gets_no_password(certs: Path, scheme: str) -> None:
    with recording_server(certs / "other.pem") as server:
        (change,) = attempts(address(scheme, server.port, CameraTls(certs / "ca.pem")), 1)
    assert not server.got_password
    assert "is not valid for '127.0.0.1'" in change.reason


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["self", "other"])
def test_ffmpeg_by_itself_sends_no_password_to_a_wrong_certificate(
    certs: Path, scheme: str, name: str
) -> None:
    with recording_server(certs / f"{name}.pem") as server:
        url = address(scheme, server.port, CameraTls(certs / "ca.pem"))
        with pytest.raises(OSError, match="Input/output error"):
            av.open(url.reveal(), options=_url_options(url, 2.0), timeout=(3, 3))
    assert server.connections == 1
    assert server.requests == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_whoever_takes_over_after_the_first_handshake_gets_no_password(
    certs: Path, scheme: str
) -> None:
    with recording_server(certs / "good.pem", certs / "self.pem") as server:
        attempts(address(scheme, server.port, CameraTls(certs / "ca.pem")), 1)
    assert server.connections >= 2
    assert not server.got_password


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("name", "ca"), [("good", "ca"), ("self", "self")])
def test_a_certificate_by_a_named_authority_gets_the_password(
    certs: Path, scheme: str, name: str, ca: str
) -> None:
    with recording_server(certs / f"{name}.pem") as server:
        (change,) = attempts(address(scheme, server.port, CameraTls(certs / f"{ca}.pem")), 1)
    assert server.got_password
    assert "401" in change.reason


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_insecure_camera_gets_its_password_and_a_warning(
    certs: Path, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    with recording_server(certs / "self.pem") as server:
        attempts(address(scheme, server.port, CameraTls(insecure=True)), 1)
    assert server.got_password
    assert "camera door: tls_insecure: its certificate is not checked" in caplog.text


@pytest.mark.parametrize(
    ("scheme", "target"),
    [
        *(("https", "http"), ("https", "https"), ("http", "http"), ("http", "https")),
        *(("rtsps", "rtsp"), ("rtsps", "rtsps"), ("rtsp", "rtsp")),
    ],
)
def test_a_camera_does_not_send_the_site_elsewhere(certs: Path, scheme: str, target: str) -> None:
    def certificates(scheme: str) -> list[Path]:
        return [certs / "good.pem"] if scheme in SCHEMES else []

    with recording_server(*certificates(target)) as elsewhere:
        moved = redirects_to(f"{target}://localhost:{elsewhere.port}/b")
        with recording_server(*certificates(scheme), answer=moved) as server:
            tls = CameraTls(certs / "ca.pem") if scheme in SCHEMES else None
            (change,) = attempts(address(scheme, server.port, tls), 1)
    assert server.requests
    assert elsewhere.connections == 0
    is_rtsp = scheme.startswith("rtsp")
    assert ("got a redirect (302)" if is_rtsp else "redirects and playlists") in change.reason


def test_a_playlist_does_not_send_the_site_elsewhere() -> None:
    with recording_server() as elsewhere:
        segment = f"http://127.0.0.1:{elsewhere.port}/a.ts"
        playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\n{segment}\n#EXT-X-ENDLIST\n"
        with web_server(playlist.encode()) as camera:
            (change,) = attempts(Url(camera), 1)
    assert elsewhere.connections == 0
    assert "playlists (HLS) are not followed" in change.reason


def test_a_server_that_trickles_over_tls_is_given_up_in_time(certs: Path) -> None:
    stop = threading.Event()

    def trickle(request: bytes) -> bytes:
        stop.wait(0.3)
        return b"R"

    with recording_server(certs / "good.pem", answer=trickle) as server:
        url = address("rtsps", server.port, CameraTls(certs / "ca.pem"))
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            check_server(av, url.reveal(), url.tls, 1.0)
        assert time.monotonic() - started < 1.5 * SLOWER


def test_authorities_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("no certificate\n")
    with pytest.raises(ConfigError, match=r"empty.pem: expected certificates .* no certificates"):
        CameraTls(tmp_path / "empty.pem").context()
    with pytest.raises(ConfigError, match="No such file"):
        CameraTls(tmp_path / "missing.pem").context()
    with pytest.raises(ConfigError, match="got both"):
        CameraTls(tmp_path / "empty.pem", insecure=True)


def test_a_system_without_authorities_is_told_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepvad.video.url._system_bundle", lambda: None)
    with pytest.raises(ConfigError, match="install ca-certificates"):
        CameraTls().context()
    assert CameraTls().options() == {"tls_verify": "1"}


def test_an_ffmpeg_that_checks_no_host_names_is_refused() -> None:
    meta = {"libavformat": {"configuration": "--enable-shared --enable-openssl"}}
    build = SimpleNamespace(_core=SimpleNamespace(library_meta=meta))
    with pytest.raises(ConfigError, match="checks host names"):
        check_server(build, "rtsps://127.0.0.1/a", CameraTls(), 1.0)
    check_server(build, "rtsps://127.0.0.1/a", CameraTls(insecure=True), 1.0)


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    return write_video(tmp_path / "a.mkv", codec="libx264")


@contextmanager
def rtsps(clip: Path, certificate: Path) -> Iterator[RtspServer]:
    if not has_rtsp_server():
        pytest.skip("GStreamer's RTSP server is not installed")
    server = RtspServer(clip, clip.with_name("server.log"), certificate)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "ca"), [("good", "ca"), ("self", "self"), ("self", None)])
def test_frames_of_a_real_camera_come_over_tls(
    certs: Path, clip: Path, name: str, ca: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    tls = CameraTls(insecure=True) if ca is None else CameraTls(certs / f"{ca}.pem")
    with rtsps(clip, certs / f"{name}.pem") as server:
        camera = Camera("door", Url(server.address, tls=tls))
        reader = threading.Thread(target=lambda: list(islice(camera, 10)), daemon=True)
        reader.start()
        reader.join(60)
    assert not reader.is_alive()
    assert camera.counts.decoded >= 10
    assert ("tls_insecure" in caplog.text) == (ca is None)

"""Known networks: fetched once, checked, and never without being asked for by name."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

import pytest

from stepvad.errors import ModelFileError
from stepvad.video.models import (
    CARDS,
    ModelCard,
    cache_directory,
    cards_of,
    is_whole,
    model_file,
)

CONTENT = b"a network"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("STEPVAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def card(url: str = "", sha256: str = SHA256) -> tuple[ModelCard, ...]:
    return (ModelCard("own", "own.onnx", sha256, "MIT", url),)


def served(directory: Path, content: bytes, name: str = "own.onnx") -> str:
    (directory / name).write_bytes(content)
    return (directory / name).as_uri()


def archive(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        for name in names:
            zipped.writestr(name, CONTENT)
    return buffer.getvalue()


def test_cards_are_complete() -> None:
    assert len({card.name for card in CARDS}) == len(CARDS)
    for known in CARDS:
        assert len(known.sha256) == 64
        assert known.licence == "Apache-2.0"
        assert known.file.endswith(".onnx")
        assert not known.url or known.url.startswith("https://")


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.onnx").write_bytes(b"")
    assert model_file(tmp_path / "mine.onnx") == tmp_path / "mine.onnx"


def test_a_name_nobody_knows_lists_those_that_are_known() -> None:
    with pytest.raises(ModelFileError, match=r"expected a file or one of rtmdet-nano, .*rtmpose-m"):
        model_file("yolo-nono")


def test_a_network_is_fetched_once(tmp_path: Path, cache: Path) -> None:
    url = served(tmp_path, CONTENT)
    assert model_file("own", card(url)) == cache / "own.onnx"
    (tmp_path / "own.onnx").unlink()
    assert model_file("own", card(url)).read_bytes() == CONTENT
    assert [file.name for file in cache.iterdir()] == ["own.onnx"]


def test_the_licence_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        model_file("own", card(served(tmp_path, CONTENT)))
    assert "fetching own (licence MIT) from file://" in caplog.text


def test_a_network_inside_an_archive_is_taken_out(tmp_path: Path) -> None:
    url = served(tmp_path, archive("a/end2end.onnx", "a/detail.json"), "own.zip")
    assert model_file("own", card(url)).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no archive", "expected an archive"),
        (archive("a.txt"), "expected one ONNX file in .*, got 0"),
        (archive("a.onnx", "b.onnx"), "expected one ONNX file in .*, got 2"),
    ],
)
def test_a_wrong_archive_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=message):
        model_file("own", card(served(tmp_path, content, "own.zip")))


def test_another_checksum_is_refused_and_nothing_is_kept(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(ModelFileError, match=r"expected the checksum 0000.*, got"):
        model_file("own", card(served(tmp_path, CONTENT), "0" * 64))
    assert not cache.exists()


def test_a_file_that_broke_in_the_cache_is_refused(tmp_path: Path, cache: Path) -> None:
    url = served(tmp_path, CONTENT)
    model_file("own", card(url))
    (cache / "own.onnx").write_bytes(b"half a net")
    with pytest.raises(ModelFileError, match=f"remove {cache / 'own.onnx'}"):
        model_file("own", card(url))


def test_offline_the_error_says_what_to_do(tmp_path: Path, cache: Path) -> None:
    missing = (tmp_path / "nothing.onnx").as_uri()
    with pytest.raises(ModelFileError, match="without internet, fetch it on another machine") as it:
        model_file("own", card(missing))
    assert str(cache / "own.onnx") in it.value.hint


def test_a_network_nobody_publishes_asks_for_its_path() -> None:
    with pytest.raises(ModelFileError, match="nobody publishes it; give the path of the ONNX file"):
        model_file("own", card())


def test_a_cache_that_cannot_be_made_says_so(tmp_path: Path, cache: Path) -> None:
    cache.write_bytes(b"a file in the way")
    with pytest.raises(ModelFileError, match="name another one in STEPVAD_CACHE"):
        model_file("own", card(served(tmp_path, CONTENT)))


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STEPVAD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "stepvad"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert cache_directory() == tmp_path / "home" / ".cache" / "stepvad"


def test_the_default_networks_are_one_of_each_role() -> None:
    assert [card.role for card in cards_of([])] == ["detector", "pose"]
    with pytest.raises(ModelFileError, match="own: expected one of rtmdet-nano, "):
        cards_of(["own"])


def test_a_copied_cache_serves_a_machine_without_internet(tmp_path: Path, cache: Path) -> None:
    online = card(served(tmp_path, CONTENT))
    model_file("own", online)
    (tmp_path / "own.onnx").unlink()
    cache.rename(tmp_path / "copied")
    assert is_whole(online[0]) is None
    (tmp_path / "copied").rename(cache)
    assert model_file("own", online).read_bytes() == CONTENT
    assert is_whole(online[0])
    online[0].cached.write_bytes(b"half a net")
    assert is_whole(online[0]) is False

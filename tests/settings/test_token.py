"""The token of a page is made once, whole, and for its owner alone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from stepvad.errors import ConfigError
from stepvad.settings.file import CameraSettings, SiteSettings, Web
from stepvad.settings.token import token_of
from tests.fleet.disks import small_disk


def settings(data: Path, web: Web | None = None) -> SiteSettings:
    camera = CameraSettings(name="yard", url="demo:")
    return SiteSettings(data=data, model=data / "model", cameras=[camera], web=web or Web())


def test_a_token_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    site = settings(tmp_path / "new" / "data")
    token = token_of(site)
    assert len(token) == 32
    assert token_of(site) == token
    assert stat.S_IMODE((site.data / "token").stat().st_mode) == 0o600
    assert [file.name for file in site.data.iterdir()] == ["token"]


def test_the_token_of_the_settings_comes_first(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("a token of my own\n")
    mine.chmod(0o600)
    assert token_of(settings(tmp_path, Web(token=f"file:{mine}"))) == "a token of my own"


def test_an_empty_file_is_no_token(tmp_path: Path) -> None:
    (tmp_path / "token").touch(0o600)
    assert len(token_of(settings(tmp_path))) == 32


def test_a_first_start_on_a_full_disk_leaves_nothing_behind() -> None:
    with small_disk(1) as disk:
        disk.fill()
        with pytest.raises(ConfigError, match=r"token: expected a place that can be written"):
            token_of(settings(disk.path))
        assert [file.name for file in disk.path.iterdir()] == ["fills"]
        disk.free()
        assert len(token_of(settings(disk.path))) == 32

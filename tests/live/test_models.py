"""The models of a site, each loaded once."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepvad.errors import ConfigError
from stepvad.live import demo
from stepvad.live.models import Models


def test_a_model_is_loaded_once() -> None:
    models = Models()
    assert models.load(demo.MODEL) is models.load(demo.MODEL.parent / "." / demo.MODEL.name)


def test_a_model_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected the model of the site, got no file") as caught:
        Models().load(tmp_path / "shop.safetensors")
    assert "stepvad fit POSES -o shop.safetensors" in caught.value.hint

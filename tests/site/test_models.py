"""The models of a site, each loaded once, and the thresholds that they give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stepvad.detector import Detector
from stepvad.errors import ConfigError
from stepvad.evaluation import baselines
from stepvad.events.calibration import calibration_path, write_calibration
from stepvad.model import modelfile
from stepvad.site import demo
from stepvad.site.models import Models
from tests.site.sites import camera


def test_a_model_is_loaded_once() -> None:
    models = Models()
    assert models.load(demo.MODEL) is models.load(demo.MODEL.parent / "." / demo.MODEL.name)


def test_a_model_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected the model of the site, got no file") as caught:
        Models().load(tmp_path / "shop.safetensors")
    assert "stepvad fit POSES -o shop.safetensors" in caught.value.hint


def test_a_threshold_is_the_cameras_own_or_that_of_the_calibration(tmp_path: Path) -> None:
    model = Models().load(demo.MODEL)
    assert model.calibration is not None
    assert model.rules_of(camera()).threshold == model.calibration.threshold.value
    assert model.rules_of(camera(threshold=3.5)).threshold == 3.5
    alone = tmp_path / "model.safetensors"
    alone.write_bytes(demo.MODEL.read_bytes())
    with pytest.raises(ConfigError, match="expected a threshold or a calibration next to"):
        Models().load(alone).rules_of(camera())
    wrong = replace(model.calibration, model_sha256="0" * 64)
    write_calibration(wrong, calibration_path(alone))
    with pytest.raises(ConfigError, match="got one of another model"):
        Models().load(alone)


def test_the_digest_is_of_the_bytes_that_were_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another model takes the place of the file as soon as it has been read."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(demo.MODEL.read_bytes())
    wanted = modelfile.sha256(path)
    read = Path.read_bytes

    def read_and_replace(self: Path) -> bytes:
        body = read(self)
        if self == path:
            self.write_bytes(b"another model")
        return body

    monkeypatch.setattr(Path, "read_bytes", read_and_replace)
    assert Models().load(path).sha256 == wanted
    path.write_bytes(read(demo.MODEL))
    fitted, sha256 = baselines.load_with_digest(path)
    assert sha256 == wanted
    assert isinstance(fitted, Detector)
    assert fitted.sha256 == wanted

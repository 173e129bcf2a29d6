"""Files of an earlier version are read: models, calibrations, tracks, stores, checkpoints."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad import Detector, read_clip
from stepvad.calibration import beside, file
from stepvad.fleet.worker.camera import FleetCamera
from stepvad.fleet.worker.checkpoint import ShardCheckpoint
from stepvad.incidents.camera_events import CameraProfile
from stepvad.incidents.events import Rules
from stepvad.model import modelfile
from stepvad.site.explainer import unpacked as unpacked_poses
from stepvad.site.store.eventstore import Store
from stepvad.stream import Stream
from stepvad.windows import sampling
from tests.cli.conftest import Command, stepvad

__all__ = ["stepvad"]

OLD = Path(__file__).parent / "data" / "written-by-8d246e0"


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    """What that version said of its own files."""
    found: dict[str, Any] = json.loads((OLD / "expected.json").read_text("utf-8"))
    return found


def test_an_old_model_gives_the_scores_that_it_gave(expected: dict[str, Any]) -> None:
    detector = Detector.load(OLD / "model.safetensors", runtime="numpy")
    scores = detector.score(read_clip(OLD / "clip.parquet"))
    np.testing.assert_allclose(scores.A, expected["A"], rtol=1e-5, atol=1e-5)


def test_an_old_clip_of_json_is_read() -> None:
    clip = read_clip(OLD / "clip.json")
    assert (clip.n_poses, clip.name) == (100, "clip")


def test_an_old_calibration_keeps_its_threshold(expected: dict[str, Any]) -> None:
    model = OLD / "model.safetensors"
    found = file.read(file.beside(model))
    assert found.model_sha256 == modelfile.sha256(model)
    assert found.threshold.value == pytest.approx(expected["threshold"])
    assert found.rules_of("yard").threshold == pytest.approx(found.threshold.value)
    assert found.rules.max_interpolated == 0.5  # that version counted every window


def test_an_old_model_asks_for_its_rate_and_takes_it_once(
    stepvad: Command, tmp_path: Path, expected: dict[str, Any]
) -> None:
    for name in ("model.safetensors", "model.calibration.json"):
        shutil.copy(OLD / name, tmp_path)
    model, clip = tmp_path / "model.safetensors", OLD / "clip.parquet"
    sampling._ratio.cache_clear()
    asked = stepvad("score", model, clip, "--json")
    assert "warning: the model does not state the frame rate it was fitted at" in asked.err
    assert "stepvad inspect MODEL --set-fps RATE" in asked.err
    stated = stepvad("inspect", model, "--set-fps", "25")
    assert (stated.code, "at 25 per second" in stated.out) == (0, True)
    assert "model.calibration.json" in stated.err
    after = stepvad("score", model, clip, "--json")
    assert after.out == asked.out
    assert "frame rate" not in after.err
    found = file.read(file.beside(model))
    assert found.model_sha256 == modelfile.sha256(model)
    assert found.threshold.value == pytest.approx(expected["threshold"])
    before = model.read_bytes()
    again = stepvad("inspect", model, "--set-fps", "10")
    assert again.code == 1
    assert "expected a model without a frame rate, got one of 25 per second" in again.err
    assert model.read_bytes() == before


def test_the_calibration_of_a_model_by_the_clock_follows_at_the_same_rate_alone(
    tmp_path: Path,
) -> None:
    for name in ("model.safetensors", "model.calibration.json"):
        shutil.copy(OLD / name, tmp_path)
    model = tmp_path / "model.safetensors"
    before = modelfile.sha256(model)
    made = file.read(file.beside(model))
    modelfile.state_rate(model, 25.0)
    clock = replace(Detector.load(model).config, clock=True)
    for rates, follows in (({}, False), ({"yard": (10.0,)}, False), ({"yard": (25.0,)}, True)):
        file.write(replace(made, rates=rates), file.beside(model))
        assert beside.follow(model, before, clock) is follows
    assert not beside.follow(model, before, clock)  # it is of the new file now


def test_an_old_store_is_opened_with_its_events_poses_and_explanations(tmp_path: Path) -> None:
    shutil.copy(OLD / "events.db", tmp_path / "events.db")
    store = Store(tmp_path / "events.db")
    try:
        events = store.events()
        assert len(events) == 2
        for record in events:
            assert record.end_time is not None
            assert (record.camera_fps, record.model_fps) == (None, None)
            explained = store.explained(record.id)
            assert explained is not None
            assert explained.summary
            poses = store.poses(record.id)
            assert poses is not None
            assert unpacked_poses(poses).n_poses > 10
        assert store.next_epoch(events[0].camera) > events[0].epoch
    finally:
        store.close()


def test_an_old_checkpoint_goes_on_as_it_would_have(expected: dict[str, Any]) -> None:
    kept = ShardCheckpoint.unpack((OLD / "checkpoint.msgpack").read_bytes())
    assert kept.owner == "w1"
    state = kept.shard_state()
    assert state is not None
    detector = Detector.load(OLD / "model.safetensors", runtime="numpy")
    profile = CameraProfile(
        camera="s1/yard",
        rate=25.0,
        rules=Rules(threshold=expected["rules_threshold"], min_s=0.2, gap_s=1.0),
        detector=detector,
        model_id="model",
        model_sha256="0" * 64,
        zones={},
    )
    camera = FleetCamera.restore(profile, state.cameras["s1/yard"], 1, 0.0)
    stream, follows = Stream(detector), []
    for slot, poses in read_clip(OLD / "clip.parquet").by_frame():
        windows = stream.update(slot, poses)
        if slot >= expected["kept_at"]:
            follows += camera.events.see(slot, (1280, 720), poses, windows)
    follows += camera.events.lose("stopped")
    told = [[kind, record.id] for kind, record in follows]
    assert told == [[kind, id_] for kind, id_, _ in expected["follows"]]
    tops = [record.top_score for _, record in follows]
    np.testing.assert_allclose(tops, [top for *_, top in expected["follows"]], rtol=1e-4)

from __future__ import annotations

from pathlib import Path

import pytest

from stepvad.evaluation.walkers import write_dataset

QUICK = ("--width", "16", "--max-steps", "8", "--K", "12")


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny data set in ShanghaiTech's layout."""
    root = tmp_path_factory.mktemp("data") / "people"
    write_dataset(root, seed=3, train_clips=4, test_clips=4, seconds=5.0)
    return root


@pytest.fixture(scope="session")
def model(people: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quickly fitted model file."""
    from stepvad import Config, Detector, read_clips

    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    config = Config(K=12, width=16, max_steps=8, ema_warmup=True)
    Detector.fit(read_clips(people / "pose" / "train"), config).save(path)
    return path

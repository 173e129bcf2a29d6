"""Small archives and models, commands on them, and what an archive looks like to the byte."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from stepvad import Config
from stepvad.formats import write_clip
from stepvad.model.engines import weight_shapes
from stepvad.model.modelfile import Origin, write
from stepvad.model.pcspace import PCSpace
from stepvad.model.scoring import EnergyModel, Model, View
from stepvad.poses import Clip
from stepvad.skeletons import STEP18
from stepvad.windows.body import Repairs
from tests.video.servers import SLOWER


def write_model(path: Path, *, seed: int = 0, width: int = 16, T: int = 12) -> Path:
    """A model of random weights: what it scores is as good as any other for bytes."""
    rng = np.random.default_rng(seed)
    config = Config(width=width, K=12, L=4, T=T, sigma_width=8)
    D = 2 * STEP18.V * config.T
    weights = {
        name: (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        for name, shape in weight_shapes(config).items()
    }
    space = PCSpace(
        np.zeros(D, np.float32),
        (rng.standard_normal((D, config.K)) / 8).astype(np.float32),
        np.ones(config.K, np.float32),
    )
    origin = Origin("0", "0", 1, 1, 1, Repairs())
    view = View(config, Model(space, EnergyModel(weights, np.zeros(4), np.full(4, 0.01))))
    write([view], STEP18, origin, path)
    return path


def write_archive(root: Path, clips: list[Clip]) -> Path:
    """Clips of two cameras on several days, in the layout of an archive."""
    for number, clip in enumerate(clips):
        place = root / f"date=2026-05-0{1 + number // 2}" / f"camera={('gate', 'yard')[number % 2]}"
        place.mkdir(parents=True, exist_ok=True)
        write_clip(clip, place / f"{clip.name}.parquet")
    return root


def contents(root: Path) -> dict[str, bytes]:
    """All files below a directory but for what a killed process left, byte for byte."""
    found = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in found
        if not path.name.endswith(".tmp")
    }


def start(
    *words: object, environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[str]:
    """`stepvad archive` in a session of its own, which can be ended as a whole."""
    return subprocess.Popen(
        [sys.executable, "-m", "stepvad", "archive", *map(str, words)],
        env={**os.environ, **environment},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def start_scoring(
    poses: object,
    scores: object,
    model: Path,
    *words: str,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.Popen[str]:
    """A run of `archive score`."""
    given = ("-o", scores, "--model", model, "--energies", *words)
    return start("score", poses, *given, environment=environment)


def finish(run: subprocess.Popen[str], *, within_s: float = 120) -> str:
    """Wait until a run has ended well; what it said."""
    words, _ = run.communicate(timeout=within_s * SLOWER)
    assert run.returncode == 0, words
    return words

"""Distillation: small student networks that learn a detector's score at a fraction of its cost."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import DataError
from stepvad.model.denormals import flushed
from stepvad.model.energy import Energy
from stepvad.model.folded import fold
from stepvad.model.footage import BATCH, Footage
from stepvad.model.modelfile import Model, Origin
from stepvad.model.projection import Projected
from stepvad.model.scoring import aggregate, standardise_energies
from stepvad.model.training import to_numpy
from stepvad.poses import Clip
from stepvad.progress import Progress, Report, silent

StudentProfile = Literal["tiny", "small"]

LEARNING_RATE = 1e-3
"""Peak rate of AdamW, decayed to zero along a cosine."""
NOISE = (0.05, 2.0)
"""Range of the noise added to normal windows, which also shows students abnormal ones."""
LESSONS = 1 << 19
"""Points that a teacher scores; a student sees each several times."""
TAIL = 1.0
"""Errors above this are penalised linearly, not quadratically: few scores are very high."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Student:
    """A plain MLP from π(x) to the aggregated score, and its training schedule."""

    width: int
    blocks: int
    steps: int = 3000
    batch_size: int = 1024
    seed: int = 0

    def config(self, teacher: Config) -> Config:
        """The settings of a detector with this network and one scale, whose energy is the score."""
        return replace(
            teacher,
            network="vanilla",
            width=self.width,
            blocks=self.blocks,
            L=1,
            sigma_low=1.0,
            sigma_high=1.0,
            aggregation="max",
            seed=self.seed,
        )


PROFILES: dict[StudentProfile, Student] = {
    "tiny": Student(width=256, blocks=2),
    "small": Student(width=512, blocks=3),
}
"""Recommended students; the documentation page on speed lists their cost."""


@dataclass(frozen=True, slots=True, eq=False)
class Lessons:
    """Training data of students: points `z (n, K)`, half of them noisy, and teacher scores."""

    teacher: Detector
    origin: Origin
    normal: NDArray[np.float32]
    """Points of normal windows without noise, for the int8 ranges."""
    z: NDArray[np.float32]
    score: NDArray[np.float32]

    @classmethod
    def of(
        cls,
        teacher: Detector,
        clips: Iterable[Clip],
        n: int = LESSONS,
        *,
        seed: int = 0,
        report: Report = silent,
    ) -> Lessons:
        """Draw `n` windows from the clips, add noise to half, and score all with the teacher."""
        teacher.expect_pose("distill")
        footage = Footage.read(clips, teacher.config, teacher.skeleton)
        windows = Projected.of(footage, teacher.model.space, teacher.config, report)
        rng = np.random.default_rng(seed)
        z = np.empty((n, teacher.config.K), dtype=np.float32)
        score = np.empty(n, dtype=np.float32)
        for first in range(0, n, BATCH):
            rows = slice(first, min(first + BATCH, n))
            chosen = rng.integers(len(footage), size=rows.stop - first)
            z[rows] = _moved(windows.batch(chosen)[0], rng)
            score[rows] = teacher_scores(teacher, z[rows])
            report(Progress("lessons", rows.stop, n))
        normal, _ = windows.batch(slice(0, BATCH))
        return cls(teacher, footage.origin(epochs=0), normal, z, score)


def distill(
    teacher: Detector,
    clips: Iterable[Clip],
    student: Student = PROFILES["tiny"],
    *,
    report: Report = silent,
) -> Detector:
    """Train a detector with a smaller network to reproduce the teacher's scores.

    It learns max_i E_i, or the teacher's own aggregation, on the clips' windows with and without
    noise; c(x) weights its score as it weights the teacher's.
    """
    n = min(LESSONS, student.steps * student.batch_size)
    lessons = Lessons.of(teacher, clips, n, seed=student.seed, report=report)
    return learn(lessons, student, report=report)


def learn(lessons: Lessons, student: Student, *, report: Report = silent) -> Detector:
    """Train a student on these lessons; several students can share them."""
    teacher = lessons.teacher
    config = student.config(teacher.config)
    f = flushed(lambda report: _train(lessons, student, config, report), report)
    weights = to_numpy(f.state_dict())
    model = Model(
        config=config,
        skeleton=teacher.skeleton,
        space=teacher.model.space,
        weights=weights,
        E_mean=np.zeros(1),
        E_var=np.ones(1),
        origin=replace(lessons.origin, distilled=True),
        ranges=fold(weights, config).measure_ranges(lessons.normal),
    )
    return replace(teacher, model=model)


def _train(lessons: Lessons, student: Student, config: Config, report: Report) -> Energy:
    """Train the student's network."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(student.seed)
        f = Energy(config)
    optimiser = torch.optim.AdamW(f.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    rng = np.random.default_rng(student.seed)
    sigma = torch.ones(student.batch_size, 1)
    for step in range(student.steps):
        rows = rng.integers(len(lessons.z), size=student.batch_size)
        z, score = (torch.from_numpy(array[rows]) for array in (lessons.z, lessons.score))
        for group in optimiser.param_groups:
            group["lr"] = LEARNING_RATE * (1 + math.cos(math.pi * step / student.steps)) / 2
        loss = F.smooth_l1_loss(f(z, sigma), score, beta=TAIL)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if not math.isfinite(loss.item()):
            raise DataError(
                f"distillation: expected a finite loss at step {step + 1}, got {loss.item()}",
                hint="fit the teacher again",
            )
        report(Progress("distilling", step + 1, student.steps, f"loss {loss.item():.3f}"))
    return f


def teacher_scores(teacher: Detector, z: NDArray[np.float32]) -> NDArray[np.float32]:
    """The teacher's aggregated score of points `(N, K)`, before weighting by c(x)."""
    model = teacher.model
    E = standardise_energies(teacher.network.energies(z), model.E_mean, model.E_var)
    return aggregate(E, teacher.config.aggregation)


def _moved(pi_x: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Leave every other point unchanged and add noise to the rest, each at its own scale."""
    low, high = np.log(NOISE)
    size = np.exp(rng.uniform(low, high, size=(len(pi_x), 1))).astype(np.float32)
    size[::2] = 0
    return pi_x + size * rng.standard_normal(pi_x.shape, dtype=np.float32)

"""Result files of experiments: what was scored comes back, or an error says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stepvad.config import Config
from stepvad.errors import DataError
from stepvad.evaluation import protocol, runs, walkers
from stepvad.evaluation.datasets import Dataset
from stepvad.evaluation.experiment import Experiment
from stepvad.evaluation.protocol import FrameView, ScoredClip

TINY = Config(K=12, width=16, max_steps=4, ema_warmup=True)
QUICK = Experiment(method="mahalanobis", config=TINY)
BY_CLOCK = replace(QUICK, config=replace(TINY, clock=True))
SEVERAL = Experiment(config=TINY, views=("pose", "place"))


@pytest.fixture(scope="module")
def street() -> Dataset:
    """Clips of 25 frames a second to fit on, of 25 and 50 to score."""
    made = walkers.make(seed=2, train_clips=4, test_clips=4, seconds=8.0)
    test = [replace(clip, fps=25.0 * (1 + n % 2)) for n, clip in enumerate(made.test())]
    return replace(made, test=lambda: test)


def written(experiment: Experiment, street: Dataset, path: Path) -> list[ScoredClip]:
    """The test clips as scored in memory, and in a file."""
    fitted = experiment.fit(street)
    clips = protocol.score_clips(fitted, street)
    runs.write(clips, {"config": fitted.config.facts()}, path)
    return clips


def assert_equal(found: Sequence[ScoredClip], expected: Sequence[ScoredClip]) -> None:
    for now, then in zip(found, expected, strict=True):
        assert now.scores.T == then.scores.T
        for name in ("track_id", "frame", "c", "A", "E", "lacking"):
            np.testing.assert_array_equal(
                getattr(now.scores.windows, name), getattr(then.scores.windows, name)
            )


@pytest.mark.parametrize("experiment", [QUICK, BY_CLOCK, SEVERAL])
def test_every_placement_is_the_same_from_a_file(
    street: Dataset, tmp_path: Path, experiment: Experiment
) -> None:
    path = tmp_path / "result.parquet"
    clips = written(experiment, street, path)
    run = runs.read(path, [*street.test_clips()])
    assert_equal(run.clips, clips)
    assert {*run.facts} == {"config"}
    spans = {clip.scores.T for clip in run.clips}
    assert spans == {QUICK: {12}, BY_CLOCK: {12, 23}, SEVERAL: {25}}[experiment]
    for placement in ("latest", "center", "backtrack"):
        view = FrameView(placement, smoothed=False)
        found, expected = (protocol.frame_scores(c, street, view) for c in (run.clips, clips))
        np.testing.assert_array_equal(found.score, expected.score)
    shown = protocol.scored_by(protocol.with_motion(run.clips, street))
    assert shown == protocol.scored_by(protocol.with_motion(clips, street))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: data[: len(data) // 2], id="truncated"),
        pytest.param(lambda data: data[:500] + bytes(900) + data[1400:], id="zeros at its start"),
        pytest.param(lambda data: _zeros(data, 0.5), id="zeros in the middle"),
        pytest.param(lambda data: data[:-200] + bytes(200), id="zeros at its end"),
        pytest.param(lambda data: _parquet(None), id="without metadata"),
        pytest.param(lambda data: _parquet(b"{"), id="cut metadata"),
        pytest.param(lambda data: _parquet(b"[]"), id="metadata of others"),
        pytest.param(lambda data: _parquet(b'{"clips": [], "spans": []}'), id="columns of others"),
        pytest.param(
            lambda data: _parquet(b'{"clips": [1], "spans": []}'), id="clips without span"
        ),
    ],
)
def test_a_damaged_result_is_refused_with_its_path_and_what_to_do(
    street: Dataset, tmp_path: Path, content: Any
) -> None:
    path = tmp_path / "result.parquet"
    written(QUICK, street, path)
    path.write_bytes(content(path.read_bytes()))
    with pytest.raises(DataError, match="expected the result of an experiment") as refused:
        runs.read(path, [*street.test_clips()])
    assert (str(path) in refused.value.problem, refused.value.hint) == (True, runs.AGAIN)


def _zeros(data: bytes, at: float) -> bytes:
    first = int(at * len(data))
    return data[:first] + bytes(64) + data[first + 64 :]


def _parquet(metadata: bytes | None) -> bytes:
    """A file with a column of its own."""
    table = pa.table({"x": [1, 2]})
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(metadata and {runs.KEY: metadata}), sink)
    return bytes(sink.getvalue())


def test_a_missing_result_is_not_called_damaged(street: Dataset, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        runs.read(tmp_path / "none.parquet", [*street.test_clips()])

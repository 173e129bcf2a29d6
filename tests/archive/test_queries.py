"""What DuckDB reads of scores: partitions it prunes, and the queries of the guide."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from pyarrow.dataset import dataset

from stepvad.archive import scoring
from stepvad.formats import write_clip
from stepvad.poses import Clip
from tests.archive.archives import write_model
from tests.pages import ROOT

DAYS = ("01", "02", "03")


@pytest.fixture
def recordings(clips: list[Clip], tmp_path: Path) -> Path:
    """Poses as a site records them: a directory for each camera, the time in the name."""
    for number, clip in enumerate(clips):
        camera = ("gate", "yard")[number % 2]
        name = f"{camera}-202605{DAYS[number // 2]}T060000-000"
        (tmp_path / "poses" / camera).mkdir(parents=True, exist_ok=True)
        write_clip(replace(clip, name=name), tmp_path / "poses" / camera / f"{name}.parquet")
    return tmp_path / "poses"


def test_scores_of_a_site_are_partitioned_by_date_and_camera_and_pruned(
    recordings: Path, model: Path, tmp_path: Path
) -> None:
    scores = tmp_path / "scores"
    summary = scoring.score(str(recordings), str(scores), model)
    found = f"read_parquet('{scores}/**/*.parquet', hive_partitioning = true)"
    query = f"SELECT date, camera, count(*) FROM {found} GROUP BY ALL ORDER BY ALL"
    rows = duckdb.execute(query).fetchall()
    counted = [(str(date), camera, n) for date, camera, n in rows]
    assert [(date, camera) for date, camera, _ in counted] == [
        (f"2026-05-{day}", camera) for day in DAYS for camera in ("gate", "yard")
    ]
    assert sum(n for _, _, n in counted) == summary.windows
    assert dataset(scores, partitioning="hive").count_rows() == summary.windows  # of a directory
    # files of other partitions are not even opened
    (kept,) = scores.glob("date=2026-05-01/camera=gate/*.parquet")
    for path in {*scores.rglob("*.parquet")} - {kept}:
        path.write_bytes(b"no Parquet")
    query = f"SELECT count(*) FROM {found} WHERE date = '2026-05-01' AND camera = 'gate'"
    assert duckdb.execute(query).fetchall() == [(counted[0][2],)]
    with pytest.raises(duckdb.Error, match="Parquet"):
        duckdb.execute(f"SELECT sum(A) FROM {found}").fetchall()


def test_the_queries_of_the_guide_run(
    poses: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_model(tmp_path / "other.safetensors", seed=1)
    scoring.score(str(poses), str(tmp_path / "scores-a"), model)
    scoring.score(str(poses), str(tmp_path / "scores-b"), other)
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "guides" / "archive.md").read_text("utf-8")
    queries = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert len(queries) == 2
    connection = duckdb.connect()
    compared, counted = map(connection.sql, queries)
    assert compared.columns == ["change", "camera", "clip", "from_s", "to_s", "peak"]
    assert {change for change, *_ in compared.fetchall()} <= {"gained", "lost"}
    assert [row[0] for row in counted.order("camera").fetchall()] == ["gate", "yard"]

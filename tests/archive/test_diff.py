"""Events gained and lost, on scores made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stepvad.archive import diff, scorefile
from stepvad.archive.diff import Difference, Side, compare, gained_and_lost
from stepvad.archive.scorefacts import ClipWindows, ScoreFacts
from stepvad.archive.scorefile import ClipScores
from stepvad.archive.storage import Directory
from stepvad.errors import DataError, StepvadError
from stepvad.incidents.events import Event, Rules
from stepvad.model.scoring import WindowScores

FPS = 10.0
Stretch = tuple[int, int, int, float]
"""A track, its first frame, the frame after its last, and its score in between."""


def scores_of(stretches: list[Stretch]) -> WindowScores:
    rows = [
        (track, frame, score)
        for track, first, end, score in stretches
        for frame in range(first, end)
    ]
    rows.sort()
    track, frame, A = (np.array(column) for column in zip(*rows, strict=True))
    ones = np.ones(len(A), np.float32)
    return WindowScores(track, frame, ones, np.empty((len(A), 0), np.float32), A.astype(np.float32))


FACTS = ScoreFacts(
    model_sha256="0" * 64,
    engine="numpy",
    energies=False,
    stepvad="0",
    inputs=(),
    failed={},
    clips={},
    windows=0,
    flat_windows=0,
    counts={},
)
"""What a file of scores says of itself."""


def write(root: Path, name: str, clips: dict[str, list[Stretch]], fps: float | None = FPS) -> None:
    """A file of scores; a clip of which there is no stretch has no window."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with scorefile.writing(path, None) as writer:
        for clip, stretches in clips.items():
            if stretches:
                writer.add(ClipScores(clip, scores_of(stretches)))
        facts = {clip: ClipWindows(fps, 1000) for clip in clips}
        writer.close(replace(FACTS, clips=facts))


CALM = 0.1


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """Two models over two cameras; thresholds are 2 and 5.

    Gate, clip g1: both see 10-12 s (the new one half a second later); the old one alone 30-31 s.
    Yard, clip y1: the new one alone sees 50-52 s; its score of 4 at 20 s is below its threshold.
    Yard, clip y2: nobody sees anything. Yard, clip y3: only the new model scored it.
    """
    old, new = tmp_path / "old", tmp_path / "new"
    gate, yard = "date=2026-05-01/camera=gate/a.parquet", "date=2026-05-02/camera=yard/a.parquet"
    write(old, gate, {"g1": [(1, 0, 400, CALM), (2, 100, 121, 3.0), (3, 300, 311, 2.5)]})
    write(new, gate, {"g1": [(1, 0, 400, CALM), (2, 105, 126, 6.0), (3, 300, 311, 4.0)]})
    write(old, yard, {"y1": [(7, 0, 600, CALM)], "y2": []})
    write(
        new,
        "date=2026-05-02/camera=yard/b.parquet",  # its shards are others
        {
            "y1": [(7, 0, 200, CALM), (7, 200, 230, 4.0), (7, 230, 500, CALM), (7, 500, 521, 9.0)],
            "y2": [],
            "y3": [(9, 0, 100, 9.0)],
        },
    )
    return old, new


def found_in(sides: tuple[Path, Path], within_s: float = 3.0) -> Difference:
    old, new = (
        Side(Directory.at(str(root)), lambda camera, t=threshold: Rules(threshold=t))  # type: ignore[misc]  # its own default
        for root, threshold in zip(sides, (2.0, 5.0), strict=True)
    )
    return compare(old, new, within_s=within_s)


def test_events_gained_and_lost_are_those_found_by_hand(sides: tuple[Path, Path]) -> None:
    found = found_in(sides)
    gate, yard = found.lines
    assert (gate.camera, gate.clips, gate.old, gate.new, gate.gained, gate.lost) == (
        *("gate", 1, 2, 1),
        *(0, 1),
    )
    assert (yard.camera, yard.clips, yard.old, yard.new, yard.gained, yard.lost) == (
        *("yard", 2, 0, 1),
        *(1, 0),
    )
    lost, gained = found.changed
    assert (lost.kind, lost.date, lost.camera, lost.clip) == ("lost", "2026-05-01", "gate", "g1")
    assert (lost.event.first_s, lost.event.last_s, lost.event.tracks) == (30.0, 31.0, (3,))
    assert lost.event.peak == 2.5
    assert (gained.kind, gained.date, gained.clip) == ("gained", "2026-05-02", "y1")
    assert (gained.event.first_s, gained.event.last_s, gained.event.peak) == (50.0, 52.0, 9.0)
    assert (found.only_old, found.only_new) == (0, 1)


def event(first_s: float, last_s: float) -> Event:
    return Event(
        first_s=first_s, last_s=last_s, tracks=(1,), peak=1.0, peak_s=first_s, peak_track=1
    )


@pytest.mark.parametrize(
    ("old", "new", "gained", "lost"),
    [
        ([(0, 1)], [(4, 5)], 0, 0),  # 3 s apart
        ([(0, 1)], [(4.1, 5)], 1, 1),
        ([(4.1, 5)], [(0, 1)], 1, 1),
        ([(0, 10)], [(2, 3), (5, 6)], 0, 0),  # one became two
        ([], [(2, 3)], 1, 0),
        ([(2, 3)], [], 0, 1),
    ],
)
def test_events_near_each_other_are_the_same(
    old: list[tuple[float, float]], new: list[tuple[float, float]], gained: int, lost: int
) -> None:
    found = gained_and_lost([event(*one) for one in old], [event(*one) for one in new])
    assert (len(found[0]), len(found[1])) == (gained, lost)


def test_how_far_apart_is_asked_for(sides: tuple[Path, Path]) -> None:
    assert found_in(sides, within_s=20.0).lines[0].lost == 0
    assert len(found_in(sides, within_s=17.0).changed) == 2


@pytest.mark.parametrize("rows", [7, 100])
def test_batches_of_rows_change_no_event(
    sides: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    expected = found_in(sides)
    monkeypatch.setattr(scorefile, "ROW_GROUP", rows)
    assert found_in(sides) == expected


def test_calm_at_the_edge_of_a_batch_ends_what_a_person_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.8 is above the release and below the threshold: it prolongs an event and begins none."""
    monkeypatch.setattr(scorefile, "ROW_GROUP", 7)
    write(tmp_path / "new", "a.parquet", {"a": [(1, 0, 7, 3.0), (1, 7, 8, CALM), (1, 8, 30, 1.8)]})
    write(tmp_path / "old", "a.parquet", {"a": [(1, 0, 30, CALM)]})
    (change,) = found_in((tmp_path / "new", tmp_path / "old")).changed
    assert (change.kind, change.event.first_s, change.event.last_s) == ("lost", 0.0, 0.6)


def test_scores_of_any_length_are_in_row_groups_of_one_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scorefile, "ROW_GROUP", 100)
    write(tmp_path, "a", {"x": [(1, 0, 250, 1.0)], "y": [(2, 0, 70, 2.0)]})
    file = pq.ParquetFile(tmp_path / "a")
    sizes = [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]
    assert sizes == [100, 100, 100, 20]
    table = file.read()
    assert table["clip"].to_pylist() == ["x"] * 250 + ["y"] * 70
    assert table["frame"].to_pylist() == [*range(250), *range(70)]
    file.close()


def test_a_rate_nobody_knows_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", {"a": [(1, 0, 30, 9.0)]}, fps=None)
    side = Side(Directory.at(str(tmp_path)), lambda camera: Rules(threshold=2.0))
    with pytest.raises(DataError, match=r"clip 'a': expected a frame rate"):
        compare(side, side)
    (line,) = compare(side, side, fps=5.0).lines
    assert (line.old, line.new, line.gained, line.lost) == (1, 1, 0, 0)


def test_places_without_scores_are_refused(tmp_path: Path, poses: Path) -> None:
    sides = [
        Side(Directory.at(str(root)), lambda camera: Rules(threshold=2.0))
        for root in (tmp_path, poses)
    ]
    with pytest.raises(StepvadError, match="expected scores of archive score, got none"):
        compare(sides[0], sides[0])
    with pytest.raises(DataError, match="expected scores that archive score wrote, got another"):
        compare(sides[1], sides[1])


def test_a_file_of_scores_is_the_same_bytes_every_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path, name, {"x": [(1, 0, 300, 1.5)], "y": [(2, 0, 3, 1.0)]})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with (tmp_path / "a").open("rb") as file:
        parts = list(scorefile.read_scores(file, "a"))
    assert [(part.clip, len(part.windows)) for part in parts] == [("x", 300), ("y", 3)]
    with (tmp_path / "a").open("rb") as file:
        assert json.dumps(scorefile.read_facts(file, "a").clips["x"].fps)


def test_muted_windows_make_no_event_and_files_without_shares_are_read(tmp_path: Path) -> None:
    windows = scores_of([(1, 0, 50, 9.0), (2, 0, 50, 9.0)])
    seen = np.where(windows.track_id == 1, np.float32(0.3), np.float32(1))
    path = tmp_path / "camera=a" / "x.parquet"
    path.parent.mkdir()
    with scorefile.writing(path, None) as writer:
        writer.add(ClipScores("x", replace(windows, seen=seen)))
        writer.close(replace(FACTS, clips={"x": ClipWindows(FPS, 1000)}))
    with path.open("rb") as file:
        (part,) = scorefile.read_scores(file, "x")
    assert part.windows.seen.tobytes() == seen.tobytes()
    side = Side(Directory.at(str(tmp_path)), lambda camera: Rules(threshold=2.0))
    (event,) = diff._events(side, ["camera=a/x.parquet"], "a", None)["x"]
    assert event.tracks == (2,)
    older, entries = pq.read_table(path).drop_columns(["seen"]), pq.read_metadata(path).metadata
    kept = {key: value for key, value in entries.items() if key != b"ARROW:schema"}
    pq.write_table(older.replace_schema_metadata(kept), path)
    (event,) = diff._events(side, ["camera=a/x.parquet"], "a", None)["x"]
    assert event.tracks == (1, 2)


def test_scores_that_nobody_wrote_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", {"x": [(1, 0, 50, 2.0)]})
    path = tmp_path / "a.parquet"
    whole, entries = pq.read_table(path), pq.read_metadata(path).metadata
    kept = {key: value for key, value in entries.items() if key != b"ARROW:schema"}
    many = scorefile.FREE_ROWS * 2
    spoilt = {
        "twice": whole.take(pa.array([0, 0])),
        "another order": whole.take(pa.array([1, 0])),
        "rows in": pa.table(
            {
                "clip": pa.DictionaryArray.from_arrays(np.zeros(many, np.int32), ["x"]),
                "track_id": np.zeros(many, np.int64),
                "frame": np.arange(many),
                "A": np.ones(many, np.float32),
                "c": np.ones(many, np.float32),
            }
        ),
        "column frame": whole.drop_columns(["frame"]),
        "column A": whole.set_column(3, "A", pa.array(["1"] * len(whole))),
        "column seen": whole.set_column(5, "seen", pa.array(["1"] * len(whole))),
    }
    for words, table in spoilt.items():
        encodings = {"frame": "DELTA_BINARY_PACKED"} if "frame" in table.column_names else None
        pq.write_table(
            table.replace_schema_metadata(kept),
            path,
            compression="zstd",
            use_dictionary=["clip", "track_id"],
            column_encoding=encodings,
        )
        with path.open("rb") as file, pytest.raises(DataError, match=words):
            list(scorefile.read_scores(file, "a"))

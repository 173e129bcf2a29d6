"""Whatever a file holds, a reader gives valid clips or labels, or says what is wrong with it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepvad.errors import StepvadError
from stepvad.formats import labels, read_clips, trajectories
from tests.formats.examples import check_clip

odd_numbers = st.floats() | st.sampled_from(
    [-1, 0.5, -0.0, 1e7, 1.1e7, 1e39, 1e308, 2**31, 2**63, 10**30, 10**400, True, None, "7", "x"]
)
odd_keys = st.sampled_from(["01", "007", "-1", "1.5", "x", "", "9" * 25]) | st.text()
anything = st.recursive(
    odd_numbers | st.text() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd_keys, inner, max_size=3),
    max_leaves=6,
)


def mostly(
    usual: st.SearchStrategy[Any], odd: st.SearchStrategy[Any] = anything
) -> st.SearchStrategy[Any]:
    """What belongs there, and once in twenty times what does not."""
    return st.integers(0, 19).flatmap(lambda chance: usual if chance else odd)


def document_bytes(document: object) -> bytes:
    return json.dumps(document).encode()


numbers = mostly(st.floats(0, 1000, width=16), odd_numbers)
keys = mostly(st.integers(0, 12).map(str), odd_keys)
keypoints = mostly(st.lists(numbers, min_size=6, max_size=6), st.lists(numbers, max_size=9))
poses = st.fixed_dictionaries(
    {"keypoints": mostly(keypoints)}, optional={"scores": mostly(st.none())}
)
tables = mostly(st.dictionaries(keys, mostly(poses), max_size=4))
alphapose = st.dictionaries(keys, tables | st.lists(tables, max_size=2), max_size=3)
results = st.fixed_dictionaries(
    {"image_id": mostly(keys), "keypoints": mostly(keypoints), "track_id": mostly(keys)},
    optional={"idx": anything},
)
coco = st.lists(mostly(results), max_size=5)


joints = mostly(
    st.lists(numbers.filter(lambda value: isinstance(value, float)), min_size=2, max_size=2),
    st.none() | st.lists(st.none() | st.floats(width=32), max_size=3),
)
facts = st.fixed_dictionaries({"fps": mostly(st.just(25.0)), "n_frames": mostly(st.just(99))})
headers = st.fixed_dictionaries(
    {
        "format": mostly(st.just(1)),
        "skeleton": mostly(
            st.fixed_dictionaries(
                {
                    "name": mostly(st.just("pair")),
                    "joints": mostly(st.just(["l", "r"])),
                    "bones": mostly(st.just([[0, 1]])),
                }
            )
        ),
        "clips": mostly(st.fixed_dictionaries({"a": mostly(facts), "b": facts})),
    }
)


@st.composite
def parquet(draw: st.DrawFn) -> bytes:
    """A Parquet file with nearly the right columns, and perhaps metadata."""
    n = draw(st.integers(0, 4))

    def column(values: st.SearchStrategy[Any], kind: Any) -> Any:
        return pa.array(draw(st.lists(values, min_size=n, max_size=n)), kind)

    joint_type = draw(st.sampled_from([pa.list_(pa.float32()), pa.large_list(pa.float64())]))
    columns = {
        "clip": column(st.just("a"), pa.string()),
        "track": column(mostly(st.integers(0, 2), st.integers(-(2**63), 2**63 - 1)), pa.int64()),
        "frame": column(mostly(st.integers(0, 50), st.integers(-1, 2**63 - 1)), pa.int64()),
        **{name: column(joints, joint_type) for name in ("x", "y", "confidence")},
    }
    for name in draw(mostly(st.just([]), st.lists(st.sampled_from(sorted(columns)), max_size=1))):
        columns[name] = pa.array(draw(st.sampled_from([[None] * n, ["x"] * n, [1.5] * n])))
    rows = pa.table(columns)
    if draw(st.booleans()):
        rows = rows.replace_schema_metadata({"stepvad": document_bytes(draw(headers))})
    out = io.BytesIO()
    pq.write_table(rows, out)
    return out.getvalue()


person_lines = st.lists(
    mostly(
        st.lists(numbers, min_size=34, max_size=34).flatmap(
            lambda values: mostly(st.integers(0, 12), odd_numbers).map(lambda at: [at, *values])
        ),
        st.lists(numbers, max_size=5),
    ),
    max_size=4,
)


def csv_bytes(lines: list[list[object]]) -> bytes:
    return "".join(",".join(map(str, line)) + "\n" for line in lines).encode()


def npy(values: object) -> bytes:
    out = io.BytesIO()
    np.save(out, np.array(values), allow_pickle=True)
    return out.getvalue()


masks = (
    st.binary(max_size=90).map(lambda tail: b"\x93NUMPY\x01\x00\x40\x00" + tail)
    | st.text(max_size=60).map(lambda text: b"\x93NUMPY\x01\x00\x40\x00" + text.encode())
    | st.lists(odd_numbers, max_size=3).map(npy)
    | st.lists(mostly(st.booleans(), st.integers(0, 2)), max_size=5).map(npy)
    | st.binary(max_size=40)
)


def check_clips(path: Path, format: str = "auto") -> None:
    for found in read_clips(path, format=format):
        check_clip(found)


def check_trajectories(path: Path) -> None:
    for found in trajectories.read(path.parents[1], fps=25.0):
        check_clip(found)


def check_masks(path: Path) -> None:
    for one in labels.shanghaitech(path.parents[2]).values():
        assert one.abnormal.dtype == one.counted.dtype == np.bool_


Case = tuple[str, st.SearchStrategy[bytes], Callable[[Path], None]]
CASES: dict[str, Case] = {
    "AlphaPose structures": ("a.json", alphapose.map(document_bytes), check_clips),
    "COCO structures": ("a.json", coco.map(document_bytes), check_clips),
    "any JSON": (
        "a.json",
        anything.map(document_bytes),
        lambda path: check_clips(path, "poselift"),
    ),
    "any bytes": ("a.json", st.binary(max_size=200), check_clips),
    "Parquet tables": ("a.parquet", parquet(), check_clips),
    "trajectories": ("01/1.csv", person_lines.map(csv_bytes), check_trajectories),
    "masks": ("gt/test_frame_mask/a.npy", masks, check_masks),
}


@pytest.mark.parametrize("kind", CASES)
@given(data=st.data())
def test_a_reader_gives_valid_data_or_says_what_is_wrong(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.getbasetemp()
    name, contents, check = CASES[kind]
    path = directory / kind / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.draw(contents))
    try:
        check(path)
    except StepvadError as error:
        refusal = error
    else:
        return
    assert str(directory) in refusal.problem
    assert refusal.hint

"""When a place is drawn, what is kept of it, and what a pose worker cannot make the site keep."""

from __future__ import annotations

import logging
import stat
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from stepvad.errors import DataError
from stepvad.site.intake.child_messages import (
    ImagePlace,
    PeopleHeader,
    decode,
    decode_drawings,
    encode,
    encode_people,
)
from stepvad.site.intake.frame_queues import QueuedFrame
from stepvad.site.intake.place_drawing import draw_place, drawing_bytes
from stepvad.site.intake.place_drawings import PLACES, PlaceDrawings, to_png
from stepvad.site.intake.status import LiveStatus
from stepvad.site.settings.sections import CameraSettings, SiteSettings
from tests.site.intake.test_place_drawing import bits_of, people, room

SIZE = (960, 540)
DRAWING = draw_place(room(), people(), 0.25)


def frame(second: float, *, camera: str = "door", connection: int = 0) -> QueuedFrame:
    return QueuedFrame(
        camera=camera,
        number=round(10 * second),
        connection=connection,
        wall0=0.0,
        slot=round(10 * second),
        arrived=second,
        size=SIZE,
    )


def drawings(directory: Path, *, draw: bool = True) -> tuple[PlaceDrawings, LiveStatus]:
    settings = SiteSettings(
        name="mill",
        data=directory,
        model=directory / "model.safetensors",
        cameras=[
            CameraSettings(name="door", url="door.mkv", draw_place=draw),
            CameraSettings(name="yard", url="yard.mkv"),
        ],
    )
    status = LiveStatus()
    for name in ("door", "yard"):
        status.camera(name, rate=10.0, threshold=1.0, model="m", zones={})
    return PlaceDrawings(settings, status), status


def version(status: LiveStatus) -> int | None:
    return status.snapshot().cameras[0].place


def look(places: PlaceDrawings, second: float, n: int = 0, **more: Any) -> bool:
    """A frame as a pose worker handles it; whether it was drawn."""
    one = frame(second, **more)
    drawn = places.wants(one) and n == 0
    places.update(one, people(*[0.9] * n), DRAWING if drawn else None)
    return drawn


def test_a_place_is_drawn_once_after_three_seconds_without_anybody(tmp_path: Path) -> None:
    places, status = drawings(tmp_path)
    assert version(status) is None
    seconds = [n / 10 for n in range(100)]
    assert [second for second in seconds if look(places, second)] == [3.0]
    file = tmp_path / PLACES / "door.png"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert version(status) == file.stat().st_mtime_ns // 1_000_000
    assert places.read("door") == file.read_bytes()


def test_somebody_in_view_starts_the_count_again(tmp_path: Path) -> None:
    places, _ = drawings(tmp_path)
    seen = {20, 45, 46}
    drawn = [n for n in range(100) if look(places, n / 10, int(n in seen))]
    assert drawn == [77]


def test_a_drawing_with_somebody_in_view_is_not_kept(tmp_path: Path) -> None:
    places, status = drawings(tmp_path)
    assert not any(look(places, n / 10) for n in range(30))
    places.update(frame(3.0), people(0.2, 0.9), DRAWING)
    assert version(status) is None


def test_what_is_hardly_a_person_counts_as_nobody(tmp_path: Path) -> None:
    places, status = drawings(tmp_path)
    for n in range(30):
        places.update(frame(n / 10), people(0.2), None)
    assert places.wants(frame(3.0))
    places.update(frame(3.0), people(0.2), DRAWING)
    assert version(status) is not None


def test_a_new_connection_starts_the_count_again(tmp_path: Path) -> None:
    places, _ = drawings(tmp_path)
    assert [n for n in range(60) if look(places, n / 10, connection=n // 25)] == []


def test_a_slow_camera_needs_three_frames(tmp_path: Path) -> None:
    places, _ = drawings(tmp_path)
    assert [n for n in range(6) if look(places, 4.0 * n)] == [3]


def test_a_drawing_that_comes_after_somebody_was_seen_is_not_kept(tmp_path: Path) -> None:
    places, status = drawings(tmp_path)
    for n in range(40):
        one = frame(n / 10)
        assert places.wants(one) == (n >= 30)
        places.update(one, people(), None)
    places.update(frame(4.1), people(0.9), None)  # by another worker
    places.update(frame(4.0), people(), DRAWING)
    assert version(status) is None
    assert not (tmp_path / PLACES).exists()


def test_a_camera_without_the_setting_is_never_drawn_and_loses_its_drawing(tmp_path: Path) -> None:
    places, _ = drawings(tmp_path)
    assert not any(look(places, n / 10, camera="yard") for n in range(100))
    assert any(look(places, n / 10) for n in range(40))
    places, status = drawings(tmp_path, draw=False)
    assert not any(look(places, n / 10) for n in range(100))
    assert version(status) is None
    assert places.read("door") is None
    assert [*(tmp_path / PLACES).iterdir()] == []


def test_a_restart_keeps_the_drawing_and_a_deletion_makes_another(tmp_path: Path) -> None:
    places, before = drawings(tmp_path)
    assert any(look(places, n / 10) for n in range(40))
    places, status = drawings(tmp_path)
    assert version(status) == version(before) is not None
    assert not any(look(places, n / 10) for n in range(100))
    assert not places.delete("yard")
    assert places.delete("door")
    assert places.read("door") is None
    assert version(status) is None
    assert not places.delete("door")
    assert [n for n in range(100, 200) if look(places, n / 10)] == [130]
    assert version(status) is not None


def test_a_full_disk_is_tried_again_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    places, status = drawings(tmp_path)
    (tmp_path / PLACES).write_text("in the way")
    with caplog.at_level(logging.WARNING):
        drawn = [n for n in range(100) if look(places, n / 10)]
    assert 1 <= len(drawn) <= 2, "with a back-off"
    assert "camera door: the place could not be drawn" in caplog.text
    (tmp_path / PLACES).unlink()
    assert any(look(places, n / 10) for n in range(100, 400))
    assert version(status) is not None


def test_the_picture_has_the_bits_of_the_drawing() -> None:
    assert DRAWING is not None
    content = to_png(DRAWING, SIZE)
    packet = av.Packet(content)
    (decoded,) = av.CodecContext.create("png", "r").decode(packet)
    pixels = decoded.to_ndarray(format="gray")
    np.testing.assert_array_equal(pixels > 127, bits_of(DRAWING, SIZE) > 0)
    assert len(content) < len(DRAWING)


IMAGES = [ImagePlace(file=0, offset=0, shape=(540, 960, 3))] * 3


def header(*drawn: bool, seen: tuple[int | None, ...] = (0, 0, 0)) -> PeopleHeader:
    return PeopleHeader(people=seen, joints=17, drawn=drawn)


def test_drawings_travel_with_the_people() -> None:
    assert DRAWING is not None
    data, _, body = encode_people([people(0.9), people(), None], [None, DRAWING, None])
    heard = decode(data)
    assert isinstance(heard, PeopleHeader)
    assert decode_drawings(heard, body, IMAGES, [True] * 3) == [None, DRAWING, None]


@pytest.mark.parametrize("n", [0, drawing_bytes(SIZE) - 1, drawing_bytes(SIZE) + 1, 10**6])
def test_a_drawing_of_another_size_is_refused(n: int) -> None:
    with pytest.raises(DataError, match=f"expected {drawing_bytes(SIZE)} bytes of drawings, got"):
        decode_drawings(header(False, True, False), bytes(n), IMAGES, [True] * 3)


def test_a_drawing_that_nobody_asked_for_is_refused() -> None:
    with pytest.raises(DataError, match="that were asked for"):
        decode_drawings(
            header(False, True, False), bytes(drawing_bytes(SIZE)), IMAGES, [True, False, True]
        )
    with pytest.raises(DataError, match="expected 0 bytes"):
        decode_drawings(header(False, False, False), b"x", IMAGES, [True] * 3)


def test_a_drawing_of_a_failed_image_is_refused() -> None:
    good = encode(header(True, seen=(0,)))
    assert decode(good) == header(True, seen=(0,))
    with pytest.raises(DataError, match="images that did not fail"):
        decode(good.replace(b'"people":[0]', b'"people":[null]'))
    with pytest.raises(DataError, match="expected 1 drawn or not, got 0"):
        decode(good.replace(b"[true]", b"[]"))

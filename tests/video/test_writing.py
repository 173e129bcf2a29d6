from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad.errors import StepvadError
from stepvad.video import writing
from stepvad.video.drawing import RAMP
from stepvad.video.pixels import Image
from stepvad.video.writing import recording, write_png

av = pytest.importorskip("av")
cv2 = pytest.importorskip("cv2")


def picture(number: int) -> Image:
    image = np.zeros((48, 64, 3), np.uint8)
    image[:, :32], image[:, 32:] = RAMP[0], RAMP[-1]
    image[:8] = 8 * number
    return image


def write(path: Path, n_frames: int = 20, fps: float = 12.5) -> Path:
    with recording(path, (64, 48), fps) as record:
        for number in range(n_frames):
            record(picture(number))
    return path


def boxes(path: Path) -> list[bytes]:
    """The parts of an MP4, in order."""
    data, found, at = path.read_bytes(), [], 0
    while at < len(data):
        found.append(data[at + 4 : at + 8])
        at += int.from_bytes(data[at : at + 4], "big")
    return found


def test_a_video_is_what_browsers_play(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mp4")
    order = boxes(path)
    assert order.index(b"moov") < order.index(b"mdat")
    with av.open(str(path)) as container:
        stream: Any = container.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert stream.codec_context.pix_fmt == "yuv420p"
        assert (stream.width, stream.height) == (64, 48)
        assert stream.average_rate == Fraction(25, 2)
        frames = list(container.decode(video=0))
    assert len(frames) == 20
    assert np.allclose(np.diff([frame.time for frame in frames]), 0.08)


def test_colours_come_back_and_say_how_they_are_stored(tmp_path: Path) -> None:
    with av.open(str(write(tmp_path / "a.mp4"))) as container:
        frames: list[Any] = list(container.decode(video=0))
    assert {int(frame.colorspace) for frame in frames} == {writing.BT709}
    for number, frame in enumerate(frames):
        # PyAV 16 reads the stored colour space only if both are given
        shown = frame.reformat(format="rgb24", src_colorspace="ITU709", dst_colorspace="DEFAULT")
        image = shown.to_ndarray().astype(int)
        assert np.abs(image[16:, 4:28] - RAMP[0]).max() < 12
        assert np.abs(image[16:, 36:60] - RAMP[-1]).max() < 12
        assert abs(image[:6].mean() - 8 * number) < 6


@pytest.mark.parametrize(
    ("fps", "rate"),
    [(30000 / 1001, Fraction(30000, 1001)), (10, Fraction(10)), (0.5, Fraction(1, 2))],
)
def test_frame_rates_are_kept_exactly(tmp_path: Path, fps: float, rate: Fraction) -> None:
    with av.open(str(write(tmp_path / "a.mp4", 5, fps))) as container:
        assert container.streams.video[0].average_rate == rate


def begin_and_stop(path: Path, stop: type[BaseException]) -> None:
    with recording(path, (64, 48), 10.0) as record:
        record(picture(1))
        raise stop


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ValueError])
def test_what_is_stopped_leaves_no_file_and_keeps_the_old_one(
    tmp_path: Path, stop: type[BaseException]
) -> None:
    (tmp_path / "a.mp4").write_bytes(b"old")
    with pytest.raises(stop):
        begin_and_stop(tmp_path / "a.mp4", stop)
    assert [file.name for file in tmp_path.iterdir()] == ["a.mp4"]
    assert (tmp_path / "a.mp4").read_bytes() == b"old"


def test_without_an_encoder_the_remedy_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "ENCODER", "libnothing")
    with (
        pytest.raises(StepvadError, match="expected PyAV with the encoder libnothing") as failed,
        recording(tmp_path / "a.mp4", (64, 48), 10.0),
    ):
        pass
    assert "only-binary" in failed.value.hint
    assert not list(tmp_path.iterdir())


def test_a_png_has_the_colours_drawn(tmp_path: Path) -> None:
    write_png(picture(3), tmp_path / "a.png")
    back = cv2.imread(str(tmp_path / "a.png"))[..., ::-1]
    np.testing.assert_array_equal(back, picture(3))
    with pytest.raises(StepvadError, match="can be written"):
        write_png(picture(3), tmp_path / "no" / "a.png")

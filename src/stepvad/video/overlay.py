"""Scored people on the picture, and files of it: videos and stills."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepvad import skeletons
from stepvad.errors import DataError, Progress, Report, StepvadError, silent
from stepvad.files import replacing
from stepvad.model.scoring import Scores
from stepvad.poses import Clip
from stepvad.video.source import Footage, Image, opencv, pyav
from stepvad.video.timeline import (
    ColourScale,
    ShownFrames,
    Spot,
    Timeline,
    chip,
    draw_box,
    draw_skeleton,
    ink_on,
    paste,
    track_colours,
)

logger = logging.getLogger(__name__)

RED_QUANTILE = 0.999
"""Quantile of a clip's window scores at which red begins if no threshold is given."""
LEAST_RED = 3.0
"""Lower bound of red, so calm clips stay green: three standard deviations of training energies."""
LEAST_CONFIDENCE = 0.1
"""Joints below this confidence are guesses: neither drawn nor part of the box."""
LARGEST_SIDE = 4096
"""Longest side of an image that every H.264 decoder can play."""
SMALLEST_SIDE = 320
"""Smallest width of an image that fits the timeline's labels."""
PLACES = 4
"""Positions tried for a number before it may cover another."""
OUTSIDE = 0.02
"""Share of joints that may lie outside the video they supposedly belong to."""
PixelSize = tuple[int, int]
"""Width and height in pixels."""
PixelBox = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels."""

APART_S = 1.0
"""Least time between two stills of highest scores."""

ENCODER = "libx264"
"""Bundled with PyAV's wheels and licensed under the GPL, which binds products that ship them."""
QUALITY = {"crf": "20", "preset": "veryfast"}
BT709 = 1
"""FFmpeg's code for HDTV colour (ITU-R BT.709): matrix, primaries and transfer."""


def write(
    overlay: Overlay,
    path: Path,
    frames: Sequence[int],
    stills: Sequence[int],
    *,
    video: Footage | None = None,
    report: Report = silent,
) -> None:
    """Draw frames of an overlay into a video, and some of them as PNG beside it."""
    with recording(path, overlay.picture_size, overlay.fps) as record:
        for done, (frame, picture) in enumerate(pictures(overlay, frames, video), 1):
            record(picture)
            if frame in stills:
                write_png(picture, still_path(path, frame))
            report(Progress("drawing", done, len(frames)))


def choose_stills(overlay: Overlay, frames: range, fps: float, highest: int) -> list[int]:
    """The frames of the highest scores, at least a second apart."""
    scores = overlay.cast.highest()[frames.start : frames.stop]
    moments = highest_moments(scores, highest, round(APART_S * fps))
    return sorted(frames.start + moment for moment in moments)


def still_path(path: Path, frame: int) -> Path:
    """The picture of a frame, beside the video."""
    return path.with_name(f"{path.stem}-{frame:06}.png")


class Overlay:
    """Draws one scored clip: each frame with its people, and the timeline below.

    `size` is the size of the frame; `picture_size`, with even sides, that of the whole image.
    """

    def __init__(
        self,
        clip: Clip,
        scores: Scores,
        shown: ShownFrames,
        *,
        size: PixelSize,
        scale: ColourScale,
    ) -> None:
        self.cast, self._scale, self._size = PeopleByFrame(clip, scores), scale, size
        self.fps = shown.fps
        width = size[0] + size[0] % 2
        self._unit = max(max(size) / 900, 1.0)
        self._colours = track_colours(clip.tracks)
        self._timeline = Timeline(
            scores.windows,
            replace(shown, name=clip.name),
            scale,
            self._colours,
            width=width,
            unit=min(self._unit, max(width / 560, 0.6)),
        )
        self._height = size[1] + size[1] % 2
        self.picture_size: PixelSize = (width, self._height + self._timeline.height)

    def draw(self, frame: int, image: Image | None = None, *, onto: Image | None = None) -> Image:
        """Draw a frame on its image or on black; `onto` is overwritten and returned if given."""
        # the frame, its people, the highest scores in front
        picture = self.empty_picture() if onto is None else onto
        stage = picture[: self._size[1], : self._size[0]]
        stage[:] = 0 if image is None else image
        people = sorted(
            self.cast.people(frame), key=lambda one: np.nan_to_num(one.score, nan=-np.inf)
        )
        for person in people:
            self._draw_figure(stage, person)
        # numbers of the highest scores first: they have the best places
        taken: list[PixelBox] = []
        for person in reversed(people):
            if _scored(person):
                self._draw_numbers(stage, person, taken)
        spots = [Spot(person.track_id, person.score) for person in people if _scored(person)]
        self._timeline.draw(picture[self._height :], frame, spots)
        return picture

    def empty_picture(self) -> Image:
        """A black image to draw onto."""
        width, height = self.picture_size
        return np.zeros((height, width, 3), np.uint8)

    def check_image(self, image: Image, frame: int) -> None:
        """Raise if a frame's size differs from that of the first."""
        if image.shape[:2] != self._size[::-1]:
            raise DataError(
                f"frame {frame} of the video: expected {self._size[0]}x{self._size[1]} pixels as "
                f"before, got {image.shape[1]}x{image.shape[0]}",
                hint="convert the video to one size, or leave it out to draw on black",
            )

    def _draw_figure(self, stage: Image, person: OverlayPerson) -> None:
        colour, level = self._scale.colour(person.score), self._scale.level(person.score)
        width = self._unit * (2 + (level if _scored(person) else 0))
        bones = self.cast.skeleton.bones
        draw_box(stage, self._box(person), self._colours[person.track_id], 1.5 * self._unit)
        draw_skeleton(stage, person.joints, bones, person.seen, colour, width)

    def _draw_numbers(self, stage: Image, person: OverlayPerson, taken: list[PixelBox]) -> None:
        """Draw the confidence above the box and the score below, avoiding numbers already drawn."""
        left, top, right, bottom = self._box(person)
        high, edge = round(18 * self._unit), round(3 * self._unit)
        owner = self._colours[person.track_id]
        for text, paper, row, up in (
            (f"{person.confidence:.2f}", owner, top - high, True),
            (f"{person.score:.1f}", self._scale.colour(person.score), bottom + 1, False),
        ):
            plate = chip(text, high, paper, ink_on(paper), edge, owner)
            wide = plate.shape[1]
            column = min(max((left + right - wide) // 2, 0), max(stage.shape[1] - wide, 0))
            row = min(max(row, 0), stage.shape[0] - high)
            spot = _free((column, row, column + wide, row + high), up, taken, stage.shape[0])
            taken.append(spot)
            paste(stage, plate, *spot[:2])

    def _box(self, person: OverlayPerson) -> PixelBox:
        """The rectangle around the joints seen, or all joints if none is, plus a margin."""
        joints = person.joints[person.seen] if person.seen.any() else person.joints
        low, high = joints.min(axis=0), joints.max(axis=0)
        margin = 0.06 * float((high - low).max()) + 2 * self._unit
        corners = np.clip(np.concatenate([low - margin, high + margin]), -20_000, 20_000)
        left, top, right, bottom = corners.round().astype(int).tolist()
        return left, top, right, bottom


class PeopleByFrame:
    """The people in each frame of a clip with their scores; joints are those the model uses."""

    def __init__(self, clip: Clip, scores: Scores) -> None:
        self._clip = clip
        self.skeleton = skeletons.modelled(clip.skeleton)
        # a row for each pose, by frame: its track, its place there, and the window that it ends
        counts = [len(track) for track in clip.tracks]
        nothing = np.empty(0, np.int64)
        frame = np.concatenate([nothing, *(track.frames for track in clip.tracks)])
        order = np.argsort(frame, kind="stable")
        self._frame = frame[order]
        self._track = np.repeat(np.arange(len(counts)), counts)[order]
        self._row = np.concatenate([nothing, *map(np.arange, counts)])[order]
        self._window = _windows_of(clip, scores)[order]
        self._score, self._confidence = scores.windows.A, scores.windows.c

    def people(self, frame: int) -> list[OverlayPerson]:
        """The people in a frame, in the order of the tracks."""
        first, end = np.searchsorted(self._frame, [frame, frame + 1])
        return [self._person(at) for at in range(first, end)]

    def highest(self) -> NDArray[np.float32]:
        """The highest score in each frame, `(n_frames,)`; NaN where no person has one."""
        best = np.full(self._clip.n_frames, np.nan, np.float32)
        scored = self._window >= 0
        np.fmax.at(best, self._frame[scored], self._score[self._window[scored]])
        return best

    def _person(self, at: int) -> OverlayPerson:
        # joints (V, 2) and confidence (V,) of one pose, in the model's skeleton
        track, row = self._clip.tracks[self._track[at]], slice(self._row[at], self._row[at] + 1)
        source = self._clip.skeleton
        joints = skeletons.convert(track.keypoints[row], source, self.skeleton)[0]
        sure = skeletons.convert(track.confidence[row], source, self.skeleton)[0]
        seen = sure >= LEAST_CONFIDENCE  # NaN compares false
        window = int(self._window[at])
        if window < 0:
            return OverlayPerson(track.id, joints, seen, np.nan, np.nan)
        score, confidence = float(self._score[window]), float(self._confidence[window])
        return OverlayPerson(track.id, joints, seen, score, confidence)


class OverlayPerson(NamedTuple):
    """A person in a frame: joints `(V, 2)`, which of them are seen `(V,)`, score and confidence.

    Score and confidence belong to the window that ends at this frame; NaN if there is none.
    """

    track_id: int
    joints: NDArray[np.float32]
    seen: NDArray[np.bool_]
    score: float
    confidence: float


def pictures(
    overlay: Overlay, frames: Collection[int], video: Footage | None = None
) -> Iterator[tuple[int, Image]]:
    """Yield the given frames of an overlay in order, drawn on the video's frames or on black.

    All are drawn into the same array: copy an image to keep it.
    """
    canvas = overlay.empty_picture()  # reused: many large arrays would fragment the heap
    if video is None:
        yield from ((frame, overlay.draw(frame, onto=canvas)) for frame in sorted(frames))
        return
    last, number = max(frames), -1
    for seen in video:
        number = seen.number
        if number in frames:
            overlay.check_image(seen.image, number)
            yield number, overlay.draw(number, seen.image, onto=canvas)
        if number >= last:
            return
    raise DataError(
        f"{video.path}: expected a frame {last}, got {number + 1} frames that decode",
        hint="give the video that the poses came from, or choose earlier frames",
    )


def scale_of(scores: Scores, threshold: float | None = None) -> ColourScale:
    """Red from the threshold on; without one, from the 99.9 % quantile of the clip's scores.

    The quantile marks the clip's highest scores even if none is abnormal, so it is used only if it
    exceeds 3.
    """
    if threshold is not None:
        return ColourScale(threshold, "the threshold")
    usual = float(np.quantile(scores.A, RED_QUANTILE)) if len(scores.A) else 0.0
    if usual > LEAST_RED:
        return ColourScale(usual, f"the clip's {100 * RED_QUANTILE:g} % quantile")
    return ColourScale(LEAST_RED, "three standard deviations of training")


def canvas_size(clip: Clip) -> PixelSize:
    """Image size that fits every joint of a clip with a margin, for poses without a video."""
    reach = _reach(clip)
    width, height = (max(int(np.ceil(1.03 * side)), SMALLEST_SIDE) for side in reach)
    return check_size((width, height), f"clip {clip.name}")


def check_size(size: PixelSize, where: str) -> PixelSize:
    """Raise if an image is too small or too large to play; return its size."""
    if not SMALLEST_SIDE <= size[0] <= LARGEST_SIDE or not 16 <= size[1] <= LARGEST_SIDE:
        raise DataError(
            f"{where}: expected a picture of {SMALLEST_SIDE}x16 to {LARGEST_SIDE}x{LARGEST_SIDE}, "
            f"got {size[0]}x{size[1]}",
            hint="give the video that the poses came from",
        )
    return size


def check_video(clip: Clip, video: Footage, size: PixelSize) -> None:
    """Raise if the poses cannot belong to a video: too short, or too small for the joints."""
    if video.n_frames is not None and video.n_frames < clip.n_frames:
        raise DataError(
            f"{video.path}: expected the {clip.n_frames} frames that clip {clip.name} has, "
            f"got {video.n_frames}",
            hint="give the video that the poses came from",
        )
    # joints (n, 2) that are not guesses; a few may lie outside
    sure = [track.keypoints[track.confidence >= LEAST_CONFIDENCE] for track in clip.tracks]
    outside = sum(int(((joints < 0) | (joints > size)).any(axis=1).sum()) for joints in sure)
    if outside > OUTSIDE * sum(map(len, sure)):
        right, bottom = _reach(clip)
        raise DataError(
            f"{video.path}: expected a video that holds the joints of clip {clip.name}, which go "
            f"to ({right:.0f}, {bottom:.0f}), got {size[0]}x{size[1]} pixels",
            hint="give the video that the poses came from, at its original size",
        )


def highest_moments(scores: NDArray[np.float32], n: int, apart: int) -> list[int]:
    """The frames of the `n` highest scores that are at least `apart` frames from each other.

    `scores` `(n_frames,)` may hold NaN. Returns fewer frames if there are no more.
    """
    # the highest of those left, again and again, with the frames around it taken out
    left = np.where(np.isnan(scores), -np.inf, scores)
    moments: list[int] = []
    while len(moments) < n and len(left) and left.max() > -np.inf:
        top = int(left.argmax())
        moments.append(top)
        left[max(top - apart + 1, 0) : top + apart] = -np.inf
    return moments


def frame_size(clip: Clip, video: Footage | None = None) -> PixelSize:
    """The size of a frame: the video's, or what the poses need."""
    if video is None:
        return canvas_size(clip)
    height, width = next(iter(video)).image.shape[:2]
    size = width, height
    check_video(clip, video, size)
    if video.n_frames is not None and video.n_frames > clip.n_frames:
        last = clip.n_frames - 1
        logger.info("the poses end with frame %d; the rest of the video is not drawn", last)
    return check_size(size, str(video.path))


@contextmanager
def recording(path: Path, size: tuple[int, int], fps: float) -> Iterator[Callable[[Image], None]]:
    """Yield a function that appends an image `(H, W, 3)` to an MP4; the file is written atomically.

    All images have the same size. H.264 in YUV 4:2:0 with the index first, so browsers can start
    playing before the download completes.
    """
    av = pyav()
    rate = Fraction(fps).limit_denominator(1001)
    check_encoder()
    with (
        replacing(path) as temporary,
        av.open(str(temporary), "w", format="mp4", options={"movflags": "+faststart"}) as container,
    ):
        stream = container.add_stream(ENCODER, rate=rate, options=QUALITY)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        context = stream.codec_context
        context.colorspace = context.color_primaries = context.color_trc = BT709
        taken = 0

        def record(image: Image) -> None:
            nonlocal taken
            whole = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame = whole.reformat(format="yuv420p", dst_colorspace="ITU709")
            frame.pts, frame.time_base = taken, 1 / rate
            container.mux(stream.encode(frame))
            taken += 1

        yield record
        container.mux(stream.encode())


def check_encoder() -> None:
    """Raise if PyAV was built without an H.264 encoder."""
    av = pyav()
    try:
        av.codec.Codec(ENCODER, "w")
    except ValueError as error:
        raise StepvadError(
            f"MP4: expected PyAV with the encoder {ENCODER}, got one without",
            hint="pip install --force-reinstall --only-binary av av",
        ) from error


def write_png(image: Image, path: Path) -> None:
    """Write an image as PNG, atomically."""
    cv2 = opencv("overlay")
    _, encoded = cv2.imencode(".png", image[..., ::-1], [cv2.IMWRITE_PNG_COMPRESSION, 9])
    with replacing(path) as temporary:
        temporary.write_bytes(encoded.tobytes())


def _reach(clip: Clip) -> tuple[float, float]:
    """The rightmost and lowest coordinates of joints that are not guesses."""
    right = bottom = 0.0
    for track in clip.tracks:
        joints = track.keypoints[track.confidence >= LEAST_CONFIDENCE]
        if len(joints):
            x, y = joints.max(axis=0).tolist()
            right, bottom = max(right, x), max(bottom, y)
    return right, bottom


def _windows_of(clip: Clip, scores: Scores) -> NDArray[np.int64]:
    """Row of the window that ends at each pose, track by track; -1 if there is none."""
    # windows in order of track and frame; each pose looks for its frame among those of its track
    windows = scores.windows
    order = np.lexsort((windows.frame, windows.track_id))
    track_id, frame = windows.track_id[order], windows.frame[order]
    found = [np.empty(0, np.int64)]
    for track in clip.tracks:
        first, end = np.searchsorted(track_id, [track.id, track.id + 1])
        if first == end:
            found.append(np.full(len(track), -1))
            continue
        at = np.minimum(np.searchsorted(frame[first:end], track.frames), end - first - 1) + first
        found.append(np.where(frame[at] == track.frames, order[at], -1))
    return np.concatenate(found)


def _free(spot: PixelBox, up: bool, taken: list[PixelBox], height: int) -> PixelBox:
    """The nearest free position above or below a spot; the spot itself if there is none."""
    left, top, right, bottom = spot
    tall = bottom - top
    for _ in range(PLACES):
        if not 0 <= top <= height - tall:
            break
        moved = left, top, right, top + tall
        met = [box for box in taken if _meet(moved, box)]
        if not met:
            return moved
        top = min(box[1] for box in met) - tall if up else max(box[3] for box in met)
    return spot


def _meet(a: PixelBox, b: PixelBox) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _scored(person: OverlayPerson) -> bool:
    return not np.isnan(person.score)

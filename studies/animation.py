"""Make the moving picture of the README and of the home page, and a still of it.

People of the scene of `stepvad watch --demo`, in the colour of the scores that the bundled model
gives them; the alert, its words and the normal motion behind it are those of a live site. Nothing
is drawn by hand. It takes some minutes: python -m studies animation
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib import get_data_path
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from stepvad import Clip, Detector, Skeleton, read_clip
from stepvad.events.calibration import calibration_path, read_calibration
from stepvad.events.rules import Rules, changes_of
from stepvad.explain import explain
from stepvad.explain.event import explain_peak
from stepvad.model.scoring import Scores
from stepvad.site import demo
from stepvad.video.timeline import Colour, ColourScale, mixed

IMAGES = Path(__file__).parents[1] / "docs" / "images"
FIRST, LAST, STILL = 38, 142, 114
"""Frames of the scene; the still is one of them."""
HOLD = 25
"""How often the last frame is shown, for people to read."""
WIDTH, SCENE, HEIGHT = 1200, 500, 750
"""Pixels of the picture, and where the scene ends and the scores begin."""
LEFT, TOP, ZOOM = 225.0, 226.0, 1.85
"""The part of the scene that is shown: its corner and how much larger."""
FINER = 2
"""Drawn so much larger, then reduced, for smooth lines."""
EDGE, BONE = 44, 9.0
HIGHEST = 36.0
"""Score at the top of the timeline."""
PAPER, PANEL, RULE = (13, 17, 23), (19, 25, 33), (48, 58, 70)
INK, QUIET, RED = (235, 240, 245), (148, 160, 173), (255, 92, 84)
GHOST = (86, 180, 233)
Points = NDArray[np.float64]


@dataclass(frozen=True)
class Story:
    """What there is to show, frame by frame."""

    clip: Clip
    detector: Detector
    scores: Scores
    rules: Rules
    words: dict[int, str]
    """Words of the alert, by the frame from which they are known."""
    ghosts: dict[int, Points] = field(default_factory=dict)
    """Pose of the nearest normal motion, by frame, while the alert lasts."""

    def score(self, track: int, frame: int) -> float:
        """The person's score, NaN before the first window."""
        windows = self.scores.windows
        found = windows.A[(windows.track_id == track) & (windows.frame == frame)]
        return float(found[0]) if len(found) else float("nan")

    def says(self, frame: int) -> str:
        """The words known by now, or nothing."""
        known = [at for at in self.words if at <= frame]
        return self.words[max(known)] if known else ""


def tell() -> Story:
    """Score the scene as a site does, and explain its alert with what is known at the time."""
    clip, detector = read_clip(demo.POSES), Detector.load(demo.MODEL)
    threshold = read_calibration(calibration_path(demo.MODEL)).threshold
    story = Story(clip, detector, detector.score(clip), Rules(threshold=threshold.value), {})
    told = float("-inf")
    for known_s, change in changes_of(story.scores.windows, demo.RATE, story.rules, clip):
        now = round(known_s * demo.RATE)
        if not FIRST <= now <= LAST or change.kind == "end":
            continue
        track = change.event.peak_track
        if known_s - told >= 1.0:  # as often as a site sends news of an event
            peak_frame = round(change.event.peak_s * demo.RATE)
            seen = tuple(part for track in clip.tracks if len(part := track.between(0, now + 1)))
            until = Clip(clip.name, clip.fps, now + 1, seen, clip.skeleton)
            found = explain_peak(detector, until, track, peak_frame, calm=story.rules.calm)
            story.words[now] = found.findings[0].says if found.findings else ""
            told = known_s
    first = min(story.words)
    for frame in range(first, LAST + 1):
        worst = max((t.id for t in clip.tracks if frame in t.frames),
                    key=lambda track: np.nan_to_num(story.score(track, frame), nan=-9))  # fmt: skip
        if story.score(worst, frame) >= story.rules.calm:
            (why,) = explain(detector, clip, [(worst, frame)])
            story.ghosts[frame] = why.ghost[-1].astype(np.float64)
    return story


class Canvas:
    """A picture under the pen, in the coordinates of the finished one."""

    def __init__(self) -> None:
        self.image = Image.new("RGB", (WIDTH * FINER, HEIGHT * FINER), PAPER)
        self.pen = ImageDraw.Draw(self.image, "RGBA")

    def line(self, points: Points, colour: tuple[int, ...], width: float) -> None:
        """A line with round joints and ends."""
        big = [tuple(point) for point in (points * FINER).tolist()]
        self.pen.line(big, fill=colour, width=round(width * FINER), joint="curve")
        for point in (big[0], big[-1]):
            self.dot(np.array(point) / FINER, width / 2, colour)

    def dot(self, at: Points, radius: float, colour: tuple[int, ...]) -> None:
        """A full circle."""
        x, y = at * FINER
        r = radius * FINER
        self.pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)

    def box(self, corners: Points, colour: tuple[int, ...], width: float) -> None:
        """An empty box with round corners."""
        big = [tuple(corner) for corner in (corners * FINER).tolist()]
        self.pen.rounded_rectangle(
            [*big[0], *big[1]], radius=10 * FINER, outline=colour, width=round(width * FINER)
        )

    def text(
        self,
        at: tuple[float, float],
        text: str,
        colour: tuple[int, ...],
        size: float,
        *,
        bold: bool = False,
        anchor: str = "ls",
    ) -> None:
        """A line of text."""
        place = (at[0] * FINER, at[1] * FINER)
        self.pen.text(place, text, font=font(round(size * FINER), bold), fill=colour, anchor=anchor)

    def finish(self) -> Image.Image:
        """At its size, with round corners that let the page through."""
        small = self.image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS).convert("RGBA")
        mask = Image.new("L", self.image.size, 0)
        whole = (0, 0, self.image.width - 1, self.image.height - 1)
        ImageDraw.Draw(mask).rounded_rectangle(whole, radius=18 * FINER, fill=255)
        small.putalpha(mask.resize(small.size, Image.Resampling.LANCZOS))
        return small


@cache
def font(size: int, bold: bool) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which matplotlib ships."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(Path(get_data_path()) / "fonts" / "ttf" / name, size)


def wrapped(text: str, size: float, width: float) -> list[str]:
    """The text in lines that are not wider."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if font(round(size), True).getlength(longer) > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def placed(keypoints: Points) -> Points:
    """Joints of the scene in the picture."""
    return (keypoints - (LEFT, TOP)) * ZOOM


def draw(story: Story, frame: int) -> Image.Image:
    """One frame of the picture."""
    canvas = Canvas()
    for x in range(0, WIDTH + 1, 50):
        for y in range(25, SCENE, 50):
            canvas.dot(np.array([x + 25.0, y]), 1.2, PANEL)
    canvas.text((EDGE, 48), "$ stepvad watch --demo", QUIET, 22)
    if frame in story.ghosts:
        ghost(canvas, placed(story.ghosts[frame]), story.clip.skeleton)
    for track in story.clip.tracks:
        for row in np.flatnonzero(track.frames == frame):
            person(canvas, story, track.id, placed(track.keypoints[row].astype(np.float64)), frame)
    canvas.pen.rectangle((0, SCENE * FINER, WIDTH * FINER, HEIGHT * FINER), fill=PANEL)
    timeline(canvas, story, frame)
    headline(canvas, story, frame)
    return canvas.finish()


def skeleton(
    canvas: Canvas, pose: Points, bodies: Skeleton, colour: tuple[int, ...], width: float
) -> None:
    """The bones below the neck, and a ring for the head."""
    names = bodies.joints
    face = {n for n, name in enumerate(names) if name.split("_")[-1] in ("nose", "eye", "ear")}
    if "neck" not in names:
        mid = pose[[names.index("left_shoulder"), names.index("right_shoulder")]].mean(axis=0)
    else:
        mid = pose[names.index("neck")]
    head = pose[[*face]].mean(axis=0)
    for a, b in bodies.bones:
        if a not in face and b not in face:
            canvas.line(pose[[a, b]], colour, width)
    reach = float(np.linalg.norm(head - mid))
    radius = max(0.42 * reach, 1.6 * BONE)
    canvas.line(np.array([mid, head + (mid - head) * radius / max(reach, 1.0)]), colour, width)
    canvas.dot(head, radius, colour)


def ghost(canvas: Canvas, pose: Points, bodies: Skeleton) -> None:
    """The nearest normal motion, faint."""
    plain = canvas.image.copy()
    skeleton(canvas, pose, bodies, GHOST, 1.5 * BONE)
    canvas.image.paste(Image.blend(plain, canvas.image, 0.45))


def person(canvas: Canvas, story: Story, track: int, pose: Points, frame: int) -> None:
    """Somebody in the colour of the score, and a box around those above the limit."""
    score, limit = story.score(track, frame), story.rules.threshold
    colour: Colour = ColourScale(limit, "limit").colour(score)
    if score >= limit:
        low, high = pose.min(axis=0) - 18, pose.max(axis=0) + 18
        canvas.box(np.array([low, high]), RED, 3)
        colour, side = RED, high[0] + 22
        canvas.text((side, low[1] + 24), f"{score / limit:.1f}× the limit", RED, 26, bold=True)
        if frame in story.ghosts:
            canvas.text((side, low[1] + 60), "in blue: the nearest", GHOST, 20)
            canvas.text((side, low[1] + 86), "normal motion", GHOST, 20)
    skeleton(canvas, pose, story.clip.skeleton, colour, BONE)


def height_of(score: NDArray[np.float64] | float, limit: float) -> NDArray[np.float64]:
    """Where a score lies in the timeline: nearly a logarithm, so that low scores are seen, too."""
    low, high = np.arcsinh(-2 / limit), np.arcsinh(HIGHEST / limit)
    part = (np.arcsinh(np.asarray(score) / limit) - low) / (high - low)
    return np.asarray(HEIGHT - 30 - part * 150)


def timeline(canvas: Canvas, story: Story, frame: int) -> None:
    """The highest score of each frame up to now, and the limit."""
    limit = story.rules.threshold
    start, end = EDGE, WIDTH - EDGE
    y = float(height_of(limit, limit))
    for x in range(start, end, 16):
        canvas.line(np.array([[x, y], [min(x + 8, end), y]]), QUIET, 1.6)
    canvas.text((start, y - 9), "limit", QUIET, 20)
    frames = np.arange(FIRST, frame + 1)
    values = story.scores.frames[frames].astype(np.float64)
    across = start + (frames - FIRST) / (LAST - FIRST) * (end - start)
    points = np.column_stack([across, height_of(values, limit)])
    scale = ColourScale(limit, "limit")
    for (a, b), value in zip(pairwise(points), values[1:], strict=True):
        if np.isfinite([a, b]).all():
            colour = RED if value >= limit else scale.colour(float(value))
            canvas.line(np.array([a, b]), colour, 4)
    if len(points) and np.isfinite(points[-1]).all():
        colour = RED if values[-1] >= limit else scale.colour(float(values[-1]))
        canvas.dot(points[-1], 8, colour)


def headline(canvas: Canvas, story: Story, frame: int) -> None:
    """What a site tells: nothing to see, or the words of the alert."""
    words = story.says(frame)
    y = SCENE + 44
    if not words and story.scores.frames[frame] >= story.rules.threshold:
        return  # too short for an alert as yet
    if not words:
        canvas.dot(np.array([EDGE + 7.0, y - 8]), 7, mixed((96, 242, 200), PANEL, 0.15))
        canvas.text((EDGE + 26, y), "Everyone moves as usual", QUIET, 24)
        return
    canvas.dot(np.array([EDGE + 7.0, y - 8]), 7, RED)
    canvas.text((EDGE + 26, y), "Alert", RED, 24, bold=True)
    said = words[0].upper() + words[1:]
    for n, line in enumerate(wrapped(said, 24, WIDTH - 3 * EDGE - 90)):
        canvas.text((EDGE + 116, y + n * 32), line, INK, 24, bold=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args(arguments)
    story = tell()
    pictures = [draw(story, frame) for frame in range(FIRST, LAST + 1)]
    pictures[STILL - FIRST].save(IMAGES / "demo-still.png", optimize=True)
    moment = round(1000 / demo.RATE)
    path = IMAGES / "demo.webp"
    pictures[0].save(
        path,
        save_all=True,
        append_images=pictures[1:],
        duration=[moment] * (len(pictures) - 1) + [moment * HOLD],
        loop=0,
        quality=80,
        method=4,
    )
    print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, {len(pictures)} frames")

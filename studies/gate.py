"""What a camera costs behind its motion gate, and how soon people are seen.

    OMP_NUM_THREADS=1 python -m studies gate VTEST.avi GT.txt HALL.mp4 FALLS DETECTOR POSE

Streams are H.264 at 640x360, ten frames a second, with a key frame each second and the noise of a
camera; the other way makes RGB of each frame and detects in it.

cost       core milliseconds a second, decoding included, of an empty street, one person who walks
           a fifth of the time, and five who walk; and of a day with 70, 25 and 5 % of them. Ways
           take turns on parts of five seconds; medians
entrances  people cut out of VTEST walk into its empty median, from edges and a door, in other
           places and sizes: time from when they are whole in the picture until a sure pose
scenes     share of frames in which something moves, and looks a second, in noise, light and weather
lying      share of frames with a sure pose while the last frame of a clip in FALLS is held
"""

from __future__ import annotations

import argparse
import io
import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from stepvad.people import People, extents, iou
from stepvad.video.estimators import TopDown, open_estimator
from stepvad.video.following import LEAST_CONFIDENCE, Follower, Moment, detect_and_recover
from stepvad.video.gate import Gate, Looks
from stepvad.video.source import Picture
from stepvad.video.watching import Watch

RATE, WIDTH, HEIGHT = 10, 640, 360
ROWS = slice(72, 504)
"""Rows of vtest.avi that are kept: they have a substream's shape."""
SCALE = WIDTH / 768
X264 = {"crf": "26", "g": str(RATE), "bf": "0", "preset": "veryfast", "tune": "zerolatency"}
NOISE = 3.0
PART_S = 5
WALK = 30
"""Frames of a walk."""
DAY = {"empty": 0.70, "one person": 0.25, "five people": 0.05}
EDGES = ("left", "right", "bottom", "top", "door")
HELD_S = 60
Image = NDArray[np.uint8]
Floats = NDArray[np.float32]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("video", "truth", "hall", "falls", "detector", "pose"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--only", choices=["cost", "entrances", "scenes", "lying"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--entrances", type=int, default=100)
    given = parser.parse_args(arguments)
    cv2.setNumThreads(1)
    street = Street(given.video, given.truth)
    estimator = open_estimator(given.detector, given.pose)
    if given.only in (None, "cost"):
        print_cost(estimator, street, given.rounds)
    if given.only in (None, "entrances"):
        print_entrances(estimator, street, given.entrances)
    if given.only in (None, "scenes"):
        hall = np.median([*itertools.islice(pictures(given.hall), 0, None, 5)], axis=0)
        print_scenes({"street": street.empty, "hall": hall.astype(np.uint8)})
    if given.only in (None, "lying"):
        print_lying(estimator, street, sorted(given.falls.glob("**/Fall/*.mp4")))


# streams


def pictures(video: Path) -> Iterator[Image]:
    """The frames of a video, as large as those of a substream, ten a second."""
    with av.open(str(video)) as container:
        due = 0.0
        for frame in container.decode(video=0):
            if frame.time >= due:
                due += 1 / RATE
                image = frame.to_ndarray(format="rgb24")
                image = image[ROWS] if image.shape[0] == 576 else image
                yield cv2.resize(image, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)


def coded(images: Iterable[Image]) -> bytes:
    """The stream of a camera that sees these pictures."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="matroska") as container:
        stream = container.add_stream("libx264", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.options = {**X264, "threads": "1"}
        for image in images:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
    return buffer.getvalue()


def decoded(stream: bytes) -> Iterator[Picture]:
    with av.open(io.BytesIO(stream)) as container:
        container.streams.video[0].codec_context.thread_count = 1
        yield from map(Picture, container.decode(video=0))


class EveryFrame:
    """RGB of each frame, and a look at it."""

    def __init__(self, estimator: TopDown) -> None:
        self._estimator, self._follower = estimator, Follower()

    def people(self, picture: Picture, time_s: float) -> People | None:
        moment = Moment(time_s)
        last = self._follower.last_poses(moment)
        (people,) = detect_and_recover(self._estimator, [picture.rgb()], [last])
        self._follower.update(moment, people)
        return people


class Watched:
    """The way of a camera process."""

    def __init__(self, estimator: TopDown) -> None:
        self._watch = Watch(estimator, RATE)

    def people(self, picture: Picture, time_s: float) -> People | None:
        if not self._watch.asks(picture.luma(), time_s):
            return None
        return self._watch.look(picture.rgb(), time_s, ())


WAYS: dict[str, Callable[[TopDown], EveryFrame | Watched]] = {
    "every frame": EveryFrame,
    "watched": Watched,
}


def sure(people: People | None) -> Floats:
    """Corners `(n, 4)` of the sure poses."""
    if people is None:
        return np.empty((0, 4), np.float32)
    return extents(people.select(people.certain(LEAST_CONFIDENCE)).keypoints)


# a street, and people cut out of it


@dataclass(frozen=True, slots=True)
class Cut:
    """A person cut out: box, colours and opacity `(h, w, 4)`, and where the piece was."""

    box: Floats
    piece: Floats
    at: tuple[int, int]

    @property
    def feet(self) -> Floats:
        return np.array([(self.box[0] + self.box[2]) / 2, self.box[3]])


class Street:
    """The empty street of vtest.avi and the walks of people who are apart from others."""

    def __init__(self, video: Path, truth: Path) -> None:
        self.random = np.random.default_rng(0)
        self.frames = np.stack([*pictures(video)])
        self.empty = np.median(self.frames[::8], axis=0).astype(np.uint8)
        self._noise = self.random.normal(0, NOISE, (32, HEIGHT, WIDTH, 1)).astype(np.float32)
        # boxes (n, 4) in pixels of the kept rows, by frame and person
        rows = np.loadtxt(truth, delimiter=",")
        low = (rows[:, 2:4] - [0, ROWS.start]) * SCALE
        corners = np.concatenate([low, low + rows[:, 4:6] * SCALE], axis=1).astype(np.float32)
        self._boxes: dict[int, dict[int, Floats]] = {}
        for frame, person, box in zip(rows[:, 0], rows[:, 1], corners, strict=True):
            self._boxes.setdefault(int(frame) - 1, {})[int(person)] = box
        # only those who go on
        people = sorted({*rows[:, 1].astype(int).tolist()})
        walks = [walk for person in people for walk in self._walks(person)]
        self.walks = [walk for walk in walks if abs(speed(walk)) > 0.3 * height(walk)]

    def noisy(self, images: Iterable[Image]) -> Iterator[Image]:
        for image in images:
            noise = self._noise[self.random.integers(len(self._noise))]
            yield np.clip(image + noise, 0, 255).astype(np.uint8)

    def _walks(self, person: int) -> Iterator[list[Cut]]:
        """Every `WALK` frames in a row in which a person is whole and apart from others."""
        walk: list[Cut] = []
        for frame in range(len(self.frames)):
            cut = self._cut(person, frame)
            walk = [] if cut is None else [*walk, cut]
            if len(walk) == WALK:
                yield walk
                walk = []

    def _cut(self, person: int, frame: int) -> Cut | None:
        boxes = dict(self._boxes.get(frame, {}))
        box = boxes.pop(person, None)
        if box is None or (box < 4).any() or (box > [WIDTH - 4, HEIGHT - 4] * 2).any():
            return None
        others = np.reshape([around(other) for other in boxes.values()], (-1, 4))
        if len(others) and iou(around(box)[None], others.astype(np.float32)).any():
            return None
        # what differs from the empty street
        left, top, right, bottom = around(box).astype(int).tolist()
        piece = self.frames[frame, top:bottom, left:right].astype(np.float32)
        apart = np.abs(piece - self.empty[top:bottom, left:right]).max(axis=2)
        opaque = ((cv2.blur(apart, (3, 3)) - 12) / 20).clip(0, 1)
        return Cut(box, np.dstack([piece, opaque]), (left, top))


def around(box: Floats) -> Floats:
    """A box with a margin."""
    margin = 0.12 * (box[3] - box[1])
    return np.maximum(box + margin * np.array([-1, -1, 1, 1]), 0).astype(np.float32)


def height(walk: Sequence[Cut]) -> float:
    return float(np.median([cut.box[3] - cut.box[1] for cut in walk]))


def speed(walk: Sequence[Cut]) -> float:
    """Pixels a second to the right."""
    return float(walk[-1].feet[0] - walk[0].feet[0]) * RATE / (len(walk) - 1)


@dataclass(frozen=True, slots=True)
class Entrance:
    """A walk into the empty street."""

    walk: list[Cut]
    scale: float
    start: Floats
    """Feet in the first frame."""
    drift: float = 0.0
    """Pixels a frame, downwards, that are added to the walk."""
    door: int = 0
    """Column from which on the person is seen."""

    def frames(self, empty: Image) -> Iterator[tuple[Image, Floats]]:
        """Pictures, and the box of the person in each."""
        for i, cut in enumerate(self.walk):
            goal = self.start + self.scale * (cut.feet - self.walk[0].feet) + [0, i * self.drift]
            # from pixels of the piece to those of the picture
            move = np.column_stack(
                [self.scale * np.eye(2), goal + self.scale * (cut.at - cut.feet)]
            )
            laid = cv2.warpAffine(cut.piece, move, (WIDTH, HEIGHT))
            opaque = laid[..., 3:] * (np.arange(WIDTH) >= self.door)[:, None]
            picture = empty * (1 - opaque) + laid[..., :3] * opaque
            box = np.tile(goal, 2) + self.scale * (cut.box - np.tile(cut.feet, 2))
            yield picture.astype(np.uint8), box.astype(np.float32)

    def whole(self, boxes: Sequence[Floats]) -> int | None:
        """The first frame in which the whole person is seen, two pixels apart."""
        low, high = np.stack(boxes)[:, :2] + 2, np.stack(boxes)[:, 2:] - 2
        inside = (low >= [self.door, 0]).all(axis=1) & (high <= [WIDTH, HEIGHT]).all(axis=1)
        return int(inside.argmax()) if inside.any() else None


def draw_entrance(street: Street, edge: str) -> Entrance:
    random = street.random
    side = -1 if edge == "right" else 1
    walks = [walk for walk in street.walks if side * speed(walk) > 0]
    walk = walks[random.integers(len(walks))]
    tall = float(random.uniform(40, HEIGHT / 2))
    scale = tall / height(walk)
    half = scale * float(np.median([cut.box[2] - cut.box[0] for cut in walk])) / 2
    x, y = random.uniform([0.2 * WIDTH, tall + 4], [0.8 * WIDTH, HEIGHT - 8]).tolist()
    # feet in the first frame, and drift
    starts = {
        "left": ((-half, y), 0),
        "right": ((WIDTH + half, y), 0),
        "bottom": ((x, HEIGHT + tall), -0.8 * tall / RATE),
        "top": ((x, 0), 0.8 * tall / RATE),
        "door": ((x - half, y), 0),
    }
    start, drift = starts[edge]
    return Entrance(walk, scale, np.array(start), drift, int(x) if edge == "door" else 0)


# what it costs


def print_cost(estimator: TopDown, street: Street, rounds: int) -> None:
    """Print core milliseconds a second of both ways, scene by scene, and of the day."""
    number = (rounds + 1) * PART_S * RATE
    walk = Entrance(max(street.walks, key=height), 1.0, np.array([WIDTH / 2, 0.8 * HEIGHT]))
    steps = [picture for picture, _ in walk.frames(street.empty)][:RATE]
    visit = steps + [steps[-1]] * 4 * RATE + steps[::-1] + [steps[0]] * 4 * RATE
    scenes = {"empty": [street.empty], "one person": visit, "five people": street.frames[480:780]}
    day = dict.fromkeys(WAYS, 0.0)
    print(f"{'core ms a second':18}" + "".join(f"{name:>13}" for name in WAYS) + "   ratio")
    for name, images in scenes.items():
        repeated = itertools.islice(itertools.cycle(images), number)
        spent = in_turns(estimator, coded(street.noisy(repeated)), rounds)
        ratios = [a / b for a, b in zip(*spent.values(), strict=True)]
        means = {way: statistics.median(parts) for way, parts in spent.items()}
        print(
            f"{name:18}"
            + "".join(f"{ms:13.1f}" for ms in means.values())
            + f"   {statistics.median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}]",
            flush=True,
        )
        for way, ms in means.items():
            day[way] += DAY[name] * ms
    print(f"{'a day':18}" + "".join(f"{ms:13.1f}" for ms in day.values()), flush=True)


def in_turns(estimator: TopDown, stream: bytes, rounds: int) -> dict[str, list[float]]:
    """Core milliseconds a second of each way and part; the first part is left out."""
    ways = {name: made(estimator) for name, made in WAYS.items()}
    frames = {name: enumerate(decoded(stream)) for name in WAYS}
    spent: dict[str, list[float]] = {name: [] for name in WAYS}
    for part in range(rounds + 1):
        for name in WAYS if part % 2 else reversed(WAYS):
            began = time.process_time()
            for number, frame in itertools.islice(frames[name], PART_S * RATE):
                ways[name].people(frame, number / RATE)
            if part:
                spent[name].append(1e3 * (time.process_time() - began) / PART_S)
    return spent


# who is seen


def print_entrances(estimator: TopDown, street: Street, number: int) -> None:
    """Print how soon people are seen."""
    delays: dict[str, list[float]] = {name: [] for name in WAYS}
    for i in range(number):
        edge, whole = EDGES[i % len(EDGES)], None
        while whole is None:
            entrance = draw_entrance(street, edge)
            images, boxes = zip(*entrance.frames(street.empty), strict=True)
            whole = entrance.whole(boxes)
        lead = int(street.random.integers(6 * RATE, 11 * RATE))
        frames = [*decoded(coded(street.noisy([*[street.empty] * lead, *images])))]
        for name, made in WAYS.items():
            # who keeps nothing of an empty scene need not watch it
            first = 0 if name == "watched" else lead
            seen = first_seen(made(estimator), frames[first:], boxes)
            delays[name].append((seen - whole) / RATE)
        tall = entrance.scale * height(entrance.walk)
        print(
            f"{i:4} {edge:7}{tall:4.0f} px, whole after {whole / RATE:.1f} s, seen "
            + ", ".join(f"{name} {found[-1]:+.1f} s" for name, found in delays.items()),
            flush=True,
        )
    for name, found in delays.items():
        late = np.array(found)
        print(
            f"{name:13}within 0.5 s {np.sum(late <= 0.5)}, 1 s {np.sum(late <= 1)} of {number}; "
            f"median {np.median(late):+.1f} s, worst {np.max(late):+.1f} s"
        )


def first_seen(
    way: EveryFrame | Watched, frames: Sequence[Picture], boxes: Sequence[Floats]
) -> float:
    """Number of the frame of a walk in which a sure pose is on the person; infinity: none."""
    lead = len(frames) - len(boxes)
    for number, frame in enumerate(frames):
        found = sure(way.people(frame, number / RATE))
        if number >= lead and len(found) and iou(found, boxes[number - lead][None]).max() > 0.2:
            return number - lead
    return np.inf


def print_lying(estimator: TopDown, street: Street, clips: Sequence[Path]) -> None:
    """Print in how many frames of a still picture those who fell are seen."""
    for clip in clips:
        images = [*pictures(clip)]
        held = [images[-1]] * HELD_S * RATE
        stream = coded(itertools.chain(images, street.noisy(held)))
        shares = {}
        for name, made in WAYS.items():
            way, seen = made(estimator), []
            for number, frame in enumerate(decoded(stream)):
                people = way.people(frame, number / RATE)
                seen.append(len(sure(people)) > 0)
            shares[name] = np.mean(seen[len(images) :])
        print(
            f"{clip.parts[-3]}/{clip.name}  while still, seen "
            + ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items()),
            flush=True,
        )


# what moves where nobody is


def print_scenes(places: dict[str, Image]) -> None:
    """Print how often something moves and is looked at."""
    print(f"{'':36}{'moves':>8}{'looks/s':>9}{'ms':>7}")
    for place, empty in places.items():
        grey = cv2.cvtColor(empty, cv2.COLOR_RGB2GRAY).astype(np.float32)
        for name, scene in SCENES.items():
            images = (np.clip(one, 0, 255).astype(np.uint8) for one in scene(grey))
            stream = coded(cv2.cvtColor(one, cv2.COLOR_GRAY2RGB) for one in images)
            print(f"{place + ', ' + name:36}" + asked(decoded(stream)), flush=True)


def asked(frames: Iterable[Picture]) -> str:
    """Share of frames that move, looks a second, and ms of a frame, after four seconds."""
    gate, looks, nobody = Gate(), Looks(), np.empty((0, 4), np.float32)
    rows = []
    for number, frame in enumerate(frames):
        time_s, began = number / RATE, time.process_time()
        moved = gate.moved(frame.luma(), nobody, time_s)
        if due := looks.due(moved, time_s):
            gate.explain(nobody, time_s)
            looks.looked(time_s, 0)
        rows.append((moved, due, time.process_time() - began))
    moves, dues, spent = np.array(rows[4 * RATE :]).T
    return f"{100 * moves.mean():7.1f}%{RATE * dues.mean():9.2f}{1e3 * np.median(spent):7.2f}"


N = 24 * RATE
Lit = Callable[[float], Any]


def lit(empty: Floats, light: Lit = lambda part: 1.0, noise: float = 2) -> Iterator[Floats]:
    """The scene under a light that changes from part 0 to 1 of the time."""
    random = np.random.default_rng(0)
    for i in range(N):
        yield (empty * light(i / N) + random.normal(0, noise, empty.shape)).astype(np.float32)


def cloud(part: float) -> Floats:
    """The shadow of a cloud that passes."""
    return 1 - 0.35 / (1 + np.exp(-((1.6 * part - 0.3) * WIDTH - np.arange(WIDTH)) / 60))


def lamp(part: float) -> Floats:
    """A lamp that lights the right half, on and off."""
    return 1 - 0.5 * (4 * part % 2 >= 1) / (1 + np.exp((WIDTH / 2 - np.arange(WIDTH)) / 20))


def rain(empty: Floats, drops: int) -> Iterator[Floats]:
    random = np.random.default_rng(1)
    for picture in lit(empty, noise=3):
        for x, y, long in random.integers((0, 0, 10), (WIDTH, HEIGHT, 40), (drops, 3)).tolist():
            cv2.line(picture, (x, y), (x - long // 5, y + long), random.uniform(150, 255))
        yield picture


def tree(empty: Floats) -> Iterator[Floats]:
    """A corner of the picture that sways."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    crown = np.clip((x - 0.65 * WIDTH) / 30, 0, 1) * np.clip((0.6 * HEIGHT - y) / 30, 0, 1)
    random = np.random.default_rng(1)
    for i, picture in enumerate(lit(empty)):
        sway = crown * (6 * np.sin(i / 4 + y / 40) + 2 * random.normal())
        yield cv2.remap(picture, (x + sway).astype(np.float32), y, cv2.INTER_LINEAR)


SCENES: dict[str, Callable[[Floats], Iterator[Floats]]] = {
    "noise of 4": partial(lit, noise=4),
    "noise of 10": partial(lit, noise=10),
    "flicker of 5 %": partial(lit, light=lambda part: 1 + 0.05 * np.sin(200 * part)),
    "brightness 0.7 to 1.3": partial(lit, light=lambda part: 0.7 + 0.6 * part),
    "lights on and off": partial(lit, light=lambda part: 0.35 if 4 * part % 2 >= 1 else 1),
    "a lamp on and off": partial(lit, light=lamp),
    "shadow of a cloud": partial(lit, light=cloud),
    "tree in wind": tree,
    "rain, 150 drops": partial(rain, drops=150),
    "rain, 800 drops": partial(rain, drops=800),
}

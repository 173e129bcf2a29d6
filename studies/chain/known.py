"""Footage sets made of known data: GMDCSA24 (falls), AIRTLab (fights) and altered pedestrians."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from stepvad.codec import from_plain
from stepvad.errors import DataError
from stepvad.formats.reading import described, load_json
from stepvad.video.extract import FrameRange
from stepvad.video.source import VideoFile
from studies.chain.footageset import Fold, FootageClip, FootageSet

KnownFootage = Literal["GMDCSA24", "AIRTLab", "vtest"]
ROOMS = {"S2": "S2+S3", "S3": "S2+S3"}
"""Subjects of GMDCSA24 who were filmed in one room; the others have a room each."""
FITTED, CALIBRATED = 350, 500
"""Frames of vtest.avi up to which it is fitted on, and from there calibrated on."""
PIECE = 100
"""Frames of a piece of vtest.avi: ten seconds."""


def open_known(
    data: KnownFootage,
    path: Path,
    *,
    airtlab: Path | None = None,
    every: int = 1,
    seed: int = 0,
) -> FootageSet:
    """The footage set of known data.

    `airtlab` adds normal clips of AIRTLab to what GMDCSA24 is fitted on. `every` takes only the
    acts of AIRTLab whose number it divides. `seed` chooses AIRTLab's acts to fit on.
    """
    match data:
        case "GMDCSA24":
            return gmdcsa24(path, airtlab=airtlab, every=every)
        case "AIRTLab":
            return fights(path, every=every, seed=seed)
        case "vtest":
            return altered_pedestrians(path)
    raise DataError(f"data: expected {', '.join(get_args(KnownFootage))}, got {data!r:.40}")


def gmdcsa24(root: Path, *, airtlab: Path | None = None, every: int = 1) -> FootageSet:
    """Falls in three rooms: each room is tested with a detector that never saw it.

    Of the daily life in other rooms, every second clip is calibrated on and the others fitted on,
    with the non-violent clips of AIRTLab if they are at hand.
    """
    own = {clip.name: clip for clip in _gmdcsa24_clips(root)}
    more = _airtlab_clips(airtlab, "non-violent", every) if airtlab is not None else []
    folds = []
    for room in sorted({clip.group for clip in own.values()}):
        daily = [c.name for c in own.values() if not c.is_abnormal and c.group != room]
        fold = Fold(
            name=room,
            fit=(*(clip.name for clip in more), *daily[1::2]),
            calibrate=tuple(daily[::2]),
            test=tuple(clip.name for clip in own.values() if clip.group == room),
        )
        folds.append(fold)
    note = "fitted on daily life in the other rooms"
    if more:
        note += f" and {len(more)} non-violent clips of AIRTLab"
    clips = {clip.name: clip for clip in (*more, *own.values())}
    return FootageSet(name="GMDCSA24", clips=clips, folds=folds, note=note)


def fights(root: Path, *, every: int = 1, seed: int = 0) -> FootageSet:
    """Fights and hard negatives: half of the non-violent acts are fitted and calibrated on.

    A third of that half calibrates. Both cameras of an act stay together.
    """
    calm, violent = (_airtlab_clips(root, kind, every) for kind in ("non-violent", "violent"))
    acts = sorted({clip.group for clip in calm})
    drawn = [acts[n] for n in np.random.default_rng(seed).permutation(len(acts))]
    half = drawn[: len(drawn) // 2]
    third = max(len(half) // 3, 1)
    calibrated, fitted = {*half[:third]}, {*half[third:]}
    fold = Fold(
        name="all",
        fit=tuple(clip.name for clip in calm if clip.group in fitted),
        calibrate=tuple(clip.name for clip in calm if clip.group in calibrated),
        test=tuple(c.name for c in (*calm, *violent) if c.group not in fitted | calibrated),
    )
    note = f"half of the non-violent acts fitted and calibrated on, seed {seed}"
    if every > 1:
        note += f"; of all acts those whose number {every} divides"
    clips = {clip.name: clip for clip in (*calm, *violent)}
    return FootageSet(name="AIRTLab", clips=clips, folds=[fold], note=note)


def altered_pedestrians(video: Path) -> FootageSet:
    """Pedestrians: the rest of the video is normal; faster and backwards it is not."""
    n_frames = VideoFile(video).n_frames or 0
    if n_frames <= CALIBRATED + PIECE:
        raise DataError(
            f"{video}: expected more than {CALIBRATED + PIECE} frames, got {n_frames}",
            hint="use vtest.avi of OpenCV's documentation",
        )
    learned = {
        "fit": _piece(video, 0, FITTED),
        "calibrate": _piece(video, FITTED, CALIBRATED),
    }
    tested = [
        *_pieces(video, n_frames),
        *_pieces(video, n_frames, speed=2),
        *_pieces(video, n_frames, speed=3),
        *_pieces(video, n_frames, backwards=True),
    ]
    fold = Fold(
        name="all",
        fit=(learned["fit"].name,),
        calibrate=(learned["calibrate"].name,),
        test=tuple(clip.name for clip in tested),
    )
    note = f"fitted on frames 0 to {FITTED - 1}, calibrated on frames up to {CALIBRATED - 1}"
    clips = {clip.name: clip for clip in (*learned.values(), *tested)}
    return FootageSet(name="vtest", clips=clips, folds=[fold], note=note)


def _gmdcsa24_clips(root: Path) -> list[FootageClip]:
    path = root / "labels.json"
    labels = load_json(path)
    if not isinstance(labels, list) or not labels:
        raise DataError(f"{path}: expected a list of clips, got {described(labels)}")
    try:
        return [_gmdcsa24_clip(root, from_plain(_Label, one, "clip")) for one in labels]
    except DataError as error:
        raise error.located(str(path)) from error


@dataclass(frozen=True, slots=True)
class _Label:
    file: str
    intervals: list[tuple[str, float, float]]


def _gmdcsa24_clip(root: Path, own: _Label) -> FootageClip:
    file = Path(own.file)
    if len(file.parts) != 3 or ".." in file.parts:
        raise DataError(f"clip: expected <subject>/<kind>/<clip> as file, got {own.file!r:.60}")
    events = [(begin, end) for name, begin, end in own.intervals if name.startswith("Fall")]
    return FootageClip(
        name="-".join(("GMDCSA24", *file.with_suffix("").parts)),
        path=root / "clips" / file,
        group=ROOMS.get(file.parts[0], file.parts[0]),
        events=tuple(sorted(events)),
    )


def _airtlab_clips(root: Path, kind: str, every: int) -> list[FootageClip]:
    """The clips of one kind in the order of their acts; a label covers the whole clip."""
    files = [path for path in (root / "clips" / kind).glob("*/*.mp4") if path.stem.isdecimal()]
    files = [path for path in files if int(path.stem) % every == 0]
    if not files:
        raise DataError(
            f"{root}: expected clips/{kind}/<camera>/<number>.mp4, got none",
            hint="give the root of AIRTLab, above clips",
        )
    files.sort(key=lambda path: (int(path.stem), path.parent.name))
    return [
        FootageClip(
            name=f"AIRTLab-{kind}-{path.parent.name}-{path.stem}",
            path=path,
            group=f"AIRTLab-{kind}-{path.stem}",
            events="whole" if kind == "violent" else (),
        )
        for path in files
    ]


def _pieces(
    video: Path, n_frames: int, *, speed: int = 1, backwards: bool = False
) -> list[FootageClip]:
    """The frames after those of the calibration, in pieces of ten seconds."""
    step = PIECE * speed
    return [
        _piece(video, first, min(first + step, n_frames), speed=speed, backwards=backwards)
        for first in range(CALIBRATED, n_frames, step)
    ]


def _piece(
    video: Path, first: int, end: int, *, speed: int = 1, backwards: bool = False
) -> FootageClip:
    is_altered = speed > 1 or backwards
    manner = "backwards" if backwards else f"{speed}x"
    return FootageClip(
        name=f"vtest-{manner}-{first}-{end}",
        path=video,
        frames=FrameRange(first, end),
        speed=speed,
        backwards=backwards,
        group=f"from {first}",
        events="whole" if is_altered else (),
    )

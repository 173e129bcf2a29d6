"""Track files scored in bounded memory, by `archive score` or in a function of another engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np

from stepvad import skeletons
from stepvad.archive import scorefile
from stepvad.archive.scorefile import ClipScores, ClipWindows
from stepvad.archive.storage import Directory
from stepvad.config import Runtime
from stepvad.detector import Detector
from stepvad.errors import DataError, StepvadError
from stepvad.formats import tracks
from stepvad.formats.reading import located
from stepvad.formats.tracks import ClipFacts
from stepvad.model import modelfile
from stepvad.model.scoring import BATCH
from stepvad.poses import MAX_COORDINATE, MAX_FRAME, PoseRows
from stepvad.windows.body import Repairs
from stepvad.windows.runs import Sampling, WindowIndex, in_pieces, runs_of

Append = Callable[[ClipScores], object]


def score_files(
    batch: Mapping[str, Iterable[object]],
    *,
    model: str | Path,
    runtime: Runtime = "auto",
    energies: bool = False,
) -> Any:
    """Scores of the track files whose paths or URLs are `batch["path"]`, as an Arrow table.

    For batch functions of Ray Data, Daft and Spark, which name files by a column `path`. A row is a
    window: `path` as given, then the columns of a score file, bit for bit. The model, a file that
    every machine sees, is loaded once per process. Raises `DataError` for a file that cannot be
    scored.
    """
    model = Path(model)
    detector = load_detector(model, modelfile.sha256(model), runtime)
    n_scales = detector.columns if energies else None
    pyarrow = tracks.import_pyarrow(*scorefile.EXTRA)
    none = scorefile.to_table([], n_scales)
    tables = [none.add_column(0, "path", pyarrow.array([], pyarrow.string()))]
    for path in map(str, batch["path"]):
        place = Directory.at(path)
        if place.only is None:
            raise DataError(f"{path}: expected a track file, got none", hint="check the path")
        parts: list[ClipScores] = []
        score_file(place, place.only, detector, parts.append, Tally())
        table = scorefile.to_table(parts, n_scales)
        tables.append(table.add_column(0, "path", pyarrow.repeat(path, len(table))))
    return pyarrow.concat_tables(tables)


@dataclass(slots=True)
class Tally:
    """What was scored so far: clips, repairs, and windows whose joints are all in one place."""

    clips: dict[str, ClipWindows] = field(default_factory=dict)
    counts: Repairs = field(default_factory=Repairs)
    flat: int = 0

    def add_clip(self, clip: str, facts: ClipFacts | None) -> None:
        """Register a clip before its windows are scored."""
        if clip in self.clips:
            raise DataError(
                "expected clips of one camera and date to have distinct names, got it twice",
                hint="rename one of them",
            )
        fps, n_frames = (None, 0) if facts is None else (facts.fps, facts.n_frames)
        self.clips[clip] = ClipWindows(fps, n_frames)


def score_file(
    place: Directory, name: str, detector: Detector, append: Append, tally: Tally
) -> None:
    """Score all clips of a file in bounded memory."""
    seen: set[str] = set()
    shown = place.named(name)
    with (
        place.open(name) as file,
        located(shown),
        tracks.opened(file, threads=False) as (header, parts),
    ):
        for clip, several in groupby(parts, key=lambda part: part[0]):
            tracks.check_new(clip, seen)
            facts = None if header is None else tracks.facts_of(clip, header)
            try:
                tally.add_clip(clip, facts)
                # rows, checked, to runs of consecutive frames, to pieces of windows
                rows = (rows for _, rows in several)
                first = next(rows)
                n_joints = first.confidence.shape[1]
                skeleton = header.skeleton if header else skeletons.of_size(n_joints)
                check = RowCheck(facts)
                checked = map(check, chain([first], rows))
                sampling = Sampling.for_views(detector.view_settings, facts.fps if facts else None)
                runs = runs_of(
                    checked, detector.view_settings, skeleton, detector.skeleton, sampling
                )
                pieces = in_pieces(runs, detector.view_settings, detector.skeleton, sampling)
                _score_clip(clip, pieces, detector, append, tally)
                tally.clips[clip].n_frames = check.n_frames
            except DataError as error:
                raise error.located(f"clip {clip!r}") from error
        # clips that the header lists without poses
        for clip, facts in header.clips.items() if header else ():
            if clip not in seen:
                tally.add_clip(clip, facts)


def _score_clip(
    clip: str,
    pieces: Iterator[tuple[WindowIndex, Repairs]],
    detector: Detector,
    append: Append,
    tally: Tally,
) -> None:
    """Score the windows of a clip piece by piece."""
    for index, mended in pieces:
        tally.counts += mended
        for windows in index.batches(BATCH):
            scores = detector.score_windows(windows)
            append(ClipScores(clip, scores))
            tally.clips[clip].windows += len(scores)
            tally.flat += int(windows.flat.sum())


class RowCheck:
    """Checks that rows are ordered by track and frame and stay inside their clip."""

    def __init__(self, facts: ClipFacts | None) -> None:
        self.n_frames = 0 if facts is None else facts.n_frames
        """Frames of the clip; if unknown, up to its last pose so far."""
        self._is_open = facts is None
        self._last: tuple[int, int] | None = None  # track and frame

    def __call__(self, rows: PoseRows) -> PoseRows:
        """Return the rows unchanged; raise `DataError` if they are not valid tracks."""
        track, frame, keypoints = rows.track, rows.frame, rows.keypoints
        # each row after the one before it, by track and then by frame, (n - 1,)
        later = (np.diff(track) > 0) | ((np.diff(track) == 0) & (np.diff(frame) > 0))
        first = int(track[0]), int(frame[0])
        in_order = bool(later.all()) and (self._last is None or self._last < first)
        sound = keypoints.min() >= -MAX_COORDINATE and keypoints.max() <= MAX_COORDINATE
        if not (in_order and sound and frame.min() >= 0 and frame.max() <= MAX_FRAME):
            rows.tracks()  # raises a specific error, unless the order is wrong
            raise DataError(
                "expected rows sorted by track and frame, got unsorted ones",
                hint="rewrite the file with: stepvad convert",
            )
        # the clip goes on to its last pose so far, or stays within its length
        last = int(frame.max())
        if self._is_open:
            self.n_frames = max(self.n_frames, last + 1)
        elif last >= self.n_frames:
            raise DataError(
                f"expected frames below {self.n_frames}, got {last}",
                hint="frames count from 0; check the clip's length",
            )
        self._last = int(track[-1]), int(frame[-1])
        return rows


@lru_cache(maxsize=1)
def load_detector(model: Path, sha256: str, runtime: Runtime) -> Detector:
    """Load the model, once per process and on one thread."""
    detector = Detector.load(model, runtime=runtime, threads=1)
    if detector.sha256 != sha256:
        raise StepvadError(
            f"{model}: expected the model that the run started with, got another",
            hint="do not change the file during a run, and run again",
        )
    return detector

"""Make the bundled scene of `stepvad watch --demo`, and the model and calibration for it.

People walk; in the first seconds somebody falls, and every half a minute or so again. The same
version of the tools makes the same poses. It takes some minutes: python -m studies demo
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.evaluation.walker_motion import FPS
from stepvad.evaluation.walkers import make_clips
from stepvad.events.calibration import ScoredFootage, calibration_path, write_calibration
from stepvad.events.drift import score_with_stats
from stepvad.events.ledger import by_hour
from stepvad.formats import write_clip
from stepvad.model.modelfile import sha256
from stepvad.poses import Clip, Track
from stepvad.site import demo

SEED = 11
SCENE = 1
"""Of the walkers' cameras, the one that clip number 1 is of."""
CAMERAS, EVENTS = 4, 7
"""Clips take turns over so many cameras and events."""
FALL = 1
STEP = round(FPS / demo.RATE)
TRAINING, CALIBRATION, SECONDS = 120, 300, 12.0
ALERTS_PER_DAY = 24.0


def of_scene(n: int, seed: int, *, falls: bool = False) -> Iterator[Clip]:
    """Clips of the one camera, at the rate of the demo."""
    period = CAMERAS * EVENTS if falls else CAMERAS
    numbers = range(SCENE if not falls else FALL, 10**9, period)
    wanted = {*islice(numbers, n)}
    made = make_clips(max(wanted) + 1, seed=seed, seconds=SECONDS, anomalies=falls)
    for number, (clip, _) in enumerate(made):
        if number in wanted:
            yield slower(clip)


def slower(clip: Clip) -> Clip:
    """Every other frame, with numbers that take little room."""
    tracks = []
    for track in clip.tracks:
        kept = track.frames % STEP == 0
        if kept.sum() > 0:
            tracks.append(
                Track(
                    track.id,
                    track.frames[kept] // STEP,
                    np.round(track.keypoints[kept] * 4) / 4,
                    np.round(track.confidence[kept] * 32) / 32,
                )
            )
    return Clip(clip.name, demo.RATE, clip.n_frames // STEP + 1, tuple(tracks), clip.skeleton)


def joined(clips: list[Clip]) -> Clip:
    """One clip after the other, everybody with an id of their own."""
    tracks: list[Track] = []
    first = 0
    for clip in clips:
        for track in clip.tracks:
            tracks.append(
                Track(len(tracks) + 1, track.frames + first, track.keypoints, track.confidence)
            )
        first += clip.n_frames
    return Clip("demo", demo.RATE, first, tuple(tracks), clips[0].skeleton)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args(arguments)
    training = [*of_scene(TRAINING, SEED)]
    config = Config(
        T=12,
        K=32,
        width=96,
        blocks=2,
        sigma_width=32,
        L=6,
        max_steps=2500,
        batch_size=512,
        learning_rate=1e-3,
        ema_decay=0.99,
    )
    detector = Detector.fit(training, config)
    detector.save(demo.MODEL)
    normal = [*of_scene(CALIBRATION, SEED + 1)]
    # an hour of clips as one entry; statistics of clips that are long enough for blocks
    footage = ScoredFootage()
    footage.score(detector, "demo", normal)
    footage.ledgers["demo"] = [*by_hour(footage.ledgers["demo"])]
    footage.block_stats["demo"] = [score_with_stats(detector, joined(normal[:60]), demo.RATE)[1]]
    calibration = footage.calibrate(sha256(demo.MODEL), alerts_per_day=ALERTS_PER_DAY)
    write_calibration(calibration, calibration_path(demo.MODEL))
    print(f"threshold {calibration.threshold.value:.2f}: {calibration.threshold.words}")
    falls, quiet = of_scene(4, SEED + 2, falls=True), of_scene(8, SEED + 3)
    scene = joined([clip for fall in falls for clip in (fall, *islice(quiet, 1))])
    write_clip(scene, demo.POSES)
    scores = detector.score(scene)
    for at in range(0, scene.n_frames, round(SECONDS * demo.RATE)):
        part = scores.frames[at : at + round(SECONDS * demo.RATE)]
        when = (at + np.nanargmax(part)) / demo.RATE
        print(f"from {at / demo.RATE:6.1f} s: highest {np.nanmax(part):8.2f} at {when:.1f} s")
    for path in (demo.POSES, demo.MODEL, calibration_path(demo.MODEL)):
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")

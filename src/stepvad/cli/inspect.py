"""stepvad inspect: describe a model or pose file."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepvad.cli.calibrated import camera_of
from stepvad.cli.engine import engine_words, load_detector
from stepvad.cli.options import FpsOption
from stepvad.cli.poses import FormatName, FormatOption, read_poses
from stepvad.cli.terminal import AsJson, mended_words, notes_of, print_json, progress_bars
from stepvad.config import Config

if TYPE_CHECKING:
    from stepvad.detector import Detector
    from stepvad.evaluation.baselines import DistanceDetector, Fitted, Method
    from stepvad.formats.contents import PoseSummary

PROFILES = {
    "step": "each window centred and divided by its spread in y",
    "stgnf": "x divided by 856 and y by 480, then centred and divided by the spread in y",
}
METHODS: dict[Method, str] = {
    "step": "STEP: score matching in PC-space",
    "raw-modulated": "raw-modulated: score matching on raw coordinates, STEP's network",
    "raw": "raw: score matching on raw coordinates, plain network",
    "vanilla": "vanilla: score matching in PC-space, plain network",
    "knn": "knn: distance to the nearest training windows",
    "mahalanobis": "mahalanobis: distance to the mean of the training windows",
}
CHANGES = 5
"""Number of changes printed for a drift."""
BLOCKS = {"modulated": "σ-modulated blocks", "vanilla": "plain layers"}


def inspect(
    path: Annotated[Path, typer.Argument(help="A model file, a pose file, or a directory.")],
    *,
    drift: Annotated[
        Path | None,
        typer.Option(help="Recent normal footage, to test for drift since the calibration."),
    ] = None,
    fps: FpsOption = None,
    format: FormatOption = "auto",
    as_json: AsJson = False,
) -> None:
    """Show what a file contains: a model's settings and origin, or the people in pose files.

    The file name decides which:

        stepvad inspect model.safetensors

        stepvad inspect poses/

    Check whether a calibration still fits the footage of the last minutes or hours:

        stepvad inspect model.safetensors --drift today/door
    """
    if drift is not None:
        _inspect_drift(path, drift, format, fps, as_json=as_json)
        return
    if path.suffix == ".safetensors":
        from stepvad.evaluation import baselines
        from stepvad.model import modelfile

        fitted = baselines.load(path)
        method = baselines.method_of(fitted)
        facts = _model_facts(fitted, method, modelfile.sha256(path), modelfile.FORMAT)
        sentences = _model_sentences(fitted, method)
    else:
        from stepvad.formats.contents import PoseSummary

        with progress_bars() as report:
            found = PoseSummary.of(read_poses([path], format, report))
        facts, sentences = asdict(found), _pose_sentences(found)
    if as_json:
        print_json(facts)
        return
    for sentence in sentences:
        typer.echo(sentence)
    if path.suffix == ".safetensors":
        typer.echo(f"File          format {facts['format']}, sha256 {facts['sha256']}")


def _inspect_drift(
    model: Path, recent: Path, format: FormatName, fps: float | None, *, as_json: bool
) -> None:
    from stepvad.calibration import beside
    from stepvad.calibration.footage import ScoredFootage, check_drift

    with notes_of("stepvad.calibration"):
        calibration = beside.needed(model)
    footage, camera = ScoredFootage(load_detector(model)), camera_of(recent)
    with progress_bars() as report:
        clips = read_poses([recent], format, report, fps=fps)
        footage.add(camera, clips, fps=fps, report=report)
    checked = check_drift(calibration, camera, footage)
    found = checked.drift
    if as_json:
        print_json(
            {"p": found.p, "changed": found.is_real, "changes": [*map(asdict, found.changes)]}
        )
        return
    verdict = "changed: calibrate again" if found.is_real else "no change beyond chance"
    whose = f"{checked.blocks_before} blocks of " + (
        f"camera {camera}" if checked.has_own else "all cameras"
    )
    typer.echo(f"{verdict} (p = {found.p:.2g}; {whose}, {checked.blocks_now} now)")
    for change in found.changes[: CHANGES if found.is_real else 0]:
        typer.echo(f"  {change.name}: {change.before:.3g} before, {change.now:.3g} now")


def _model_facts(fitted: Fitted, method: Method, sha256: str, format_number: int) -> dict[str, Any]:
    from stepvad.detector import Detector

    facts: dict[str, Any] = {
        "format": format_number,
        "sha256": sha256,
        "method": method,
        "config": fitted.config.facts(),
        "skeleton": asdict(fitted.skeleton),
        "origin": asdict(fitted.origin),
    }
    if isinstance(fitted, Detector):
        facts["runtime"] = fitted.network.engine
        facts["E_mean"], facts["E_var"] = fitted.model.E_mean.tolist(), fitted.model.E_var.tolist()
    elif fitted.neighbours is not None:
        facts["k"] = fitted.neighbours.k
    return facts


def _model_sentences(fitted: Fitted, method: Method) -> list[str]:
    from stepvad.detector import Detector
    from stepvad.windows import view_shape

    config, origin, skeleton = fitted.config, fitted.origin, fitted.skeleton
    weighs = "weighs loss and score" if isinstance(fitted, Detector) else "weighs the score"
    return [
        f"Method        {METHODS[method]}",
        f"Windows       {config.T} frames of {skeleton.V} joints ({skeleton.name}), "
        f"{_rate(config)}; "
        f"profile {config.profile}: {PROFILES[config.profile]}",
        *_views(config),
        f"Projection    {_projection(config, math.prod(view_shape(config, skeleton.V)))}",
        *(_energy_sentences(fitted) if isinstance(fitted, Detector) else _distance(fitted)),
        f"Confidence    {weighs if config.confidence else 'is ignored'}",
        f"Data          {origin.windows:,} windows from {origin.counts.poses:,} poses of "
        f"{origin.clips} clips, sha256 {origin.data_sha256}",
        f"Repaired      {', '.join(mended_words(origin.counts)) or 'nothing'}",
        f"Made by       stepvad {origin.library}",
    ]


def _views(config: Config) -> list[str]:
    """The views of a model with several; what follows is of the first."""
    each = ", ".join(view.view_name for view in config.views)
    return [f"Views         {each}; below, the first"] if each else []


def _rate(config: Config) -> str:
    if config.fps is None:
        return "at an unknown or mixed frame rate"
    seconds = (config.T - 1) / config.fps
    other = "resampled" if config.clock else "taken frame by frame"
    return f"{seconds:.2g} s at {config.fps:g} per second; footage of another rate is {other}"


def _projection(config: Config, numbers: int) -> str:
    whitened = "whitened" if config.whiten else "not whitened"
    if config.projection == "raw":
        return f"none: all {numbers} coordinates"
    return f"{config.K} of {numbers} principal components, {whitened}"


def _distance(fitted: DistanceDetector) -> list[str]:
    if fitted.neighbours is None:
        return []
    points, k = len(fitted.neighbours.points), fitted.neighbours.k
    return [f"Neighbours    {k} of {points:,}" + (", their mean distance" if k > 1 else "")]


def _energy_sentences(detector: Detector) -> list[str]:
    config = detector.config
    parameters = sum(weight.size for weight in detector.model.weights.values())
    length = f"{config.epochs} epochs"
    if config.max_steps is not None:
        length = f"{config.max_steps:,} steps"
    return [
        f"Energy        {config.blocks} {BLOCKS[config.network]} of width {config.width}, "
        f"{parameters:,} parameters",
        f"Noise         {config.L} scales from {config.sigma_low:g} to {config.sigma_high:g}, "
        f"aggregation {config.aggregation}",
        f"Training      {length} asked, {detector.origin.epochs} epochs begun, batches of "
        f"{config.batch_size}, rate {config.learning_rate:g}, seed {config.seed}",
        f"Runtime       {engine_words(detector)}",
    ]


def _pose_sentences(found: PoseSummary) -> list[str]:
    people = found.poses / max(found.frames_with_people, 1)
    rates = ", ".join(f"{fps:g}" for fps in found.fps) or "unknown"
    return [
        f"Clips         {found.clips:,}, {found.frames:,} frames, frame rate {rates}",
        f"People        {found.tracks:,} tracks, {found.poses:,} poses, {people:.1f} per frame "
        f"with people ({found.frames_with_people:,} frames)",
        f"Tracks        {found.poses / max(found.tracks, 1):.0f} poses on average, "
        f"{found.longest_track:,} at most",
        f"Skeleton      {', '.join(found.skeletons)}",
        f"Confidence    {found.mean_confidence:.2f} on average, {found.nan_confidences:,} missing",
    ]

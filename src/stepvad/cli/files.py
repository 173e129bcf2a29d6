"""stepvad convert, inspect and export: pose and model files, and what a site holds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, echo

import stepvad
from stepvad.cli import options, terminal
from stepvad.config import Config, Method
from stepvad.errors import StepvadError

if TYPE_CHECKING:
    from stepvad.evaluation.baselines import Fitted
    from stepvad.formats import PoseSummary

METHODS: dict[Method, str] = {
    "step": "STEP: score matching in PC-space",
    "usual": "usual: distance to the nearest usual motion",
    "raw-modulated": "raw-modulated: score matching on raw coordinates, STEP's network",
    "raw": "raw: score matching on raw coordinates, plain network",
    "vanilla": "vanilla: score matching in PC-space, plain network",
    "knn": "knn: distance to the nearest training windows",
    "mahalanobis": "mahalanobis: distance to the mean of the training windows",
}
BLOCKS = {"modulated": "σ-modulated blocks", "vanilla": "plain layers"}


def convert(
    source: Annotated[Path, Argument(help="Pose file, or a directory of pose files.")],
    target: Annotated[
        Path, Argument(help="A .parquet file, a .json file for one clip, or a directory.")
    ],
    *,
    format: options.FormatOption = "auto",
    fps: options.FpsOption = None,
    as_json: options.AsJson = False,
) -> None:
    """Convert pose files, usually to Parquet tracks: small, fast, readable by any Parquet tool.

    Many clips to one file, one clip to AlphaPose's format, one file per clip:

        stepvad convert PoseLift/pose/train train.parquet --fps 15

        stepvad convert clip.parquet clip.json

        stepvad convert train.parquet clips/
    """
    if target.suffix.lower() not in ("", ".json", ".parquet"):
        raise StepvadError(
            f"{target}: expected a name that ends in .parquet or .json, or a directory, "
            f"got {target.suffix}",
            hint="choose the suffix of the layout to write",
        )
    counts = {"clips": 0, "poses": 0}

    def counted(clips: Iterator[stepvad.Clip]) -> Iterator[stepvad.Clip]:
        for clip in clips:
            counts["clips"] += 1
            counts["poses"] += clip.n_poses
            yield clip

    with terminal.progress_bars() as report:
        clips = options.read_poses([source], format, report, fps=fps, distinct=True)
        _write(counted(clips), target)
    if as_json:
        terminal.print_json({"target": str(target), **counts})
    else:
        echo(f"{target}: {counts['clips']:,} clips, {counts['poses']:,} poses")


def _write(clips: Iterator[stepvad.Clip], target: Path) -> None:
    from stepvad.formats import write_clip, write_clips

    if target.suffix.lower() != ".json":
        write_clips(clips, target)
        return
    # one .json file holds one clip
    first, *more = clips
    if more:
        raise StepvadError(
            f"{target}: expected one clip for a .json file, got {1 + len(more)}",
            hint="write them to a .parquet file or a directory",
        )
    write_clip(first, target)


def inspect(
    path: Annotated[Path, Argument(help="A model file, a pose file, or a directory.")],
    *,
    fps: options.FpsOption = None,
    format: options.FormatOption = "auto",
    as_json: options.AsJson = False,
) -> None:
    """Show what a file contains, or a site: a model's settings, the people in pose files.

    The name decides which:

        stepvad inspect model.safetensors

        stepvad inspect poses/

    Everything a site stores about people, with sizes:

        stepvad inspect site.toml
    """
    if path.suffix == ".toml" or (path / "events.db").is_file():
        _inspect_site(path, as_json=as_json)
    elif path.suffix == ".safetensors":
        _inspect_model(path, as_json=as_json)
    else:
        from stepvad.formats import PoseSummary

        with terminal.progress_bars() as report:
            found = PoseSummary.from_clips(options.read_poses([path], format, report, fps=fps))
        _print(found, _pose_sentences(found), as_json=as_json)


def _print(facts: object, sentences: list[str], *, as_json: bool) -> None:
    if as_json:
        terminal.print_json(facts)
        return
    for sentence in sentences:
        echo(sentence)


def _inspect_model(path: Path, *, as_json: bool) -> None:
    from stepvad.evaluation import baselines
    from stepvad.model import modelfile

    fitted = baselines.load(path)
    method, sha256 = baselines.method_of(fitted), modelfile.sha256(path)
    facts = _model_facts(fitted, method, sha256, modelfile.FORMAT)
    file = f"File          format {modelfile.FORMAT}, sha256 {sha256}"
    _print(facts, [*_model_sentences(fitted, method), file], as_json=as_json)


def _inspect_site(site: Path, *, as_json: bool) -> None:
    """List everything a site stores about people, with sizes."""
    from stepvad.site.settings.file import data_of
    from stepvad.site.store.events import file_sizes, open_store

    data = data_of(site)
    with open_store(data) as store:
        found = store.stored()
    # the files of the store, and those that it does not know of, such as logs and models
    files = {str(path): size for path, size in (file_sizes(data) | found.files).items()}
    if as_json:
        terminal.print_json({"kept": found.kept, "cameras": found.cameras, "files": files})
        return
    rows = [
        (
            one.what,
            f"{one.count}",
            terminal.local_time(one.first, "minutes"),
            terminal.local_time(one.last, "minutes"),
            f"{one.bytes}",
            one.holds,
        )
        for one in found.kept
    ]
    columns = ("what", "count", "from", "to", "bytes", "holds")
    terminal.print_table(f"Stored in {data}", columns, rows)
    cameras = [(camera, f"{count}") for camera, count in found.cameras.items()]
    terminal.print_table("\nCameras", ("camera", "events"), cameras)
    sizes = [(Path(path).name, f"{size}") for path, size in files.items()]
    terminal.print_table("\nFiles", ("file", "bytes"), sizes)
    echo("\nNo pixels are stored. Joint coordinates can identify people: they are not")
    echo("anonymous, and are deleted after the days in the settings.")


def _model_facts(fitted: Fitted, method: Method, sha256: str, format_number: int) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "format": format_number,
        "sha256": sha256,
        "method": method,
        "config": fitted.config,
        "skeleton": fitted.skeleton,
        "origin": fitted.origin,
    }
    if isinstance(fitted, stepvad.Detector) and method == "usual":
        facts["centroids"] = _centroids(fitted)
    elif isinstance(fitted, stepvad.Detector):
        facts["runtime"] = fitted.network.engine
        facts |= {"E_mean": fitted.model.energy.E_mean, "E_var": fitted.model.energy.E_var}
    elif fitted.neighbours is not None:
        facts["k"] = fitted.neighbours.k
    return facts


def _model_sentences(fitted: Fitted, method: Method) -> list[str]:
    from stepvad.model.usual import FEWEST_TRACKS
    from stepvad.windows.views import view_shape

    config, origin, skeleton = fitted.config, fitted.origin, fitted.skeleton
    numbers = math.prod(view_shape(config, skeleton.V))
    share = config.reference.whitening
    whitened = {0.0: "not whitened", 1.0: "whitened"}.get(share, f"{100 * share:.0f} % whitened")
    projection = f"{config.K} of {numbers} principal components, {whitened}"
    if config.reference.projection == "raw":
        projection = f"none: all {numbers} coordinates"
    # a network, averages of windows, or the training windows themselves
    lines = []
    if isinstance(fitted, stepvad.Detector) and method == "usual":
        numbers_kept = ", ".join(f"{n:,}" for n in _centroids(fitted))
        lines = [f"Centroids     {numbers_kept}, each the mean of at least {FEWEST_TRACKS} tracks"]
    elif isinstance(fitted, stepvad.Detector):
        lines = _energy_sentences(fitted)
    elif fitted.neighbours is not None:
        points, k = len(fitted.neighbours.points), fitted.neighbours.k
        lines = [f"Neighbours    {k} of {points:,}"]
    confidence = "weighs the joints" if config.joints == "weighed" else "is ignored"
    return [
        f"Method        {METHODS[method]}",
        f"Views         {', '.join(view.config.view_name for view in fitted.view_settings)}",
        f"Windows       {config.T} frames of {skeleton.V} joints ({skeleton.name}), "
        f"{_rate(config)}; each centred and divided by its spread in y",
        f"Projection    {projection}",
        *lines,
        f"Confidence    {'weighs the score' if config.confidence else confidence}",
        f"Data          {origin.windows:,} windows from {origin.counts.poses:,} poses of "
        f"{origin.clips} clips, sha256 {origin.data_sha256}",
        f"Repaired      {', '.join(terminal.repair_words(origin.counts)) or 'nothing'}",
        f"Made by       stepvad {origin.library}",
    ]


def _centroids(detector: stepvad.Detector) -> list[int]:
    """Number of centroids of each view."""
    return [len(view.model.centroids) for view in detector.views]


def _rate(config: Config) -> str:
    if config.fps is None:
        return "at an unknown or mixed frame rate"
    seconds = (config.T - 1) / config.fps
    other = "resampled" if config.clock else "taken frame by frame"
    return f"{seconds:.2g} s at {config.fps:g} per second; footage of another rate is {other}"


def _energy_sentences(detector: stepvad.Detector) -> list[str]:
    config = detector.config
    parameters = sum(weight.size for weight in detector.model.energy.weights.values())
    # training ends by steps if they are limited, else by epochs
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
        f"Runtime       {detector.network.engine}, threads: {detector.network.threads}",
    ]


def _pose_sentences(found: PoseSummary) -> list[str]:
    # averages over frames and tracks that have poses
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


def export(
    model: options.ModelFile,
    output: Annotated[Path, Option("-o", "--output", help="The file to write, .onnx.")] = Path(
        "model.onnx"
    ),
    *,
    as_json: options.AsJson = False,
) -> None:
    """Export a model as one graph: windows in pixels and their confidence in, scores out.

    For ONNX Runtime, OpenVINO and other ONNX tools:

        stepvad export model.safetensors -o model.onnx

    The graph is tested on synthetic windows before it is written, and its deviation is printed.
    """
    terminal.check_output(output)
    fitted = options.load_detector(model)
    parity = fitted.export(output)
    if as_json:
        terminal.print_json({"file": str(output), **asdict(parity)})
        return
    terminal.say(f"scores of {parity.windows} windows deviate by {parity.deviation:.1e} at most")
    echo(output)

"""stepvad inspect: what a model or a pose file holds, in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepvad.cli.poses import Format, read_poses
from stepvad.cli.terminal import AsJson, mended_words, print_json, progress_bars

if TYPE_CHECKING:
    from stepvad.modelfile import Model
    from stepvad.poses import Clip

PROFILES = {
    "step": "each window centred and divided by its spread in y",
    "stgnf": "x divided by 856 and y by 480, then centred and divided by the spread in y",
}


def inspect(
    path: Annotated[Path, typer.Argument(help="A model file, a pose file, or a directory.")],
    *,
    format: Format = "auto",
    as_json: AsJson = False,
) -> None:
    """Say what a file holds: a model's settings and origin, or the people in pose files.

    Which of them, its name tells:

        stepvad inspect model.safetensors

        stepvad inspect poses/
    """
    if path.suffix == ".safetensors":
        from stepvad import modelfile

        model = modelfile.read(path)
        facts = _model_facts(model, modelfile.sha256(path), modelfile.FORMAT)
        sentences = _model_sentences(model)
    else:
        with progress_bars() as report:
            facts = _pose_facts(read_poses([path], format, report))
        sentences = _pose_sentences(facts)
    if as_json:
        print_json(facts)
        return
    for sentence in sentences:
        typer.echo(sentence)
    if path.suffix == ".safetensors":
        typer.echo(f"File          format {facts['format']}, sha256 {facts['sha256']}")


def _model_facts(model: Model, sha256: str, format_number: int) -> dict[str, Any]:
    return {
        "format": format_number,
        "sha256": sha256,
        "config": asdict(model.config),
        "skeleton": asdict(model.skeleton),
        "origin": asdict(model.origin),
        "E_mean": model.E_mean.tolist(),
        "E_var": model.E_var.tolist(),
    }


def _model_sentences(model: Model) -> list[str]:
    config, origin, skeleton = model.config, model.origin, model.skeleton
    parameters = sum(weight.size for weight in model.weights.values())
    length = f"{config.epochs} epochs"
    if config.max_steps is not None:
        length = f"{config.max_steps:,} steps"
    return [
        f"Windows       {config.T} frames of {skeleton.V} joints ({skeleton.name}); "
        f"profile {config.profile}: {PROFILES[config.profile]}",
        f"PC-space      {config.K} of {len(model.space.mu)} components, "
        f"{'whitened' if config.whiten else 'not whitened'}",
        f"Energy        {config.blocks} blocks of width {config.width}, {parameters:,} parameters",
        f"Noise         {config.L} scales from {config.sigma_low:g} to {config.sigma_high:g}",
        f"Score         aggregation {config.aggregation}, confidence "
        f"{'weighs loss and score' if config.confidence else 'is ignored'}",
        f"Training      {length} asked, {origin.epochs} epochs begun, batches of "
        f"{config.batch_size}, rate {config.learning_rate:g}, seed {config.seed}",
        f"Data          {origin.windows:,} windows from {origin.counts.poses:,} poses of "
        f"{origin.clips} clips, sha256 {origin.data_sha256}",
        f"Mended        {', '.join(mended_words(origin.counts)) or 'nothing'}",
        f"Made by       stepvad {origin.library}",
    ]


def _pose_facts(clips: Iterable[Clip]) -> dict[str, Any]:
    import numpy as np

    facts: dict[str, Any] = {"clips": 0, "frames": 0, "frames_with_people": 0, "tracks": 0}
    facts |= {"poses": 0, "nan_confidences": 0, "longest_track": 0, "skeletons": [], "fps": []}
    confidence_sum = 0.0
    for clip in clips:
        persons = clip.persons_per_frame()
        facts["clips"] += 1
        facts["frames"] += clip.n_frames
        facts["frames_with_people"] += int((persons > 0).sum())
        facts["tracks"] += len(clip.tracks)
        facts["poses"] += clip.n_poses
        facts["skeletons"] = sorted({*facts["skeletons"], clip.skeleton.name})
        if clip.fps is not None:
            facts["fps"] = sorted({*facts["fps"], clip.fps})
        for track in clip.tracks:
            facts["longest_track"] = max(facts["longest_track"], len(track))
            facts["nan_confidences"] += int(np.isnan(track.confidence).sum())
            confidence_sum += float(np.nan_to_num(track.confidence).mean(axis=1).sum())
    facts["mean_confidence"] = confidence_sum / max(facts["poses"], 1)
    return facts


def _pose_sentences(facts: dict[str, Any]) -> list[str]:
    people = facts["poses"] / max(facts["frames_with_people"], 1)
    rates = ", ".join(f"{fps:g}" for fps in facts["fps"]) or "unknown"
    return [
        f"Clips         {facts['clips']:,}, {facts['frames']:,} frames, frame rate {rates}",
        f"People        {facts['tracks']:,} tracks, {facts['poses']:,} poses, {people:.1f} a frame "
        f"where there are any ({facts['frames_with_people']:,} frames)",
        f"Tracks        {facts['poses'] / max(facts['tracks'], 1):.0f} poses on average, "
        f"{facts['longest_track']:,} at most",
        f"Skeleton      {', '.join(facts['skeletons'])}",
        f"Confidence    {facts['mean_confidence']:.2f} on average, "
        f"{facts['nan_confidences']:,} missing",
    ]

"""The command ``diagnose``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import LandmarkSplit, Levels, app, friendly_errors


@app.command(rich_help_panel="Retrieval")
def diagnose(
    embeddings: Annotated[Path, typer.Option(help="Embeddings of all images: .npy, .safetensors or .parquet.")],
    baseline: Annotated[
        Path | None,
        typer.Option(help="Embeddings of the same images by another model, to compare decomposability gaps with."),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="Labels of the images, as for hgld evaluate.", show_default="landmark_id of the embeddings"
        ),
    ] = None,
    hierarchy: Levels = None,
    split: LandmarkSplit = None,
    batch_size: Annotated[int, typer.Option(min=2, help="Number of images per batch.")] = 256,
    per_class: Annotated[int, typer.Option(min=2, help="Number of images of each class in a batch.")] = 4,
    max_batches: Annotated[
        int | None, typer.Option(min=1, help="Largest number of batches.", show_default="those of an epoch")
    ] = None,
    metric: Annotated[str, typer.Option(help="Metric of the decomposability gap, as for hgld evaluate.")] = "AP",
    tau: Annotated[
        list[float] | None,
        typer.Option(help="Temperature of the sigmoid; may be repeated.", show_default="0.001, 0.01 and 0.1"),
    ] = None,
    alpha: Annotated[float, typer.Option(help="Score that L_DG wants positives above (Eqs. 7 and 27).")] = 0.9,
    beta: Annotated[float, typer.Option(help="Score that L_DG wants negatives below (Eqs. 7 and 27).")] = 0.6,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the batches.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Diagnose embeddings in batches: decomposability gap and its bounds, errors and gradients of rank surrogates.

    Example: hgld diagnose --embeddings roadmap.parquet --baseline sup_ap.parquet --labels manifest.parquet
    """
    with friendly_errors(temperatures="--tau", metrics="--metric"):
        from hgld.cli.summaries.diagnosis import format_diagnosis
        from hgld.evaluation import EvaluationFiles
        from hgld.losses.diagnosis import DiagnosisConfig, diagnose_files, diagnosis_to_json

        config = DiagnosisConfig(
            batch_size=batch_size,
            per_class=per_class,
            max_batches=max_batches,
            metric=metric,
            temperatures=tuple(tau) if tau else DiagnosisConfig.temperatures,
            alpha=alpha,
            beta=beta,
            seed=seed,
        )
        files = EvaluationFiles(embeddings, labels=labels, hierarchy=hierarchy, split=split)
        diagnosis, baseline_diagnosis = diagnose_files(files, baseline, config)
        if json:
            typer.echo(diagnosis_to_json(diagnosis, baseline_diagnosis, config))
        else:
            typer.echo(format_diagnosis(diagnosis, baseline_diagnosis, config))

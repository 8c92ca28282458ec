"""``hgld diagnose``: how well batches and rank surrogates stand for a metric."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.base import Json, LandmarkSplit, Levels, app, friendly_errors
from hgld.cli.render import WIDTH, lines, percent, wrapped_table

if TYPE_CHECKING:
    from hgld.losses.diagnosis import Diagnosis, DiagnosisConfig

_NOTES = (
    "gap: whole set - batches (Eq. 6). The bounds, for AP only, are of batches - whole set, for batches with an AP "
    "of 1, without L_DG (Eq. 26) and with it (Eq. 27).",
    "AP error: mean over queries of |AP with the step - AP|. Gradient: share of score differences at which the slope "
    "of the step is above 0.005: of all, of those of a positive and a negative, and of those whose negative is "
    "ranked before the positive.",
)


@app.command(rich_help_panel="Retrieval")
def diagnose(
    embeddings: Annotated[Path, typer.Option()],
    baseline: Path | None = None,
    labels: Path | None = None,
    hierarchy: Levels = None,
    split: LandmarkSplit = None,
    batch_size: Annotated[int, typer.Option(min=2)] = 256,
    per_class: Annotated[int, typer.Option(min=2)] = 4,
    max_batches: Annotated[int | None, typer.Option(min=1)] = None,
    metric: str = "AP",
    tau: list[float] | None = None,
    alpha: float = 0.9,
    beta: float = 0.6,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    json: Json = False,
) -> None:
    """Diagnose embeddings in batches: decomposability gap and its bounds, errors and gradients of rank surrogates.

    Example: hgld diagnose --embeddings roadmap.parquet --baseline sup_ap.parquet --labels manifest.parquet

    Args:
        embeddings: Embeddings of all images: .npy, .safetensors or .parquet.
        baseline: Embeddings of the same images by another model, to compare decomposability gaps with.
        labels: Labels of the images, as for hgld evaluate. Default: landmark_id of the embeddings.
        batch_size: Number of images per batch.
        per_class: Number of images of each class in a batch.
        max_batches: Largest number of batches. Default: those of an epoch.
        metric: Metric of the decomposability gap, as for hgld evaluate.
        tau: Temperature of the sigmoid; may be repeated. Default: 0.001, 0.01 and 0.1.
        alpha: Score that L_DG wants positives above (Eqs. 7 and 27).
        beta: Score that L_DG wants negatives below (Eqs. 7 and 27).
        seed: Seed of the batches.
    """
    from hgld.evaluation import EvaluationFiles
    from hgld.losses.diagnosis import DiagnosisConfig, diagnose_files, diagnosis_to_json

    with friendly_errors(temperatures="--tau", metrics="--metric"):
        temperatures = tuple(tau) if tau else DiagnosisConfig.temperatures
        config = DiagnosisConfig(batch_size, per_class, max_batches, metric, temperatures, alpha, beta, seed)
        files = EvaluationFiles(embeddings, labels=labels, hierarchy=hierarchy, split=split)
        diagnosis, of_baseline = diagnose_files(files, baseline, config)
    text = diagnosis_to_json if json else _format_diagnosis
    typer.echo(text(diagnosis, of_baseline, config))


def _format_diagnosis(diagnosis: Diagnosis, baseline: Diagnosis | None, config: DiagnosisConfig) -> str:
    from hgld.losses.diagnosis import relative_decrease

    def gap_row(diagnosis: Diagnosis) -> dict[str, str]:
        gap = diagnosis.gap
        row = {"whole set": gap.whole, "batches": gap.batches, "gap": gap.gap}
        if config.metric == "AP":
            row |= {"bound": diagnosis.bound, "with L_DG": diagnosis.calibrated_bound}
        return {name: percent(value) for name, value in row.items()}

    gaps = [("embeddings", gap_row(diagnosis))]
    decrease = None
    if baseline is not None:
        gaps.append(("baseline", gap_row(baseline)))
        decrease = percent(relative_decrease(baseline, diagnosis))
    steps = [
        (
            name,
            {
                "AP error": percent(step.ap_error),
                "gradient: all": percent(step.pairs),
                "ranked": percent(step.ranked_negatives),
                "wrong": percent(step.wrong_negatives),
            },
        )
        for name, step in diagnosis.steps.items()
    ]
    return lines(
        f"{diagnosis.images:,} images of {diagnosis.classes:,} classes in {diagnosis.batches:,} batches of "
        f"{config.batch_size:,} with {config.per_class} of each class",
        "",
        wrapped_table(f"{config.metric} in %", list(gaps[0][1]), gaps),
        decrease is not None and [f"gap smaller than that of the baseline by {decrease} %", ""],
        wrapped_table("step, in %", list(steps[0][1]), steps),
        *(wrap(note, WIDTH, break_on_hyphens=False) for note in _NOTES),
    )

"""Format the output of ``hgld diagnose``."""

from __future__ import annotations

import math
from textwrap import wrap

from hgld.cli.render import wrapped_table
from hgld.losses.diagnosis import Diagnosis, DiagnosisConfig, relative_decrease

_NOTES = (
    "gap: whole set - batches (Eq. 6). The bounds, for AP only, are of batches - whole set, for batches with an AP "
    "of 1, without L_DG (Eq. 26) and with it (Eq. 27).",
    "AP error: mean over queries of |AP with the step - AP|. Gradient: share of score differences at which the slope "
    "of the step is above 0.005: of all, of those of a positive and a negative, and of those whose negative is "
    "ranked before the positive.",
)


def format_diagnosis(
    diagnosis: Diagnosis, baseline: Diagnosis | None, config: DiagnosisConfig, *, width: int = 80
) -> str:
    """Format a diagnosis as tables in percent, with the gap of a baseline where there is one.

    Args:
        diagnosis: Diagnosis of embeddings.
        baseline: Diagnosis of the embeddings of a baseline in the same batches.
        config: What was diagnosed.
        width: Width of a line.
    """
    title = (
        f"{diagnosis.images:,} images of {diagnosis.classes:,} classes in {diagnosis.batches:,} batches of "
        f"{config.batch_size:,} with {config.per_class} of each class"
    )
    rows = [("embeddings", _gap_row(diagnosis, config))]
    if baseline is not None:
        rows.append(("baseline", _gap_row(baseline, config)))
    gaps = wrapped_table(f"{config.metric} in %", list(rows[0][1]), rows, width=width)
    lines = [title, "", gaps]
    if baseline is not None:
        lines.append(f"gap smaller than that of the baseline by {_percent(relative_decrease(baseline, diagnosis))} %")
        lines.append("")
    steps = [
        (
            name,
            {
                "AP error": _percent(step.ap_error),
                "gradient: all": _percent(step.pairs),
                "ranked": _percent(step.ranked_negatives),
                "wrong": _percent(step.wrong_negatives),
            },
        )
        for name, step in diagnosis.steps.items()
    ]
    lines.append(wrapped_table("step, in %", list(steps[0][1]), steps, width=width))
    lines += [line for note in _NOTES for line in wrap(note, width, break_on_hyphens=False)]
    return "\n".join(lines)


def _gap_row(diagnosis: Diagnosis, config: DiagnosisConfig) -> dict[str, str]:
    """Return the cells of a row; the bounds are those of AP only."""
    row = {
        "whole set": _percent(diagnosis.gap.whole),
        "batches": _percent(diagnosis.gap.batches),
        "gap": _percent(diagnosis.gap.gap),
    }
    if config.metric == "AP":
        row |= {"bound": _percent(diagnosis.bound), "with L_DG": _percent(diagnosis.calibrated_bound)}
    return row


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.2f}"

"""Format the output of ``hgld complete``."""

from __future__ import annotations

from hgld.cli.render import aligned
from hgld.completion.complete import CompleteSummary
from hgld.completion.quality import N_FOLDS, THRESHOLDS, CompletionQuality

_MOST_MISSES = 5


def format_complete(summary: CompleteSummary) -> str:
    """Return the numbers of landmarks and proposals, and the accuracy on labelled landmarks."""
    without = summary.landmarks - summary.proposed
    above = ", ".join(f"{count:,} of {score:g}" for score, count in summary.above.items())
    return "\n".join(
        [
            f"{summary.proposed:,} of {summary.landmarks:,} landmarks without a group have a proposal, from "
            f"{summary.photographs:,} photographs; {without:,} have no photographs",
            f"  with a score of at least: {above}",
            f"scores calibrated on {summary.calibrated_on:,} of {summary.labelled:,} labelled landmarks with "
            f"photographs, {summary.accuracy:.1%} of which find their group without their own photographs",
        ]
    )


def format_completion_quality(quality: CompletionQuality) -> str:
    """Return a table of coverage and accuracy by score, the calibration error and the most frequent mistakes."""
    n = len(quality.score)
    lines = [
        f"{n:,} labelled landmarks with photographs, a {N_FOLDS}th of them hidden at a time",
        *format_accepted(quality),
    ]
    if quality.misses:
        misses = (f"{proposed} for {hidden} ({count:,})" for hidden, proposed, count in quality.misses[:_MOST_MISSES])
        lines.append(f"most frequent mistakes: {', '.join(misses)}")
    return "\n".join(lines)


def format_accepted(quality: CompletionQuality) -> list[str]:
    """Return a table of coverage and accuracy by score, and the calibration error."""
    rows = []
    for accepted in map(quality.accepted, THRESHOLDS):
        cells = [f"{accepted.threshold:g}", f"{accepted.landmarks:,}", f"{accepted.coverage:.1%}"]
        if accepted.landmarks:
            cells += [f"{accepted.score:.1%}", _with_interval(accepted.group), _with_interval(accepted.root)]
        rows.append([*cells, *[""] * (6 - len(cells))])
    group, root = quality.baseline
    rows.append(["always the most frequent", f"{len(quality.score):,}", "100.0%", "", f"{group:.1%}", f"{root:.1%}"])
    return [
        *aligned(["score of at least", "landmarks", "coverage", "mean score", "group right", "root right"], rows),
        f"expected calibration error {quality.calibration_error():.3f}; intervals are 95 %",
    ]


def _with_interval(values: tuple[float, float, float]) -> str:
    share, low, high = values
    return f"{share:.1%} [{low:.1%}, {high:.1%}]"

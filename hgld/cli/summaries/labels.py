"""Format the output of ``hgld clean``, ``embed``, ``cluster`` and ``suggest``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hgld.labels.suggest import LIKELY_SCORE

if TYPE_CHECKING:
    from hgld.figures.label_map import SweepPoint
    from hgld.labels.clean import CleanSummary, SplitSummary
    from hgld.labels.clusters import ClusterSummary
    from hgld.labels.embed import EmbedSummary
    from hgld.labels.suggest import SuggestSummary
    from hgld.labels.suggestion_quality import SuggestionAgreement, SuggestionQuality

_MOST_MISSES = 10


def format_clean(summary: CleanSummary) -> str:
    """Return the landmarks removed and kept by split, and the most frequent labels."""
    splits = [_format_split(split) for split in summary.splits]
    return "\n".join([*splits, f"unique labels in total: {summary.unique_labels:,}"])


def _format_split(summary: SplitSummary) -> str:
    def share(count: int) -> str:
        return f"{count:,} ({count / summary.landmarks:.2%})"

    lines = [
        f"{summary.split}: {summary.landmarks:,} landmarks, {share(summary.labelled)} with a scraped label",
        *(f"  removed, {reason}: {share(count)}" for reason, count in summary.removed.items()),
        f"  kept: {share(summary.kept)}, with {summary.unique_labels:,} unique labels; most frequent:",
        *(f"  {count:>9,}  {label}" for label, count in summary.most_frequent),
    ]
    return "\n".join(lines)


def format_embed(summary: EmbedSummary) -> str:
    """Return the numbers of labels and of texts encoded."""
    return (
        f"{summary.labels:,} labels embedded in {summary.dimension} dimensions with {summary.encoder}; "
        f"{summary.encoded:,} texts encoded in this run"
    )


def format_clusters(summary: ClusterSummary) -> str:
    """Return a table of the clusters."""
    labels = sum(row.labels for row in summary.rows)
    subclusters = sum(row.subclusters for row in summary.rows)
    lines = [
        f"{labels:,} labels in {len(summary.rows)} clusters and {subclusters} sub-clusters",
        "cluster  sub-clusters  labels  landmarks  name",
        *(
            f"{row.cluster:>7}  {row.subclusters:>12}  {row.labels:>6,}  {row.landmarks:>9,}  {row.name}"
            for row in summary.rows
        ),
    ]
    return "\n".join(lines)


def format_sweep(points: Sequence[SweepPoint]) -> str:
    """Return a table of inertia and silhouette by number of clusters."""
    lines = [
        "  k     inertia  silhouette",
        *(f"{p.n_clusters:>3}  {p.inertia:>10.3f}  {p.silhouette:>10.4f}" for p in points),
    ]
    return "\n".join(lines)


def format_suggestions(summary: SuggestSummary) -> str:
    """Return the numbers of labels and landmarks, and of those with a likely group."""
    return (
        f"suggestions for {summary.labels:,} labels of {summary.landmarks:,} landmarks, "
        f"using {summary.decisions:,} decisions\n"
        f"score {LIKELY_SCORE} or more: {summary.likely_labels:,} labels of {summary.likely_landmarks:,} landmarks"
    )


def format_suggestion_quality(quality: SuggestionQuality) -> str:
    """Return the numbers of decided labels, and the agreement of each run."""
    run = quality.runs[0]
    in_group, dropped = (
        f"{int(labels.sum()):,} labels of {int(run.landmarks[labels].sum()):,} landmarks"
        for labels in (~run.outcomes.dropped, run.outcomes.dropped)
    )
    head = f"{in_group} assigned to a group, {dropped} dropped"
    return "\n\n".join([head, *map(_format_agreement, quality.runs)])


def _format_agreement(agreement: SuggestionAgreement) -> str:
    outcomes = agreement.outcomes
    lines = [f"{outcomes.title}:", "  accuracy    top-1        top-3"]
    lines += [f"  {name:<9}{top_1:>8.1%}{top_3:>13.1%}" for name, (top_1, top_3) in agreement.accuracy().items()]
    lines += [
        f"  expected calibration error {outcomes.calibration_error():.3f}",
        "  top-1 score         lower quartile  median  upper quartile  highest",
    ]
    for name, labels in (("label in a group", ~outcomes.dropped), ("dropped label", outcomes.dropped)):
        if labels.any():
            low, median, high, highest = np.quantile(outcomes.score[labels], [0.25, 0.5, 0.75, 1])
            lines.append(f"  {name:<18}{low:>16.2f}{median:>8.2f}{high:>16.2f}{highest:>9.2f}")
    lines.append("  evidence            labels    right  mean score")
    lines += [
        f"  {rung.kind.replace('_', ' '):<18}{rung.labels:>8,}{rung.precision:>9.1%}{rung.mean_score:>12.2f}"
        for rung in agreement.ladder()
    ]
    if agreement.misses:
        lines.append(f"  {len(agreement.misses):,} labels were assigned to another group, most landmarks first:")
        lines += [
            f"  {miss.landmarks:>6,}  {miss.label}: {miss.decided}, not {miss.suggested} ({miss.score:.2f})"
            for miss in agreement.misses[:_MOST_MISSES]
        ]
    return "\n".join(lines)

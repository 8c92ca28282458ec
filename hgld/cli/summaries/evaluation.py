"""Format the output of ``hgld evaluate``, and tables of means for other commands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import wrap

import pandas as pd

from hgld.cli.render import aligned, wrapped_table
from hgld.compute.resampling import Interval
from hgld.evaluation.reports import setting_notes
from hgld.evaluation.results import WITHOUT_POSITIVES, RetrievalResult, metric_names, shown_value

_EXCLUDED_QUERIES = (
    "Means exclude queries without a positive at the metric's level; "
    '"no l1" counts queries without any positive, as l1 is the coarsest level.'
)


def format_evaluation(
    results: Sequence[RetrievalResult],
    *,
    intervals: Sequence[Mapping[str, Interval]] | None = None,
    mean: Mapping[str, float] | None = None,
    width: int = 80,
) -> str:
    """Format tables of means and of counts, and what the numbers depend on in sentences.

    Args:
        results: Results of the parts of a protocol, one or more; they need not have the same metrics.
        intervals: 95 % intervals of each result, shown below the means.
        mean: Mean over the results, shown in a row of its own.
        width: Width of a line; metrics that do not fit continue in a further table.
    """
    rows: list[tuple[str, Mapping[str, str]]] = []
    for index, result in enumerate(results):
        rows.append((result.name, value_cells(result.means)))
        if intervals is not None:
            for end, name in enumerate(("  95 % from", "  to")):
                rows.append((name, value_cells({metric: ends[end] for metric, ends in intervals[index].items()})))
    if mean is not None:
        rows.append(("mean", value_cells(mean)))
    means = wrapped_table("mean in %", metric_names(results), rows, width=width)
    has_levels = any(name.startswith(WITHOUT_POSITIVES) for result in results for name in result.counts)
    excluded = [_EXCLUDED_QUERIES] if has_levels else []
    notes = [
        line for note in (*excluded, *setting_notes(results)) for line in wrap(note, width, break_on_hyphens=False)
    ]
    return "\n".join([means, _counts_table(results, width), *notes])


def format_means(means: Mapping[str, Mapping[str, float]], *, width: int = 80) -> str:
    """Format means in percent as a table.

    Args:
        means: Means by metric, by name of the row; the columns are the metrics of the first row.
        width: Width of a line; metrics that do not fit continue in a further table.
    """
    rows = [(name, value_cells(row)) for name, row in means.items()]
    return wrapped_table("mean in %", list(next(iter(means.values()))), rows, width=width)


def format_label_table(table: pd.DataFrame, *, n: int = 5) -> str:
    """Format the number of labels of each level, their mean AP, and the labels with the lowest.

    Args:
        table: Table of :func:`hgld.inspection.label_table.average_precision_per_label`.
        n: Number of labels shown of each level.
    """
    parts = []
    for (_, level_name), labels in table.groupby(["level", "level_name"], sort=False):
        known = labels.dropna(subset="ap")
        mean = f"mean AP {100 * known['ap'].mean():.2f} %; the lowest:" if len(known) else "none has positives"
        parts.append(f"{level_name}: {len(labels):,} labels, {mean}")
        rows = [
            [row.label, f"{100 * row.ap:.2f}", row.queries, row.gallery_images] for row in known.head(n).itertuples()
        ]
        parts += [f"  {line}" for line in aligned(["label", "AP in %", "queries", "images"], rows)] if rows else []
    return "\n".join(parts)


def _counts_table(results: Sequence[RetrievalResult], width: int) -> str:
    """Format queries, gallery, and by level the queries without a positive of that level or finer."""
    n_levels = max(sum(name.startswith(WITHOUT_POSITIVES) for name in result.counts) for result in results)
    titles = {"queries": "queries", "gallery": "gallery"}
    titles |= {f"{WITHOUT_POSITIVES}_l{level}": f"no l{level}" for level in range(n_levels, 0, -1)}
    rows = [
        (result.name, {title: f"{result.counts[name]:,}" for name, title in titles.items() if name in result.counts})
        for result in results
    ]
    return wrapped_table("count", list(titles.values()), rows, width=width)


def value_cells(values: Mapping[str, float]) -> dict[str, str]:
    """Format values in percent, distances in levels; a dash where no query has the metric."""
    return {name: "–" if math.isnan(value) else f"{shown_value(name, value):.2f}" for name, value in values.items()}

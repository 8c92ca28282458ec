"""Paired comparison of retrieval results of the same queries: who is better than whom, and how sure that is.

The comparison of a metric is one joint bootstrap. Classes are drawn with replacement and with all their queries,
since queries of a class resemble one another, and each draw gives the means of all results at once. Differences of
all pairs of results are divided by their standard errors; the quantile of the largest of them in absolute value
(max-T; Westfall and Young 1993; Romano and Wolf 2005) makes the intervals of all pairs hold together, whichever
result is looked at because it came first. Intervals of ranks follow from the pairs that differ (Mogstad, Romano,
Shaikh and Wilhelm, Inference for Ranks, Review of Economic Studies 91, 2024).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from hgld.compute.resampling import check_resampling, percentile_interval, resample_blocks, resampled_counts
from hgld.errors import ConfigurationError
from hgld.evaluation.results import RetrievalResult, goodness, is_distance, metric_names

Floats = npt.NDArray[np.float64]


def compare(
    results: Sequence[RetrievalResult] | Mapping[str, RetrievalResult],
    reference: str | None = None,
    *,
    metrics: Sequence[str] | None = None,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare results of the same queries, such as those of several models.

    Intervals reflect the choice of the classes that are evaluated on, not of those that models were trained on.

    Args:
        results: Results, by name or under their own names; evaluations of the same images. Queries are drawn with
            all others of their class, in the column ``class`` of ``per_query``; without that column one by one, which
            makes intervals too narrow where queries of a class resemble one another.
        reference: Name of the result that the others are compared with. Default: the best by each metric.
        metrics: Metrics to compare. Default: all that every result has.
        confidence: Confidence of intervals, and of those of a metric together, between 0 and 1.
        n_resamples: Number of bootstrap samples.
        seed: Seed of the bootstrap.

    Returns:
        A row per metric and result, with the columns ``metric``; ``name``; ``mean`` over the queries that have the
        metric, and its interval ``low`` and ``high``; ``rank``, and its interval ``best_rank`` and
        ``worst_rank``; ``reference``; ``difference`` from it, with ``difference_low`` and ``difference_high``; and
        ``p_value`` of that difference, corrected for all pairs of results. Metrics are shares from 0 to 1 or
        distances.

    Raises:
        ConfigurationError: There are no results, no result has one of the names, the results have no metric in
            common that a query has, or ``confidence`` or ``n_resamples`` is out of range.
    """
    check_resampling(confidence, n_resamples)
    named = dict(results) if isinstance(results, Mapping) else {result.name: result for result in results}
    if not named or len(named) < len(results):
        raise ConfigurationError(f"`results` are {len(results)} with {len(named)} names; expected different names")
    if reference is not None and reference not in named:
        raise ConfigurationError(f'no result is called "{reference}"; expected one of {", ".join(named)}')
    known = metric_names(named.values())
    common = [name for name in known if all(name in result.metrics for result in named.values())]
    chosen = common if metrics is None else list(metrics)
    if not chosen or not {*chosen} <= {*common}:
        raise ConfigurationError(f"all results have the metrics {', '.join(common) or 'none'}; choose from these")
    classes = pd.concat([_classes(result) for result in named.values()])
    classes = classes[~classes.index.duplicated()]
    rng = np.random.default_rng(seed)
    rows: list[pd.DataFrame] = []
    for metric in chosen:
        values = pd.DataFrame({name: result.per_query[metric] for name, result in named.items()}, dtype=np.float64)
        if values.isna().all().any():
            if metrics is not None:
                raise ConfigurationError(f"there is a result of which no query has {metric}; choose other metrics")
            continue
        draws = resampled_means(values.to_numpy(), classes.loc[values.index].to_numpy(object), n_resamples, rng)
        means = np.array([result.means[metric] for result in named.values()])
        rows.append(_compare_metric(metric, list(named), means, draws, reference, confidence))
    if not rows:
        raise ConfigurationError("there is no metric that some query of every result has")
    return pd.concat(rows, ignore_index=True)


def _classes(result: RetrievalResult) -> pd.Series[Any]:
    """Return the class of each query, or the query itself where there are no classes."""
    index = result.per_query.index
    classes: pd.Series[Any] = (
        result.per_query["class"] if "class" in result.per_query else pd.Series(index.astype(str), index)
    )
    return classes


def _compare_metric(
    metric: str, names: Sequence[str], means: Floats, draws: Floats, reference: str | None, confidence: float
) -> pd.DataFrame:
    """Return the rows of a metric, from the means of M results and those of B draws of classes, shape (B, M)."""
    better = -1.0 if is_distance(metric) else 1.0
    base = names.index(reference) if reference else int(np.argmax([goodness(metric, mean) for mean in means]))
    first, second = np.triu_indices(len(names), 1)
    differences, drawn = means[first] - means[second], draws[:, first] - draws[:, second]
    errors = drawn.std(axis=0, ddof=1)
    # Equal results differ in no draw.
    errors[errors <= 1e-12] = np.inf
    largest = np.abs((drawn - differences) / errors).max(axis=1, initial=0.0)
    half_widths = np.where(
        np.isinf(errors), 0, np.quantile(largest, confidence) * np.where(np.isinf(errors), 0, errors)
    )
    p_values = (1 + (largest >= np.abs(differences / errors)[:, None]).sum(axis=1)) / (1 + len(draws))
    matrix, widths, ps = np.zeros((3, len(names), len(names)))
    ps += 1
    matrix[first, second], matrix[second, first] = differences, -differences
    for square, flat in ((widths, half_widths), (ps, p_values)):
        square[first, second] = square[second, first] = flat
    is_better = better * matrix > widths  # row beyond column
    is_better &= widths > 0
    low, high = zip(*(percentile_interval(column, confidence) for column in draws.T), strict=True)
    table: pd.DataFrame = pd.DataFrame(
        {
            "metric": metric,
            "name": names,
            "mean": means,
            "low": low,
            "high": high,
            "rank": pd.Series(-better * means).rank(method="min").astype(int),
            "best_rank": 1 + is_better.sum(axis=0),
            "worst_rank": len(names) - is_better.sum(axis=1),
            "reference": names[base],
            "difference": matrix[:, base],
            "difference_low": matrix[:, base] - widths[:, base],
            "difference_high": matrix[:, base] + widths[:, base],
            "p_value": ps[:, base],
        }
    )
    return table


def resampled_means(
    values: Floats, classes: npt.NDArray[np.object_], n_resamples: int, rng: np.random.Generator
) -> Floats:
    """Return the means over the queries of drawn classes, NaN excluded: (n_query, M) -> (n_resamples, M)."""
    names, rows = np.unique(classes.astype(str), return_inverse=True)
    known = ~np.isnan(values)
    totals = np.zeros((len(names), 2 * values.shape[1]))
    np.add.at(totals, rows, np.column_stack([np.where(known, values, 0), known]))
    means = []
    for n_rows in resample_blocks(n_resamples, len(names)):
        times = resampled_counts(np.arange(len(names)), len(names), n_rows, rng)
        sums, counts = np.split(times @ totals, 2, axis=1)
        # Draws without any query that has the metric, of very few, deviate by nothing.
        means.append(np.where(counts > 0, sums / np.maximum(counts, 1), np.nanmean(values, axis=0)))
    return np.concatenate(means)

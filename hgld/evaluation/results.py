"""Results of an evaluation: a value per query and metric, their means and confidence intervals, and their units.

Most metrics are shares from 0 to 1, shown in percent, and higher is better. Distances are levels of a tree,
shown as they are, and lower is better.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from hgld.compute.resampling import Interval, check_resampling, percentile_interval
from hgld.errors import ConfigurationError

#: Metrics in levels, without their cutoff.
DISTANCES = ("mistake_severity", "avg_hdist", "min_hdist")


def is_distance(metric: str) -> bool:
    """Return whether a metric is a number of levels, of which fewer are better, and not a share.

    The name of a test set may come before that of the metric, as in comparisons on several sets.

    >>> is_distance("avg_hdist@5"), is_distance("small avg_hdist@5"), is_distance("H-AP")
    (True, True, False)
    """
    return metric.rpartition(" ")[2].partition("@")[0] in DISTANCES


def shown_value(metric: str, value: float) -> float:
    """Return a value in the unit of tables: levels for a distance, else percent.

    >>> shown_value("mistake_severity", 1.5), shown_value("H-AP", 0.5)
    (1.5, 50.0)
    """
    return value if is_distance(metric) else 100 * value


def goodness(metric: str, value: float) -> float:
    """Return a number that is higher for a better value of the metric; the least for NaN."""
    if math.isnan(value):
        return -math.inf
    return -value if is_distance(metric) else value


def with_unit(metric: str) -> str:
    """Return the name of a metric with its unit, for the axis of a figure.

    >>> with_unit("avg_hdist@5"), with_unit("H-AP")
    ('avg_hdist@5 in levels', 'H-AP in %')
    """
    return f"{metric} in {'levels' if is_distance(metric) else '%'}"


#: Prefix of the counts of queries without positives of a level.
WITHOUT_POSITIVES = "without_positives"


@dataclass(frozen=True, eq=False)
class NearestItems:
    """The nearest gallery items of n queries.

    Args:
        levels: uint8, shape (n,); level of the item that is ranked first.
        cosines: float, shape (n, k), best first; NaN where fewer than k items are ranked.
        positions: int64, shape (n, k), positions in the gallery; -1 where fewer are ranked.
    """

    levels: npt.NDArray[np.uint8]
    cosines: npt.NDArray[np.floating[Any]]
    positions: npt.NDArray[np.int64]

    def take(self, queries: npt.NDArray[np.bool_]) -> NearestItems:
        """Return the items of some of the queries."""
        return NearestItems(self.levels[queries], self.cosines[queries], self.positions[queries])


@dataclass(frozen=True, eq=False, repr=False)
class RetrievalResult:
    """Result of an evaluation.

    Args:
        name: Name of what was evaluated, such as a protocol and its part.
        per_query: Table with a row per query: float64 columns named like the metrics (NaN where a query has no
            positive for the metric), then ``positives_l1``, ..., the number of gallery items of that level or finer,
            and perhaps ``class``, the name of the query's finest class, the first of several. The index ``query``
            holds the ids of the queries, or their positions.
        metrics: Names of the metrics, in the order of tables.
        counts: ``queries``, ``gallery`` (where it is known), and ``without_positives_l1``, ...: the number of queries
            that have no gallery item of that level or finer, which are excluded from means of that level. Of images
            that are excluded: ``images_without_labels``, or ``queries_`` and ``gallery_without_labels``.
        settings: Settings that the numbers depend on, by name: relevance, ties, precision of scores and so on.
        nearest: Nearest gallery items of each query, if they were asked for.
    """

    name: str
    per_query: pd.DataFrame
    metrics: tuple[str, ...]
    counts: dict[str, int]
    settings: dict[str, Any]
    nearest: NearestItems | None = None

    @property
    def means(self) -> dict[str, float]:
        """Mean of each metric over the queries that have it; NaN where none has."""
        return {name: float(self.per_query[name].mean()) for name in self.metrics}

    def intervals(self, confidence: float = 0.95, *, n_resamples: int = 1000, seed: int = 0) -> dict[str, Interval]:
        """Return bootstrap confidence intervals of the means: queries drawn with replacement, percentile method.

        Args:
            confidence: Share of resampled means within an interval, between 0 and 1.
            n_resamples: Number of resamples; all metrics share the same draws.
            seed: Seed of the draws.

        Returns:
            (low, high) by metric; NaN where no query has the metric.

        Raises:
            ConfigurationError: The confidence is not between 0 and 1, or there are no resamples.
        """
        check_resampling(confidence, n_resamples)
        values = self.per_query[list(self.metrics)].to_numpy()
        means = _resampled_means(values, n_resamples, np.random.default_rng(seed))
        return {name: percentile_interval(means[:, i], confidence) for i, name in enumerate(self.metrics)}

    def part(self, name: str, queries: npt.NDArray[np.bool_]) -> RetrievalResult:
        """Return the result of some of the queries, under another name."""
        per_query = self.per_query[queries]
        nearest = None if self.nearest is None else self.nearest.take(queries)
        counts = self.counts | count_queries(per_query)
        return replace(self, name=name, per_query=per_query, counts=counts, nearest=nearest)

    def renamed(self, names: Mapping[str, str]) -> RetrievalResult:
        """Return the result with some metrics under other names."""
        metrics = tuple(names.get(metric, metric) for metric in self.metrics)
        return replace(self, per_query=self.per_query.rename(columns=dict(names)), metrics=metrics)

    def __repr__(self) -> str:
        numbers = " | ".join(f"{name} {shown_value(name, mean):.2f}" for name, mean in self.means.items())
        gallery = f" x {self.counts['gallery']:,}" if "gallery" in self.counts else ""
        return f"{self.name} | {numbers} | {self.counts['queries']:,} queries{gallery}"


def warn_without_positives(name: str, per_query: pd.DataFrame, levels: Iterable[int]) -> None:
    """Warn of levels at which no query has a positive.

    Args:
        name: Name of the result.
        per_query: Its table, see :class:`RetrievalResult`.
        levels: Levels to look at.
    """
    lacking = [str(level) for level in levels if len(per_query) and not per_query[f"positives_l{level}"].any()]
    if lacking:
        warnings.warn(
            f"{name}: none of {len(per_query):,} queries has a positive in the gallery at level "
            f"{', '.join(lacking)}, so metrics of it are NaN",
            stacklevel=2,
        )


def count_queries(per_query: pd.DataFrame) -> dict[str, int]:
    """Count the queries, and those without positives of each level from the columns ``positives_l1``, ..."""
    columns = [column for column in per_query.columns if column.startswith("positives_l")]
    return {"queries": len(per_query)} | {
        f"without_{column}": int((per_query[column] == 0).sum()) for column in columns
    }


def _resampled_means(
    values: npt.NDArray[np.float64], n_resamples: int, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Return the column means of each resample, ignoring NaN: shape (n_resamples, n_metrics)."""
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    n_queries = len(values)
    means = np.empty((n_resamples, values.shape[1]))
    for draw in range(n_resamples):
        times = np.bincount(rng.integers(n_queries, size=n_queries), minlength=n_queries).astype(np.float64)
        n_known = times @ known
        means[draw] = np.where(n_known > 0, times @ filled / np.maximum(n_known, 1), np.nan)
    return means


def metric_names(results: Iterable[RetrievalResult]) -> list[str]:
    """Return the metrics of all results, without repetition, in their order."""
    return list(dict.fromkeys(name for result in results for name in result.metrics))


def select_metrics(wanted: Sequence[str], available: Sequence[str]) -> list[str]:
    """Return those of the wanted metrics that are available.

    Raises:
        ConfigurationError: None of them is.
    """
    columns = [name for name in wanted if name in available]
    if not columns:
        raise ConfigurationError(f"no result has {', '.join(wanted)}; the metrics are {', '.join(available)}")
    return columns


def mark_best(metric: str, means: Sequence[float], best: str, second: str, *, decimals: int = 1) -> list[str]:
    """Format the cells of a column in the unit of its metric, the best and the second in formats of their own.

    Means are compared after rounding: several can be best, and then none is second; a single one is neither.

    Args:
        metric: Metric of the column: shares are shown in percent, distances in levels, of which fewer are better.
        means: Values; the cell of NaN is empty.
        best: Format of the best cells, with ``{}`` for the number.
        second: Format of the second-best cells.
        decimals: Number of decimals.

    >>> mark_best("H-AP", [0.1234, 0.25, math.nan, 0.1], "**{}**", "_{}_")
    ['_12.3_', '**25.0**', '', '10.0']
    """
    shown = [round(shown_value(metric, mean), decimals) for mean in means]
    known = (value for value in shown if not math.isnan(value))
    order = sorted(known, key=lambda value: goodness(metric, value), reverse=True)
    formats = {order[1]: second, order[0]: best} if len(order) > 1 else {}  # the same value twice: both are best
    return ["" if math.isnan(value) else formats.get(value, "{}").format(f"{value:.{decimals}f}") for value in shown]

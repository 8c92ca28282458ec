"""Results of an evaluation: a value per query and metric, their means and confidence intervals."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from hgld.compute.resampling import Interval, check_resampling, percentile_interval
from hgld.evaluation.metric_units import shown_value

#: Prefix of the counts of queries without positives of a level.
WITHOUT_POSITIVES = "without_positives"


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
    """

    name: str
    per_query: pd.DataFrame
    metrics: tuple[str, ...]
    counts: dict[str, int]
    settings: dict[str, Any]

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
        return replace(self, name=name, per_query=per_query, counts=self.counts | count_queries(per_query))

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

"""Statistics of comparisons: means, standard deviations, and confidence intervals of differences between methods.

A value of a split is the mean over its seeds. With several splits, means, standard deviations and differences are
computed from these values.

What an interval covers depends on what varies. On one split, :func:`paired_difference` varies the classes of the
test: the interval is for these trained models and other test classes. Over several random splits,
:func:`difference_over_splits` also covers the choice of the classes to train on.

Results of the same queries, such as the results of several models, are compared with simultaneous intervals of all
pairs (:mod:`hgld.compute.cluster_intervals`), so the result with the best mean may be compared with the other
results. Classes are the independent units, since queries of a class resemble one another. Intervals of ranks follow
from the pairs that differ (Mogstad, Romano, Shaikh and Wilhelm, Inference for Ranks, Review of Economic Studies 91,
2024).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from hgld.arrays import Floats, Integers, Objects
from hgld.benchmark.runs import EvaluatedRun, read_training_record
from hgld.compute.cluster_intervals import PairDifferences, mean_intervals, pair_differences
from hgld.compute.resampling import Interval, check_resampling
from hgld.errors import ConfigurationError
from hgld.evaluation.metric_units import goodness, is_distance, shown_value
from hgld.evaluation.results import RetrievalResult, interval_text, metric_names, within_range


class Difference(NamedTuple):
    """Difference of two means and the ends of its confidence interval.

    All are NaN without queries. The ends are NaN with too few classes, and infinite where a few classes hold most
    queries.
    """

    mean: float
    low: float
    high: float

    def text(self, metric: str) -> str:
        """Return a cell such as ``+0.52 [-0.10, +1.14]``, in points or levels; a dash without queries."""
        if math.isnan(self.mean):
            return "–"
        low, high = shown_value(metric, self.low), shown_value(metric, self.high)
        return f"{shown_value(metric, self.mean):+.2f} {interval_text(low, high, signed=True)}"


def paired_difference(
    values: Floats,
    baseline: Floats,
    classes: Sequence[str] | Objects,
    *,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> Difference:
    """Return the difference of two methods' means over the same queries, with an interval over classes.

    Classes are the independent units: the queries of a landmark resemble one another, so that intervals over single
    queries would be too narrow. Values are averaged over the seeds first; the interval therefore reflects other
    landmarks, not other seeds.

    Args:
        values: Values of the method, float64, shape (n_seeds, n_query).
        baseline: Values of the baseline, float64, shape (n_baseline_seeds, n_query).
        classes: Classes of the queries, shape (n_query,). Queries whose values are NaN are excluded.
        confidence: Confidence level of the interval, between 0 and 1.
        n_resamples: Number of random patterns of signs, see :mod:`hgld.compute.cluster_intervals`.

    Raises:
        ConfigurationError: ``confidence`` is not between 0 and 1, or ``n_resamples`` is less than 1.

    >>> gains = np.array([[0.01, 0.02, 0.03, 0.02, 0.01, 0.02, 0.03]])
    >>> paired_difference(0.5 + gains, np.full((1, 7), 0.5), list("abcdefg"))
    Difference(mean=0.0199..., low=0.0112..., high=0.0287...)
    """
    check_resampling(confidence, n_resamples)
    means = np.column_stack([values.mean(0), baseline.mean(0)])
    is_defined = ~np.isnan(means).any(axis=1)
    if not is_defined.any():
        return Difference(math.nan, math.nan, math.nan)
    numbers = _numbered(np.asarray(classes, object)[is_defined])
    pairs = pair_differences(
        means[is_defined], numbers, confidence=confidence, n_resamples=n_resamples, seed=seed
    )
    return Difference(
        float(pairs.differences[0, 1]), float(pairs.low[0, 1]), float(pairs.high[0, 1])
    )


def _numbered(classes: Objects) -> Integers:
    """Return the number of each class, from 0, in the order of their names."""
    return np.unique(classes.astype(str), return_inverse=True)[1].astype(np.int64)


def difference_over_splits(differences: Sequence[float], *, test_train_ratio: float) -> Difference:
    """Return the mean difference over random splits of the same images, with a corrected t interval of 95 %.

    Runs of one split resemble one another, so that each split gives one difference, of means over its queries and
    seeds. Random splits share classes, so that their differences are correlated, too, and an ordinary t interval is
    too narrow. If their correlation is rho = n_test / (n_test + n_train), the variance of the mean of J differences
    is (1 / J + n_test / n_train) times their sample variance: the corrected resampled t-test of Nadeau and Bengio
    (Inference for the Generalization Error, Machine Learning 52, 2003), with J - 1 degrees of freedom. For
    open-set splits, rho is exact where a difference is the mean of effects of the test classes.

    Args:
        differences: Difference of each of the J splits; at least 2.
        test_train_ratio: Number of test classes divided by the number of training classes; 0 gives the ordinary t
            interval.

    >>> difference_over_splits([0.01, 0.02, 0.03], test_train_ratio=1)
    Difference(mean=0.02, low=-0.029..., high=0.069...)
    """
    n_splits = len(differences)
    mean, variance = float(np.mean(differences)), float(np.var(differences, ddof=1))
    quantile = float(stats.t.ppf(0.975, n_splits - 1))
    half_width = quantile * math.sqrt((1 / n_splits + test_train_ratio) * variance)
    return Difference(mean, mean - half_width, mean + half_width)


@dataclass(frozen=True, eq=False)
class MethodResults:
    """A method and its evaluated runs.

    Args:
        name: Name in the comparison.
        title: Title in tables and figures.
        latex: Title in LaTeX; None to escape ``title``.
        baseline: Whether other methods are compared with this one.
        runs: Evaluated runs; at least one, and of each split as many as of the others.
    """

    name: str
    title: str
    latex: str | None
    baseline: bool
    runs: tuple[EvaluatedRun, ...]

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics of all runs."""
        return tuple(metric_names([run.result for run in self.runs]))

    @cached_property
    def means(self) -> dict[str, float]:
        """Mean of each metric over the runs, from 0 to 1."""
        return means_of(self.runs)

    @cached_property
    def stds(self) -> dict[str, float]:
        """Sample standard deviation of each metric, see :func:`stds_of`."""
        return stds_of(self.runs)

    @cached_property
    def trainings(self) -> tuple[dict[str, Any], ...]:
        """Records of the trainings (:func:`hgld.benchmark.runs.read_training_record`), in the order of ``runs``."""
        return tuple(read_training_record(run) for run in self.runs)


def means_of(runs: Sequence[EvaluatedRun]) -> dict[str, float]:
    """Return the mean of each metric over runs, from 0 to 1."""
    return _by_metric(_run_means(runs).mean(skipna=False))


def stds_of(runs: Sequence[EvaluatedRun]) -> dict[str, float]:
    """Return the sample standard deviation of each metric: over several splits, or over the seeds of one split.

    It is NaN for a single run.
    """
    means = _run_means(runs)
    if len(by_split(runs)) > 1:
        means = means.groupby(level=0).mean()
    return _by_metric(means.std(skipna=False))


def seed_stds(runs: Sequence[EvaluatedRun]) -> dict[str, float]:
    """Return the standard deviation of each metric over the seeds of a split; NaN without several seeds.

    Variances are averaged over the splits.
    """
    variances = _run_means(runs).groupby(level=0, dropna=False).var()
    return _by_metric(variances.mean(skipna=False) ** 0.5)


def _run_means(runs: Sequence[EvaluatedRun]) -> pd.DataFrame:
    """Return the mean of each metric in each run, with the splits as index."""
    means: pd.DataFrame = pd.DataFrame(
        [run.result.means for run in runs], [run.split for run in runs]
    )
    return means


def _by_metric(values: pd.Series[Any]) -> dict[str, float]:
    return {str(metric): float(value) for metric, value in values.items()}


def by_split(runs: Sequence[EvaluatedRun]) -> dict[int | None, list[EvaluatedRun]]:
    """Group runs by split."""
    groups: dict[int | None, list[EvaluatedRun]] = {}
    for run in runs:
        groups.setdefault(run.split, []).append(run)
    return groups


def best_baselines(
    methods: Sequence[MethodResults], metrics: Sequence[str]
) -> dict[str, MethodResults]:
    """Return the baseline with the best mean of each metric, without metrics that no baseline has."""
    best = {}
    for metric in metrics:
        best_value = -math.inf  # the goodness of a missing value
        for method in methods:
            value = goodness(metric, method.means.get(metric, math.nan))
            if method.baseline and value > best_value:
                best[metric], best_value = method, value
    return best


def difference(method: MethodResults, baseline: MethodResults, metric: str) -> Difference:
    """Return the difference of a method from a baseline, with its 95 % confidence interval.

    Means are over the queries that all runs of both methods have on a split. If both have runs of several splits,
    :func:`difference_over_splits` computes the interval; if not, :func:`paired_difference` does, with the finest
    classes of the queries.
    """
    baseline_runs = by_split(baseline.runs)
    pairs = []
    for split, runs in by_split(method.runs).items():
        if split in baseline_runs:
            pairs.append(_paired_values(runs, baseline_runs[split], metric))
    if len(pairs) == 1:
        values, baseline_values, classes = pairs[0]
        return paired_difference(values, baseline_values, classes)
    differences = []
    for values, baseline_values, _ in pairs:
        query_differences = pd.Series(values.mean(0) - baseline_values.mean(0))
        differences.append(float(query_differences.mean()))
    data = method.runs[0].settings.data
    assert data.random_split is not None
    share = data.random_split.test_share
    return difference_over_splits(differences, test_train_ratio=share / (1 - share))


def _paired_values(
    runs: Sequence[EvaluatedRun], baselines: Sequence[EvaluatedRun], metric: str
) -> tuple[Floats, Floats, Objects]:
    """Return values of the method and of the baseline, shape (n_seeds, n_query), and the classes of the queries."""
    all_runs = [*runs, *baselines]
    _check_galleries({str(run.folder): run.result for run in all_runs})
    table = pd.concat([run.result.per_query[metric] for run in all_runs], axis=1, join="inner")
    values = table.to_numpy(np.float64).T
    classes = all_runs[0].result.per_query["class"].loc[table.index].to_numpy(object)
    return values[: len(runs)], values[len(runs) :], classes


def compare(
    results: Sequence[RetrievalResult] | Mapping[str, RetrievalResult],
    reference: str | None = None,
    *,
    metrics: Sequence[str] | None = None,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare results of the same queries, such as the results of several models.

    Intervals reflect the choice of the classes to evaluate on, not of the classes that models were trained on. They
    need as many classes as :func:`hgld.compute.cluster_intervals.smallest_number_of_clusters` says, 6 for 95 %.

    Args:
        results: Results, by name or under their own names; evaluations against the same gallery. Queries that some
            result does not have are excluded from all. Queries of the same class, in the column ``class`` of
            ``per_query``, are not independent; without that column each query is a class of its own, which makes
            intervals too narrow where queries of a class resemble one another.
        reference: Name of the result that the others are compared with. Default: the best by each metric.
        metrics: Metrics to compare. Default: all metrics that every result has.
        confidence: Confidence, between 0 and 1, of each interval of a mean, and of all differences of a metric
            together.
        n_resamples: Number of random patterns of signs, see :mod:`hgld.compute.cluster_intervals`.

    Returns:
        A row per metric and result, with the columns ``metric``; ``name``; ``queries``, the number of queries that
        all results have; ``mean`` over these queries, and its interval ``low`` and ``high``; ``rank``, and its
        interval ``best_rank`` and ``worst_rank``; ``reference``; ``difference`` from it, with ``difference_low`` and
        ``difference_high``; and ``p_value`` of that difference, corrected for all pairs of results. Metrics are
        shares from 0 to 1 or distances. With too few classes the ends of intervals and p-values are NaN, and the
        intervals of ranks hold all ranks; where a few classes hold most queries, ends may be infinite.

    Raises:
        ConfigurationError: There are no results, no result has one of the names, the results have no metric or query
            in common, they were evaluated against galleries of different sizes or name different classes for a
            query, or ``confidence`` or ``n_resamples`` is out of range.
    """
    check_resampling(confidence, n_resamples)
    if isinstance(results, Mapping):
        named = dict(results)
    else:
        named = {result.name: result for result in results}
    if not named or len(named) < len(results):
        raise ConfigurationError(
            f"`results` are {len(results)} with {len(named)} names; expected different names"
        )
    if reference is not None and reference not in named:
        raise ConfigurationError(
            f'no result is called "{reference}"; expected one of {", ".join(named)}'
        )
    common = metric_names(named.values())
    for result in named.values():
        common = [name for name in common if name in result.metrics]
    chosen = common if metrics is None else list(metrics)
    if not chosen or not set(chosen).issubset(common):
        raise ConfigurationError(
            f"all results have the metrics {', '.join(common) or 'none'}; choose from these"
        )
    _check_galleries(named)
    queries = common_queries(named)
    clusters = _numbered(_common_classes(named, queries))
    rows = []
    for metric in chosen:
        columns = {name: result.per_query[metric].loc[queries] for name, result in named.items()}
        values = pd.DataFrame(columns, dtype=np.float64)
        if values.isna().all().any():
            if metrics is not None:
                raise ConfigurationError(
                    f"there is a result of which no query has {metric}; choose other metrics"
                )
            continue
        draws: dict[str, Any] = {"confidence": confidence, "n_resamples": n_resamples, "seed": seed}
        ends = mean_intervals(values.to_numpy(), clusters, **draws)
        intervals = [within_range(metric, float(low), float(high)) for low, high in ends.T]
        pairs = pair_differences(values.to_numpy(), clusters, **draws)
        rows.append(_compare_metric(metric, values, intervals, pairs, reference))
    if not rows:
        raise ConfigurationError("there is no metric that some query of every result has")
    return pd.concat(rows, ignore_index=True)


def common_queries(results: Mapping[str, RetrievalResult]) -> pd.Index[Any]:
    """Return the queries that all results have, in the order of the first result.

    Raises:
        ConfigurationError: The results have no query in common.
    """
    indices = [result.per_query.index for result in results.values()]
    queries = indices[0]
    for index in indices[1:]:
        queries = queries[queries.isin(index)]
    if len(indices[0]) and not len(queries):
        raise ConfigurationError(
            "no query is in all results; expected evaluations of the same images"
        )
    return queries


def _check_galleries(results: Mapping[str, RetrievalResult]) -> None:
    sizes = {}
    for name, result in results.items():
        if "gallery" in result.counts:
            sizes[name] = result.counts["gallery"]
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        raise ConfigurationError(
            f"the results were evaluated against galleries of different sizes ({listed}), in which ranks cannot be "
            "compared; evaluate all of them on the same images"
        )


def _common_classes(results: Mapping[str, RetrievalResult], queries: pd.Index[Any]) -> Objects:
    """Return the class of each query, or the query itself where no result has classes."""
    classes: Objects | None = None
    for name, result in results.items():
        if "class" not in result.per_query:
            continue
        result_classes = result.per_query["class"].loc[queries].to_numpy(object)
        if classes is None:
            classes = result_classes
        differs = classes != result_classes
        if differs.any():
            first = int(np.argmax(differs))
            raise ConfigurationError(
                f'query "{queries[first]}" is of class "{classes[first]}" in a result and of class '
                f'"{result_classes[first]}" in {name}; expected evaluations with the same labels'
            )
    if classes is None:
        return queries.to_numpy(object)
    return classes


def _compare_metric(
    metric: str,
    values: pd.DataFrame,
    intervals: Sequence[Interval],
    pairs: PairDifferences,
    reference: str | None,
) -> pd.DataFrame:
    """Return the rows of a metric, from the values of each result by name, intervals of means, and differences."""
    names = [str(name) for name in values.columns]
    means = values.mean()
    smaller_is_better = is_distance(metric)
    if reference:
        base = names.index(reference)
    else:
        base = int(np.argmax([goodness(metric, mean) for mean in means]))
    # Whether the result of the row is better than that of the column.
    is_better = pairs.high < 0 if smaller_is_better else pairs.low > 0
    table: pd.DataFrame = pd.DataFrame(
        {
            "metric": metric,
            "name": names,
            "queries": len(values),
            "mean": means.to_numpy(),
            "low": [low for low, _ in intervals],
            "high": [high for _, high in intervals],
            "rank": means.rank(method="min", ascending=smaller_is_better).astype(int).to_numpy(),
            "best_rank": 1 + is_better.sum(axis=0),
            "worst_rank": len(names) - is_better.sum(axis=1),
            "reference": names[base],
            "difference": pairs.differences[:, base],
            "difference_low": pairs.low[:, base],
            "difference_high": pairs.high[:, base],
            "p_value": pairs.p_values[:, base],
        }
    )
    return table

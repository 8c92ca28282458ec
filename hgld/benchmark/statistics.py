"""Statistics of comparisons: means, standard deviations, and confidence intervals of differences between methods.

A value of a split is the mean over its seeds. Where there are several splits, means, standard deviations and
differences are those of these values.

What an interval covers depends on what varies. On one split, :func:`paired_difference` resamples the classes of the
test: the interval is for these trained models and other test classes. Over several random splits,
:func:`difference_over_splits` also covers the choice of the classes to train on.

Results of the same queries, such as those of several models, are compared by one joint bootstrap of each metric.
Classes are drawn with replacement and with all their queries, since queries of a class resemble one another, and each
draw gives the means of all results at once. Differences of all pairs of results are divided by their standard errors;
the quantile of the largest of them in absolute value (max-T; Westfall and Young 1993; Romano and Wolf 2005) makes the
intervals of all pairs hold together, so that the result with the best mean may be compared with the others. Intervals
of ranks follow from the pairs that differ (Mogstad, Romano, Shaikh and Wilhelm, Inference for Ranks, Review of
Economic Studies 91, 2024).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from hgld.arrays import Floats
from hgld.benchmark.runs import read_training_record
from hgld.benchmark.worker import EvaluatedRun
from hgld.compute.resampling import check_resampling, percentile_interval, resampled_means
from hgld.errors import ConfigurationError
from hgld.evaluation.results import RetrievalResult, goodness, is_distance, metric_names


class Difference(NamedTuple):
    """Difference of two means and the ends of its confidence interval; NaN without queries."""

    mean: float
    low: float
    high: float


def paired_difference(
    values: Floats,
    baseline: Floats,
    classes: Sequence[str] | npt.NDArray[np.object_],
    *,
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> Difference:
    """Return the difference of two methods' means over the same queries, with a cluster bootstrap interval.

    Whole classes are resampled with all their queries: the queries of a landmark resemble one another, so that
    resampling single queries would give intervals that are too narrow. Values are averaged over the seeds first; the
    interval therefore reflects other landmarks, not other seeds. Its ends are percentiles.

    Args:
        values: Values of the method, float64, shape (n_seeds, n_query).
        baseline: Values of the baseline, float64, shape (n_baseline_seeds, n_query).
        classes: Classes of the queries, shape (n_query,). Queries whose values are NaN are excluded.
        confidence: Confidence level of the interval, between 0 and 1.

    Raises:
        ConfigurationError: ``confidence`` is not between 0 and 1, or ``n_resamples`` is less than 1.

    >>> paired_difference(np.array([[0.5, 0.7, 0.9]]), np.array([[0.5, 0.6, 0.7], [0.5, 0.6, 0.9]]), ["a", "a", "b"])
    Difference(mean=0.066..., low=0.049..., high=0.099...)
    """
    check_resampling(confidence, n_resamples)
    differences = values.mean(0) - baseline.mean(0)
    known = ~np.isnan(differences)
    if not known.any():
        return Difference(math.nan, math.nan, math.nan)
    numbers = np.unique(np.asarray(classes, object)[known].astype(str), return_inverse=True)[1]
    draws = resampled_means(differences[known, None], numbers, n_resamples, np.random.default_rng(seed))
    return Difference(float(differences[known].mean()), *percentile_interval(draws[:, 0], confidence))


def difference_over_splits(
    differences: Sequence[float], *, test_train_ratio: float, confidence: float = 0.95
) -> Difference:
    """Return the mean difference over random splits of the same images, with a corrected t interval.

    Runs of one split resemble one another, so that each split gives one difference, of means over its queries and
    seeds. Random splits share classes, so that their differences are correlated, too, and an ordinary t interval is
    too narrow. If their correlation is rho = n_test / (n_test + n_train), the variance of the mean of J differences
    is (1 / J + n_test / n_train) times their sample variance: the corrected resampled t-test of Nadeau and Bengio
    (Inference for the Generalization Error, Machine Learning 52, 2003), with J - 1 degrees of freedom. For
    open-set splits, rho is exact where a difference is the mean of effects of the test classes.

    Args:
        differences: Difference of each of the J splits; at least 2.
        test_train_ratio: Number of test classes divided by that of training classes; with 0, the ordinary t interval.
        confidence: Confidence level of the interval, between 0 and 1.

    >>> difference_over_splits([0.01, 0.02, 0.03], test_train_ratio=1)
    Difference(mean=0.02, low=-0.029..., high=0.069...)
    """
    n_splits = len(differences)
    mean, variance = float(np.mean(differences)), float(np.var(differences, ddof=1))
    quantile = float(stats.t.ppf((1 + confidence) / 2, n_splits - 1))
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
        return tuple(read_training_record(run.run) for run in self.runs)


def means_of(runs: Sequence[EvaluatedRun]) -> dict[str, float]:
    """Return the mean of each metric over runs, from 0 to 1."""
    return _by_metric(_run_means(runs).mean(skipna=False))


def stds_of(runs: Sequence[EvaluatedRun]) -> dict[str, float]:
    """Return the sample standard deviation of each metric: over splits, or else over seeds; NaN for a single run."""
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
    means: pd.DataFrame = pd.DataFrame([run.result.means for run in runs], [run.run.split for run in runs])
    return means


def _by_metric(values: pd.Series[Any]) -> dict[str, float]:
    return {str(metric): float(value) for metric, value in values.items()}


def by_split(runs: Sequence[EvaluatedRun]) -> dict[int | None, list[EvaluatedRun]]:
    """Group runs by split."""
    groups: dict[int | None, list[EvaluatedRun]] = {}
    for run in runs:
        groups.setdefault(run.run.split, []).append(run)
    return groups


def best_baselines(methods: Sequence[MethodResults], metrics: Sequence[str]) -> dict[str, MethodResults]:
    """Return the baseline with the best mean of each metric, without metrics that no baseline has."""
    best: dict[str, MethodResults] = {}
    for metric in metrics:
        known = [each for each in methods if each.baseline and not math.isnan(each.means.get(metric, math.nan))]
        if known:
            best[metric] = known[int(np.argmax([goodness(metric, each.means[metric]) for each in known]))]
    return best


def difference(method: MethodResults, baseline: MethodResults, metric: str) -> Difference:
    """Return the difference of a method from a baseline, with its 95 % confidence interval.

    Means are over the queries that all runs of both have on a split. The interval is that of
    :func:`~hgld.benchmark.statistics.difference_over_splits` where both have runs of several splits, and else that of
    :func:`~hgld.benchmark.statistics.paired_difference`, with the finest classes of the queries as classes.
    """
    runs, baselines = by_split(method.runs), by_split(baseline.runs)
    splits = [split for split in runs if split in baselines]
    paired = {split: _paired_values(runs[split], baselines[split], metric) for split in splits}
    if len(splits) == 1:
        return paired_difference(*paired[splits[0]])
    differences = [float(pd.Series(values.mean(0) - base.mean(0)).mean()) for values, base, _ in paired.values()]
    data = method.runs[0].run.settings.data
    assert data.random_split is not None
    share = data.random_split.test_share
    return difference_over_splits(differences, test_train_ratio=share / (1 - share))


def _paired_values(
    runs: Sequence[EvaluatedRun], baselines: Sequence[EvaluatedRun], metric: str
) -> tuple[Floats, Floats, npt.NDArray[np.object_]]:
    """Return values of shape (n_seeds, n_query), those of the baseline, and the finest classes of the queries."""
    both = [*runs, *baselines]
    table = pd.concat([run.result.per_query[metric] for run in both], axis=1, join="inner")
    values = table.to_numpy(np.float64).T
    classes = both[0].result.per_query["class"].loc[table.index].to_numpy(object)
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
    """Compare results of the same queries, such as those of several models.

    Intervals reflect the choice of the classes that are evaluated on, not of those that models were trained on.

    Args:
        results: Results, by name or under their own names; evaluations of the same images. Queries are drawn with
            all others of their class, in the column ``class`` of ``per_query``; without that column one by one, which
            makes intervals too narrow where queries of a class resemble one another.
        reference: Name of the result that the others are compared with. Default: the best by each metric.
        metrics: Metrics to compare. Default: all that every result has.
        confidence: Confidence of intervals, and of those of a metric together, between 0 and 1.

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
        numbers = np.unique(classes.loc[values.index].to_numpy(object).astype(str), return_inverse=True)[1]
        draws = resampled_means(values.to_numpy(), numbers, n_resamples, rng)
        # Draws in which no query has the metric, possible where few have it, count as the mean.
        draws = np.where(np.isnan(draws), values.mean().to_numpy(), draws)
        means = np.array([result.means[metric] for result in named.values()])
        rows.append(_compare_metric(metric, list(named), means, draws, reference, confidence))
    if not rows:
        raise ConfigurationError("there is no metric that some query of every result has")
    return pd.concat(rows, ignore_index=True)


def _classes(result: RetrievalResult) -> pd.Series[Any]:
    """Return the class of each query, or the query itself where there are no classes."""
    index = result.per_query.index
    return result.per_query["class"] if "class" in result.per_query else pd.Series(index.astype(str), index)


def _compare_metric(
    metric: str, names: Sequence[str], means: Floats, draws: Floats, reference: str | None, confidence: float
) -> pd.DataFrame:
    """Return the rows of a metric, from the means of M results and those of B draws of classes, shape (B, M)."""
    sign = -1.0 if is_distance(metric) else 1.0
    base = names.index(reference) if reference else int(np.argmax([goodness(metric, mean) for mean in means]))
    differences, half_widths, p_values = _all_pairs(means, draws, confidence)
    # Whether the result of the row is better than that of the column.
    is_better = (sign * differences > half_widths) & (half_widths > 0)
    low, high = zip(*(percentile_interval(column, confidence) for column in draws.T), strict=True)
    table: pd.DataFrame = pd.DataFrame(
        {
            "metric": metric,
            "name": names,
            "mean": means,
            "low": low,
            "high": high,
            "rank": pd.Series(-sign * means).rank(method="min").astype(int),
            "best_rank": 1 + is_better.sum(axis=0),
            "worst_rank": len(names) - is_better.sum(axis=1),
            "reference": names[base],
            "difference": differences[:, base],
            "difference_low": differences[:, base] - half_widths[:, base],
            "difference_high": differences[:, base] + half_widths[:, base],
            "p_value": p_values[:, base],
        }
    )
    return table


def _all_pairs(means: Floats, draws: Floats, confidence: float) -> Floats:
    """Return the differences of all pairs of results, half widths of max-T intervals, and p-values: (3, M, M)."""
    first, second = np.triu_indices(len(means), 1)
    differences, drawn = means[first] - means[second], draws[:, first] - draws[:, second]
    errors = drawn.std(axis=0, ddof=1)
    varies = errors > 1e-12  # equal results differ in no draw
    errors[~varies] = np.inf
    largest = np.abs((drawn - differences) / errors).max(axis=1, initial=0.0)
    half_widths = np.quantile(largest, confidence) * np.where(varies, errors, 0)
    p_values = (1 + (largest >= np.abs(differences / errors)[:, None]).sum(axis=1)) / (1 + len(draws))
    matrices = np.zeros((3, len(means), len(means)))
    matrices[2] = 1
    matrices[:, first, second] = differences, half_widths, p_values
    matrices[:, second, first] = -differences, half_widths, p_values
    return matrices

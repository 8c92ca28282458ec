"""Results of a method: means and standard deviations over its runs, and differences between methods.

A value of a split is the mean over its seeds. Where there are several splits, means, standard deviations and
differences are those of these values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from hgld.benchmark.run_evaluation import EvaluatedRun
from hgld.benchmark.statistics import Difference, difference_over_splits, paired_difference, sample_std
from hgld.benchmark.training_records import TrainingRecord, read_training_record
from hgld.evaluation.results import goodness, metric_names


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
    def trainings(self) -> tuple[TrainingRecord, ...]:
        """Records of the trainings, in the order of ``runs``."""
        return tuple(read_training_record(run.run) for run in self.runs)


def means_of(runs: Sequence[EvaluatedRun]) -> dict[str, float]:
    """Return the mean of each metric over runs, from 0 to 1."""
    return {name: float(np.mean(values)) for name, values in _values(runs).items()}


def stds_of(runs: Sequence[EvaluatedRun]) -> dict[str, float]:
    """Return the sample standard deviation of each metric: over splits, or else over seeds; NaN for a single run."""
    splits = by_split(runs)
    if len(splits) == 1:
        return {name: sample_std(values) for name, values in _values(runs).items()}
    means = [means_of(of_split) for of_split in splits.values()]
    return {name: sample_std([of_split[name] for of_split in means if name in of_split]) for name in means_of(runs)}


def seed_stds(runs: Sequence[EvaluatedRun]) -> dict[str, float]:
    """Return the standard deviation of each metric over the seeds of a split; NaN without several seeds.

    Variances are averaged over the splits.
    """
    stds = [
        {name: sample_std(values) for name, values in _values(of_split).items()}
        for of_split in by_split(runs).values()
    ]
    return {
        name: math.sqrt(np.mean([of_split.get(name, math.nan) ** 2 for of_split in stds])) for name in means_of(runs)
    }


def by_split(runs: Sequence[EvaluatedRun]) -> dict[int | None, list[EvaluatedRun]]:
    """Group runs by split."""
    groups: dict[int | None, list[EvaluatedRun]] = {}
    for run in runs:
        groups.setdefault(run.run.split, []).append(run)
    return groups


def best_baseline(methods: Sequence[MethodResults], metric: str) -> MethodResults | None:
    """Return the baseline with the best mean of a metric; None if no baseline has the metric."""
    known = [method for method in methods if method.baseline and not math.isnan(method.means.get(metric, math.nan))]
    return max(known, key=lambda method: goodness(metric, method.means[metric]), default=None)


def best_baselines(methods: Sequence[MethodResults], metrics: Sequence[str]) -> dict[str, MethodResults]:
    """Return the best baseline of each metric, without metrics that no baseline has."""
    return {metric: best for metric in metrics if (best := best_baseline(methods, metric)) is not None}


def difference(method: MethodResults, baseline: MethodResults, metric: str) -> Difference:
    """Return the difference of a method from a baseline, with its 95 % confidence interval.

    On each split, over the queries that all runs of both have. The interval is that of
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
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.object_]]:
    """Return values of shape (n_seeds, n_query), those of the baseline, and the finest classes of the queries."""
    both = [*runs, *baselines]
    table = pd.concat([run.result.per_query[metric] for run in both], axis=1, join="inner")
    values = table.to_numpy(np.float64).T
    classes = both[0].result.per_query["class"].loc[table.index].to_numpy(object)
    return values[: len(runs)], values[len(runs) :], classes


def _values(runs: Sequence[EvaluatedRun]) -> dict[str, list[float]]:
    """Return the values of each metric, one for each run that has it."""
    means = [run.result.means for run in runs]
    return {
        metric: [run_means[metric] for run_means in means if metric in run_means]
        for metric in metric_names([run.result for run in runs])
    }

"""Results of a method: means and standard deviations over its runs, and differences between methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from hgld.benchmark.run_evaluation import EvaluatedRun
from hgld.benchmark.statistics import Difference, paired_difference, sample_std
from hgld.benchmark.training_records import TrainingRecord, read_training_record
from hgld.evaluation.result_columns import metric_names


@dataclass(frozen=True, eq=False)
class MethodResults:
    """A method and its evaluated runs.

    Args:
        name: Name in the comparison.
        title: Title in tables and figures.
        latex: Title in LaTeX; None to escape ``title``.
        baseline: Whether other methods are compared with this one.
        runs: Evaluated runs in the order of the seeds; at least one.
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
        """Sample standard deviation of each metric over the runs; NaN for a single run."""
        return stds_of(self.runs)

    @cached_property
    def trainings(self) -> tuple[TrainingRecord, ...]:
        """Records of the trainings, in the order of ``runs``."""
        return tuple(read_training_record(run.run) for run in self.runs)


def means_of(runs: Sequence[EvaluatedRun]) -> dict[str, float]:
    """Return the mean of each metric over runs, from 0 to 1."""
    return {name: float(np.mean(values)) for name, values in _values(runs).items()}


def stds_of(runs: Sequence[EvaluatedRun]) -> dict[str, float]:
    """Return the sample standard deviation of each metric over runs; NaN for a single run."""
    return {name: sample_std(values) for name, values in _values(runs).items()}


def best_baseline(methods: Sequence[MethodResults], metric: str) -> MethodResults | None:
    """Return the baseline with the highest mean of a metric; None if no baseline has the metric."""
    known = [method for method in methods if method.baseline and not math.isnan(method.means.get(metric, math.nan))]
    return max(known, key=lambda method: method.means[metric], default=None)


def best_baselines(methods: Sequence[MethodResults], metrics: Sequence[str]) -> dict[str, MethodResults]:
    """Return the best baseline of each metric, without metrics that no baseline has."""
    return {metric: best for metric in metrics if (best := best_baseline(methods, metric)) is not None}


def difference(method: MethodResults, baseline: MethodResults, metric: str) -> Difference:
    """Return the difference of a method from a baseline, over the queries that all runs of both have.

    See :func:`~hgld.benchmark.statistics.paired_difference`; the classes are the landmarks of the queries.
    """
    runs = [*method.runs, *baseline.runs]
    table = pd.concat([run.result.per_query[metric] for run in runs], axis=1, join="inner")
    values = table.to_numpy(np.float64).T
    classes = runs[0].result.per_query["class"].loc[table.index].to_numpy(object)
    return paired_difference(values[: len(method.runs)], values[len(method.runs) :], classes)


def _values(runs: Sequence[EvaluatedRun]) -> dict[str, list[float]]:
    """Return the values of each metric, one for each run that has it."""
    means = [run.result.means for run in runs]
    return {
        metric: [run_means[metric] for run_means in means if metric in run_means]
        for metric in metric_names([run.result for run in runs])
    }

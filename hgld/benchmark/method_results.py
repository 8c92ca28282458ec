"""What was found of each method: means over its runs, how much these differ, and what sets it apart from another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from hgld.benchmark.run_evaluation import EvaluatedRun
from hgld.benchmark.statistics import Difference, paired_difference, spread
from hgld.benchmark.training_jobs import Training, training_of
from hgld.evaluation.report import metrics_of


@dataclass(frozen=True, eq=False)
class MethodResults:
    """A method and its runs that are evaluated.

    Args:
        name: in the comparison.
        title: in tables and pictures.
        latex: the same in LaTeX, where it is more than text.
        baseline: whether it is one of those that the others are compared with.
        runs: in the order of the seeds; one at least.
    """

    name: str
    title: str
    latex: str | None
    baseline: bool
    runs: tuple[EvaluatedRun, ...]

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Those of all runs."""
        return tuple(metrics_of([one.result for one in self.runs]))

    @cached_property
    def means(self) -> dict[str, float]:
        """The mean of each metric over the runs, from 0 to 1."""
        return means_of(self.runs)

    @cached_property
    def spreads(self) -> dict[str, float]:
        """The sample standard deviation of each metric over the runs; NaN of a single run."""
        return spreads_of(self.runs)

    @cached_property
    def trainings(self) -> tuple[Training, ...]:
        """What the trainings of the runs took."""
        return tuple(training_of(one.run) for one in self.runs)


def means_of(runs: Sequence[EvaluatedRun]) -> dict[str, float]:
    """The mean of each metric over runs, from 0 to 1."""
    return {name: float(np.mean(values)) for name, values in _values(runs).items()}


def spreads_of(runs: Sequence[EvaluatedRun]) -> dict[str, float]:
    """The sample standard deviation of each metric over runs; NaN of a single one."""
    return {name: spread(values) for name, values in _values(runs).items()}


def best_baseline(methods: Sequence[MethodResults], metric: str) -> MethodResults | None:
    """The baseline with the highest mean of a metric; None if there are no baselines, or none has it."""
    having = [method for method in methods if method.baseline and not math.isnan(method.means.get(metric, math.nan))]
    return max(having, key=lambda method: method.means[metric], default=None)


def difference(method: MethodResults, baseline: MethodResults, metric: str) -> Difference:
    """How much better a method is than a baseline, over the queries that all runs of both have.

    See :func:`~hgld.benchmark.statistics.paired_difference`; the classes are the landmarks of the queries.
    """
    runs = [*method.runs, *baseline.runs]
    table = pd.concat([one.result.per_query[metric] for one in runs], axis=1, join="inner")
    values = table.to_numpy(np.float64).T
    classes = runs[0].result.per_query["class"].loc[table.index].to_numpy(object)
    return paired_difference(values[: len(method.runs)], values[len(method.runs) :], classes)


def _values(runs: Sequence[EvaluatedRun]) -> dict[str, list[float]]:
    """The mean of each run, by metric."""
    means = [one.result.means for one in runs]
    return {name: [one[name] for one in means if name in one] for name in metrics_of([one.result for one in runs])}

"""The queries that two methods rank most differently, and what stands first for them with each (Fig. 9c, d)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from hgld.errors import ConfigurationError
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.inspection.top_k import Found, query_values, top_k_items


@dataclass(frozen=True, eq=False)
class Side:
    """What one of the methods makes of the n queries.

    Args:
        name: of the method, which is that of its result.
        per_query: their rows of the result's table.
        found: their k nearest items.
    """

    name: str
    per_query: pd.DataFrame
    found: Found


@dataclass(frozen=True, eq=False)
class MethodDifferences:
    """The n queries that differ most in a metric: those that the method ranks better, then those that it ranks worse.

    Args:
        metric: its name.
        level_names: of the L levels, finest first, where they have names.
        n_levels: L.
        queries: int64, shape (n,); their positions, in each part the largest difference first.
        n_better: how many of them are of the first part.
        baseline: what they are for the baseline, and
        method: for the method.
        better: of all queries, how many the method has the higher value for,
        worse: the lower one, and
        equal: the same.
        mean: of the differences over all queries, method less baseline.
    """

    metric: str
    level_names: tuple[str, ...] | None
    n_levels: int
    queries: npt.NDArray[np.int64]
    n_better: int
    baseline: Side
    method: Side
    better: int
    worse: int
    equal: int
    mean: float

    @property
    def differences(self) -> npt.NDArray[np.float64]:
        """Of the queries, method less baseline: float64, shape (n,)."""
        own, other = (side.per_query[self.metric].to_numpy() for side in (self.method, self.baseline))
        differences: npt.NDArray[np.float64] = own - other
        return differences

    def parts(self, most: int | None = None) -> Mapping[str, range]:
        """Headings, and the rows below them: at most so many in each."""
        names = self.method.name, self.baseline.name
        better, worse = range(self.n_better), range(self.n_better, len(self.queries))
        return {
            "{} ranks better than {}".format(*names): better[:most],
            "{} ranks worse than {}".format(*names): worse[:most],
        }

    def __str__(self) -> str:
        n_queries = self.better + self.worse + self.equal
        return (
            f"Of {n_queries:,} queries, {self.method.name} has the higher {self.metric} for {self.better:,} and the "
            f"lower for {self.worse:,}; the mean difference from {self.baseline.name} is {points(self.mean)}."
        )


def find_method_differences(
    results: tuple[RetrievalResult, RetrievalResult],
    tasks: tuple[RetrievalTask, RetrievalTask],
    *,
    metric: str = "H-AP",
    n: int = 12,
    k: int = 10,
    config: RankingConfig | None = None,
) -> MethodDifferences | None:
    """Find the queries that a method ranks most differently from a baseline, in both directions.

    Half of the queries, rounded up, are those that gain most, the others those that lose most; fewer where fewer
    gain or lose. A class of the finest level, such as a landmark, is there once, by its query that differs most:
    otherwise the photographs of one landmark, which are alike, could be all that there is.

    Args:
        results: of the baseline and of the method, named as they are shown, of all queries.
        tasks: what was evaluated: the same images, the embeddings of each.
        metric: one of the results'; queries that do not have it do not count.
        n: how many queries.
        k: how many items for each.
        config: how it was ranked.

    Returns:
        None where no query differs.

    Raises:
        ConfigurationError: a result does not have the metric or is not of these queries, the two are not of the same
            images, the images have no labels, or n or k is less than 1.
    """
    values, others = (query_values(result, task, metric) for result, task in zip(results, tasks, strict=True))
    labels, judgements = tasks[0].query_labels, tasks[0].judgements
    same_queries = results[0].per_query.index.equals(results[1].per_query.index)
    if not same_queries or judgements.n_gallery != tasks[1].judgements.n_gallery:
        raise ConfigurationError(
            f"{results[0].name} and {results[1].name} were not evaluated with the same images; evaluate both again"
        )
    if labels is None:
        raise ConfigurationError("queries are chosen by their landmarks; give a task whose images have labels")
    if n < 1:
        raise ConfigurationError(f"the {n} most different queries are asked for; expected 1 or more")
    differences = others - values
    known = differences[~np.isnan(differences)]
    better, worse = _most_different(differences, labels[:, 0], (n - n // 2, n // 2))
    queries = np.array([*better, *worse], np.int64)
    if not len(queries):
        return None
    baseline, method = (
        Side(result.name, result.per_query.iloc[queries], top_k_items(task, queries, k, config))
        for result, task in zip(results, tasks, strict=True)
    )
    return MethodDifferences(
        metric=metric,
        level_names=tasks[0].level_names,
        n_levels=judgements.n_levels,
        queries=queries,
        n_better=len(better),
        baseline=baseline,
        method=method,
        better=int((known > 0).sum()),
        worse=int((known < 0).sum()),
        equal=int((known == 0).sum()),
        mean=float(known.mean()),
    )


def points(difference: float) -> str:
    """A difference of a metric in percent points, as text.

    >>> points(-0.1234)
    '−12.3 points'
    """
    return f"{100 * difference:+.1f} points".replace("-", "−")


def _most_different(
    differences: npt.NDArray[np.float64], classes: npt.NDArray[np.int64], most: tuple[int, int]
) -> tuple[list[int], list[int]]:
    """At most so many queries with the largest differences above 0, and below; each class once in both together."""
    chosen: tuple[list[int], list[int]] = ([], [])
    seen: set[int] = set()
    for query in np.argsort(-np.abs(differences), kind="stable").tolist():  # NaN last
        below = int(differences[query] < 0)
        if not np.abs(differences[query]) > 0 or sum(map(len, chosen)) == sum(most):
            break
        if classes[query] not in seen and len(chosen[below]) < most[below]:
            chosen[below].append(query)
            seen.add(classes[query])
    return chosen

"""What every evaluation of a trained run has in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pandas as pd

from hgld.benchmark.runs import Run
from hgld.compute.processes import Processes
from hgld.evaluation.results import RetrievalResult
from hgld.progress import Progress


@dataclass(frozen=True)
class EvaluationContext:
    """A run to evaluate, and how.

    Args:
        run: Finished run.
        metrics: Names of metrics; () for those of the papers.
        device: Device of this process.
        processes: Processes that share the images and the queries.
        force: Whether to embed images again that are embedded already.
        progress: Progress in images of this process.
    """

    run: Run
    metrics: tuple[str, ...]
    device: str
    processes: Processes
    force: bool = False
    progress: Progress | None = None


class RunEvaluation(Protocol):
    """A way to evaluate trained models."""

    @property
    def files(self) -> Mapping[str, Path]:
        """Files that it reads besides those of the training, by what they are."""

    @property
    def embedding_sets(self) -> tuple[str, ...]:
        """Names of the sets of images that it embeds; their files are beside the run."""

    def evaluate(self, context: EvaluationContext) -> list[RetrievalResult]:
        """Embed the images with the model of the run and evaluate them; all processes call this together.

        Raises:
            InputError: Images or labels cannot be read.
            ConfigurationError: A metric is unknown.
        """

    def join(self, results: list[RetrievalResult]) -> RetrievalResult:
        """Return the results of :meth:`evaluate` as one, with the column ``class``."""


def evaluation_folder(run: Run) -> Path:
    """Return the folder of a run's evaluation."""
    return run.folder / "evaluation"


def embedding_file(run: Run, name: str) -> Path:
    """Return the file with the embeddings of a set of images."""
    return evaluation_folder(run) / f"{name}.npy"


def join_sets(results: list[RetrievalResult]) -> RetrievalResult:
    """Return results of several sets of queries as one.

    The names of the results come before those of their metrics (``small R@1``) and of their queries
    (``small/0001.jpg``). A query has the metrics of its own set, and counts are those of all sets together.

    Args:
        results: Results, named by their sets, with the column ``class``.

    >>> part = pd.DataFrame({"AP": [0.5], "class": ["a"]}, index=pd.Index(["0.jpg"], name="query"))
    >>> sets = [RetrievalResult(name, part, ("AP",), {"queries": 1}, {}) for name in ("small", "large")]
    >>> join_sets(sets).means, join_sets(sets).counts
    ({'small AP': 0.5, 'large AP': 0.5}, {'queries': 2})
    """
    renamed = [result.renamed({metric: f"{result.name} {metric}" for metric in result.metrics}) for result in results]
    tables = [
        result.per_query.set_axis([f"{result.name}/{query}" for query in result.per_query.index])
        for result in renamed
    ]
    counts: dict[str, int] = {}
    for result in results:
        for name, count in result.counts.items():
            counts[name] = counts.get(name, 0) + count
    return replace(
        renamed[0],
        name=", ".join(result.name for result in results),
        per_query=pd.concat(tables).rename_axis("query"),
        metrics=tuple(metric for result in renamed for metric in result.metrics),
        counts=counts,
    )

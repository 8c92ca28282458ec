"""Queries and labels of an evaluation: top-k items, the worst, differences between methods, answers, AP per label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import torch

from hgld.arrays import Integers
from hgld.errors import ConfigurationError
from hgld.evaluation.evaluate import EvaluationConfig, evaluate_tasks
from hgld.evaluation.evaluation_files import Evaluation
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.reranking import first_items
from hgld.evaluation.results import RetrievalResult
from hgld.evaluation.retrieval_task import LabelSetJudgements, RetrievalTask
from hgld.gldv2.recognition_ground_truth import write_recognition_predictions
from hgld.gldv2.retrieval_ground_truth import write_retrieval_predictions
from hgld.hierarchy import LabelMatrix
from hgld.hierarchy.label_matrix import column_of
from hgld.hierarchy.label_sets import Labelling, LabelSets, main_labels
from hgld.inspection.photos import label_name
from hgld.io.writable import require_suffix
from hgld.ragged import RaggedIndices
from hgld.tables import Provenance, write_results


@dataclass(frozen=True, eq=False)
class TopK:
    """The k highest-ranked gallery items of n queries.

    Args:
        scores: float32, shape (n, k), best first; NaN past the end of the gallery.
        positions: int64, shape (n, k), positions in the gallery; -1 past its end.
        levels: int64, shape (n, k), levels of relevance; 0 past the end of the gallery.
    """

    scores: npt.NDArray[np.float32]
    positions: npt.NDArray[np.int64]
    levels: npt.NDArray[np.int64]

    def items(self, row: int) -> Iterator[tuple[int, float, int]]:
        """Iterate over the items of a query: position, score and level."""
        columns = (self.positions[row], self.scores[row], self.levels[row])
        for position, score, level in zip(*(column.tolist() for column in columns), strict=True):
            if position >= 0:
                yield position, score, level


def top_k_items(
    task: RetrievalTask, queries: npt.NDArray[np.int64], k: int, config: RankingConfig | None = None
) -> TopK:
    """Return the top-k items of some queries of a task.

    Raises:
        ConfigurationError: ``k`` is less than 1.
        InputError: See :func:`~hgld.evaluation.ranking.rank`.
    """
    scores, positions = _first_items(_take(task, queries), k, config or RankingConfig())
    levels = np.zeros(positions.shape, np.int64)
    for row, column in np.argwhere(positions >= 0):
        query, item = int(queries[row]), int(positions[row, column])
        levels[row, column] = task.judgements.levels(
            slice(query, query + 1), slice(item, item + 1)
        ).item()
    return TopK(scores, positions, levels)


def _take(task: RetrievalTask, queries: npt.NDArray[np.int64]) -> RetrievalTask:
    """Return a task with some of the queries, which may repeat, but the judgements of all."""
    excluded, itself = (
        None if pairs is None else pairs.take(queries) for pairs in (task.excluded, task.itself)
    )
    ids, vectors = task.query_ids, task.queries[torch.from_numpy(queries)]
    ids = None if ids is None else ids[queries]
    return replace(task, queries=vectors, query_ids=ids, excluded=excluded, itself=itself)


def _first_items(
    task: RetrievalTask, k: int, config: RankingConfig
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    return first_items(
        task.queries,
        task.gallery,
        k,
        config,
        config.reranking,
        excluded=task.excluded,
        itself=task.itself,
        gallery_mask=task.gallery_mask,
    )


def query_values(
    result: RetrievalResult, task: RetrievalTask, metric: str
) -> npt.NDArray[np.float64]:
    """Return the values of a metric by query position: float64, shape (n_query,); NaN where a query has none.

    Raises:
        ConfigurationError: The result lacks the metric, or does not cover the queries of the task.
    """
    if len(result.per_query) != len(task.queries):
        raise ConfigurationError(
            f"the result covers {len(result.per_query):,} queries, but the task has {len(task.queries):,}; give the "
            "result of all queries, not of a subset"
        )
    if metric not in result.metrics:
        raise ConfigurationError(
            f"the result has no metric {metric}; choose one of {', '.join(result.metrics)}"
        )
    return result.per_query[metric].to_numpy()


@dataclass(frozen=True, eq=False)
class WorstQueries:
    """The n queries with the lowest values of a metric, lowest first.

    Args:
        metric: Name of the metric.
        n_levels: Number of levels L, which is the level of items that share everything with the query.
        per_query: Rows of these queries in the table of the result.
        queries: int64, shape (n,); positions of the queries.
        top_k: Their top-k gallery items.
    """

    metric: str
    n_levels: int
    per_query: pd.DataFrame
    queries: npt.NDArray[np.int64]
    top_k: TopK


def find_worst_queries(
    result: RetrievalResult,
    task: RetrievalTask,
    *,
    metric: str = "H-AP",
    n: int = 50,
    k: int = 10,
    config: RankingConfig | None = None,
) -> WorstQueries:
    """Return the n queries with the lowest values of a metric, with k items each; undefined values are ignored.

    Raises:
        ConfigurationError: The result lacks the metric or does not cover the queries of the task, or ``n`` or ``k``
            is less than 1.
    """
    values = query_values(result, task, metric)
    if n < 1:
        raise ConfigurationError(f"`n` is {n}; expected at least 1")
    queries = np.argsort(values, kind="stable")[: min(n, np.count_nonzero(~np.isnan(values)))]
    return WorstQueries(
        metric=metric,
        n_levels=task.judgements.n_levels,
        per_query=result.per_query.iloc[queries],
        queries=queries,
        top_k=top_k_items(task, queries, k, config),
    )


@dataclass(frozen=True, eq=False)
class MethodRankings:
    """Rankings of the n selected queries by one method."""

    name: str
    per_query: pd.DataFrame
    top_k: TopK


@dataclass(frozen=True, eq=False)
class MethodDifferences:
    """The n queries whose values of a metric differ most: first those that the method improves, then the others.

    Args:
        metric: Name of the metric.
        level_names: Names of the L levels, finest first, or None where they have none.
        n_levels: Number of levels L.
        queries: int64, shape (n,); positions of the queries, in both parts by decreasing difference.
        n_improved: Number of these queries that the method improves.
        baseline: Rankings of the baseline.
        method: Rankings of the method.
        total_improved: Number of all queries with a higher value for the method; others have a lower or the same one.
        total_degraded: Number of those with a lower value.
        total_equal: Number of those with the same value.
        mean_difference: Mean over all queries of the method's value minus the baseline's.
    """

    metric: str
    level_names: tuple[str, ...] | None
    n_levels: int
    queries: npt.NDArray[np.int64]
    n_improved: int
    baseline: MethodRankings
    method: MethodRankings
    total_improved: int
    total_degraded: int
    total_equal: int
    mean_difference: float

    @property
    def differences(self) -> npt.NDArray[np.float64]:
        """The method's value minus the baseline's for each selected query: float64, shape (n,)."""
        method, baseline = (
            side.per_query[self.metric].to_numpy() for side in (self.method, self.baseline)
        )
        differences: npt.NDArray[np.float64] = method - baseline
        return differences

    def sections(self, max_queries: int | None = None) -> Mapping[str, range]:
        """Return two headings with the rows of the queries below each, at most ``max_queries`` per heading."""
        names = self.method.name, self.baseline.name
        improved, degraded = range(self.n_improved), range(self.n_improved, len(self.queries))
        return {
            "{} ranks better than {}".format(*names): improved[:max_queries],
            "{} ranks worse than {}".format(*names): degraded[:max_queries],
        }


def find_method_differences(
    results: tuple[RetrievalResult, RetrievalResult],
    tasks: tuple[RetrievalTask, RetrievalTask],
    *,
    metric: str = "H-AP",
    n: int = 12,
    k: int = 10,
    config: RankingConfig | None = None,
) -> MethodDifferences | None:
    """Return the queries that a method ranks most differently from a baseline, in both directions; None without any.

    Half of the queries, rounded up, are those that gain most, the others those that lose most; there are fewer where
    fewer gain or lose. Each class of the finest level, such as a landmark, is represented by its most different query
    only, because photographs of one landmark look alike and could otherwise fill the whole selection.

    Results and tasks are those of the baseline and of the method, with all queries of the same images; queries for
    which the metric is undefined are ignored.

    Raises:
        ConfigurationError: A result lacks the metric or does not cover the queries of its task, the tasks are not of
            the same images, the images have no labels, or ``n`` or ``k`` is less than 1.
    """
    baseline_values, method_values = (
        query_values(result, task, metric) for result, task in zip(results, tasks, strict=True)
    )
    labels, judgements = tasks[0].query_labels, tasks[0].judgements
    same_queries = results[0].per_query.index.equals(results[1].per_query.index)
    if not same_queries or judgements.n_gallery != tasks[1].judgements.n_gallery:
        raise ConfigurationError(
            f"{results[0].name} and {results[1].name} were not evaluated with the same images; evaluate both again"
        )
    if labels is None:
        raise ConfigurationError("queries are selected by class; `tasks` needs query labels")
    if n < 1:
        raise ConfigurationError(f"`n` is {n}; expected at least 1")
    differences = method_values - baseline_values
    known = differences[~np.isnan(differences)]
    improved, degraded = _most_different(
        differences, main_labels(labels)[:, 0], (n - n // 2, n // 2)
    )
    queries = np.array([*improved, *degraded], np.int64)
    if not len(queries):
        return None
    baseline, method = (
        MethodRankings(
            result.name, result.per_query.iloc[queries], top_k_items(task, queries, k, config)
        )
        for result, task in zip(results, tasks, strict=True)
    )
    return MethodDifferences(
        metric=metric,
        level_names=tasks[0].level_names,
        n_levels=judgements.n_levels,
        queries=queries,
        n_improved=len(improved),
        baseline=baseline,
        method=method,
        total_improved=int((known > 0).sum()),
        total_degraded=int((known < 0).sum()),
        total_equal=int((known == 0).sum()),
        mean_difference=float(known.mean()),
    )


def percentage_points(difference: float) -> str:
    """Format a difference of a metric in percentage points.

    >>> percentage_points(-0.1234)
    '−12.3 points'
    """
    return f"{100 * difference:+.1f} points".replace("-", "−")


def _most_different(
    differences: npt.NDArray[np.float64], classes: npt.NDArray[np.int64], limits: tuple[int, int]
) -> tuple[list[int], list[int]]:
    """Return the queries with the largest gains and losses, up to a limit each; every class occurs once in both."""
    selected: tuple[list[int], list[int]] = ([], [])
    seen: set[int] = set()
    for query in np.argsort(-np.abs(differences), kind="stable").tolist():  # NaN last
        part = int(differences[query] < 0)
        if not np.abs(differences[query]) > 0 or sum(map(len, selected)) == sum(limits):
            break
        if classes[query] not in seen and len(selected[part]) < limits[part]:
            selected[part].append(query)
            seen.add(classes[query])
    return selected


def write_predictions(
    evaluation: Evaluation, path: Path, *, k: int = 100, config: RankingConfig | None = None
) -> None:
    """Write the first k gallery items of every query, see :mod:`hgld.gldv2.retrieval_ground_truth`.

    Of GLDv2's protocol these are the rankings of all index images, not of those with labels only. Items with equal
    scores are in the order of the gallery, whatever their levels.

    Of protocols that score an answer to each query, the answers are written, in the other format of that module.

    Raises:
        ConfigurationError: The images have no ids.
        InputError: An id has whitespace in it.
    """
    config = config or RankingConfig()
    if evaluation.answers is not None:
        write_recognition_predictions(
            path, evaluation.answers.image_ids, evaluation.answers.predictions
        )
        return
    task = next((task for task in evaluation.tasks if task.name == "official"), evaluation.tasks[0])
    if (
        task.query_ids is None
        or task.gallery_ids is None
        or len(task.gallery_ids) < len(task.gallery)
    ):
        raise ConfigurationError(
            "predictions name images by their ids, which these embeddings lack; add a file of ids beside them, "
            "and give distractors as one file"
        )
    _, positions = _first_items(task, k, config)
    gallery_ids = task.gallery_ids
    rankings = (
        [str(gallery_ids[position]) for position in row if position >= 0]
        for row in positions.tolist()
    )
    write_retrieval_predictions(path, [str(query) for query in task.query_ids], rankings)


#: AP of each query by level: float64, shape (n_query,).
Precisions = Mapping[int, npt.NDArray[np.float64]]

#: Columns of the table of labels.
_LABEL_TABLE = pa.schema(
    [
        pa.field("level", pa.int64(), nullable=False),
        pa.field("level_name", pa.string(), nullable=False),
        pa.field("label", pa.string(), nullable=False),
        pa.field("ap", pa.float64()),
        pa.field("queries", pa.int64(), nullable=False),
        pa.field("queries_without_positives", pa.int64(), nullable=False),
        pa.field("gallery_images", pa.int64(), nullable=False),
    ]
)


def average_precision_per_label(
    evaluation: Evaluation, config: EvaluationConfig | None = None
) -> pd.DataFrame:
    """Return the AP of every label of the queries, finest level first and the lowest AP of a level first.

    The AP of a label is the mean over the queries that have it, with all images that have it as positives: every
    label is a binary problem of its own, as in multi-label classification (thesis, section 6.2.1). An image with
    several labels is a query of each of them. With one label per image and level this is the mean over a class of the
    AP of the level.

    Nothing is ranked again if the evaluation has the AP of every level. Otherwise images are ranked once more, and
    images with several labels once for each of their labels.

    Returns:
        Columns ``level`` (1: coarsest), ``level_name``, ``label``, ``ap`` (NaN where no query has positives),
        ``queries`` (those that the mean is over), ``queries_without_positives`` and ``gallery_images``, the number of
        ranked images with the label, a query among its own gallery included.

    Raises:
        ConfigurationError: The protocol does not rank by labels.
    """
    tasks = [task for task in evaluation.tasks if task.query_labels is not None]
    if len(tasks) != 1 or tasks[0].query_groups is not None:
        raise ConfigurationError(
            f"the AP per label needs one ranking by labels of all levels, and this protocol has {len(tasks)}"
        )
    (task,) = tasks
    assert task.gallery_labels is not None
    config = EvaluationConfig(ranking=(config or EvaluationConfig()).ranking)
    if isinstance(task.query_labels, LabelSets):
        queries, labels, precisions = _evaluate_each_label(task, config)
    else:
        assert task.query_labels is not None
        queries, labels = np.arange(len(task.query_labels)), task.query_labels
        precisions = _known_precisions(
            evaluation.results[evaluation.tasks.index(task)].per_query, labels.shape[1]
        )
        if len(precisions) < labels.shape[1]:
            precisions = _evaluate_levels(task, labels.shape[1], config)
    n_levels = labels.shape[1]
    level_names = task.level_names or tuple(
        f"level {n_levels - column}" for column in range(n_levels)
    )
    tables = []
    for level in range(n_levels, 0, -1):
        column = column_of(level, n_levels)
        table = _one_level(
            queries, labels[:, column], precisions[level], _gallery_counts(task, column)
        )
        names = [
            label_name(task.label_names, level_names, column, value, evaluation.hierarchy)
            for value in table.pop("code")
        ]
        table.insert(0, "label", names)
        table.insert(0, "level_name", level_names[column])
        table.insert(0, "level", level)
        tables.append(table.sort_values(["ap", "label"], kind="stable", na_position="last"))
    result: pd.DataFrame = pd.concat(tables, ignore_index=True)
    return result


def write_label_table(table: pd.DataFrame, path: Path, provenance: Provenance) -> None:
    """Write the table of :func:`average_precision_per_label` as ``.csv`` or ``.parquet``, atomically.

    Raises:
        ConfigurationError: The file has another suffix.
    """
    require_suffix(path, ".csv", ".parquet")
    write_results(
        path,
        pa.Table.from_pandas(table, _LABEL_TABLE, preserve_index=False),
        "per_label/1",
        provenance,
    )


def _evaluate_each_label(
    task: RetrievalTask, config: EvaluationConfig
) -> tuple[Integers, LabelMatrix, Precisions]:
    """Rank once for each label of each query; return the query, its label, and the APs of all levels."""
    assert isinstance(task.query_labels, LabelSets)
    assert isinstance(task.gallery_labels, LabelSets)
    members = task.query_labels.members
    queries = members.rows()
    n_labels = len(queries)
    single = RaggedIndices(np.arange(n_labels + 1), members.columns)
    labels = LabelSets(task.query_labels.labels, single)
    judgements = LabelSetJudgements(labels, task.gallery_labels, "best")
    repeated = replace(
        _take(task, queries),
        judgements=judgements,
        graded_judgements=None,
        query_ids=None,
        query_labels=labels,
    )
    precisions = _evaluate_levels(repeated, task.query_labels.n_levels, config)
    return queries, task.query_labels.labels[members.columns], precisions


def _evaluate_levels(task: RetrievalTask, n_levels: int, config: EvaluationConfig) -> Precisions:
    """Rank, and return the APs of all levels."""
    metrics = [f"AP_l{level}" for level in range(1, n_levels + 1)]
    (result,) = evaluate_tasks([replace(task, metrics=metrics, metric_names={})], config)
    return _known_precisions(result.per_query, n_levels)


def _known_precisions(per_query: pd.DataFrame, n_levels: int) -> Precisions:
    """Return the APs of those levels that a table of all queries has."""
    columns = {level: f"AP_l{level}" for level in range(1, n_levels + 1)}
    if columns[n_levels] not in per_query:
        columns[n_levels] = "AP"
    return {
        level: per_query[name].to_numpy() for level, name in columns.items() if name in per_query
    }


def _one_level(
    queries: Integers, labels: Integers, values: npt.NDArray[np.float64], gallery: Mapping[int, int]
) -> pd.DataFrame:
    """Return a row per label; a query with several labels below one of this level counts once."""
    table = pd.DataFrame({"query": queries, "code": labels, "ap": values}).drop_duplicates(
        ["query", "code"]
    )
    groups = table.groupby("code")["ap"]
    counts = groups.count()
    rows = pd.DataFrame(
        {
            "ap": groups.mean(),
            "queries": counts,
            "queries_without_positives": groups.size() - counts,
        }
    )
    rows["gallery_images"] = [gallery.get(code, 0) for code in rows.index]
    result: pd.DataFrame = rows.reset_index()
    return result


def _gallery_counts(task: RetrievalTask, column: int) -> dict[int, int]:
    """Return the number of ranked gallery images with each label of a level."""
    assert task.gallery_labels is not None
    images, labels = _labels_of_level(task.gallery_labels, column)
    if task.gallery_mask is not None:
        ranked = task.gallery_mask[images]
        images, labels = images[ranked], labels[ranked]
    pairs = pd.DataFrame({"image": images, "label": labels}).drop_duplicates()
    return {int(label): int(count) for label, count in pairs["label"].value_counts().items()}


def _labels_of_level(labels: Labelling, column: int) -> tuple[Integers, Integers]:
    """Return images and their labels of a level, one pair per label."""
    if isinstance(labels, LabelSets):
        return labels.members.rows(), labels.labels[labels.members.columns, column]
    return np.arange(len(labels)), labels[:, column]

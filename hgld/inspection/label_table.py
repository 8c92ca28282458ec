"""Average precision per label: which classes of each level are found, and which are not.

The AP of a label is the mean over the queries that have it, with all images that have it as positives: every label is
a binary problem of its own, as in multi-label classification (thesis, section 6.2.1). An image with several labels is
a query of each of them. With one label per image and level this is the mean over a class of the AP of the level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import torch

from hgld.errors import ConfigurationError
from hgld.evaluation.evaluate import EvaluationConfig, evaluate_tasks
from hgld.evaluation.evaluation_files import Evaluation
from hgld.evaluation.relevance import LabelSetJudgements
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.hierarchy import LabelMatrix
from hgld.hierarchy.label_matrix import column_of
from hgld.hierarchy.label_sets import Labelling, LabelSets
from hgld.inspection.photos import label_name
from hgld.io.files import require_suffix
from hgld.ragged import Integers, RaggedIndices
from hgld.tables import Provenance, write_results

#: AP of each query by level: float64, shape (n_query,).
Precisions = Mapping[int, npt.NDArray[np.float64]]

#: Columns of the table.
SCHEMA = pa.schema(
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


def average_precision_per_label(evaluation: Evaluation, config: EvaluationConfig | None = None) -> pd.DataFrame:
    """Return the AP of every label of the queries, finest level first and the lowest AP of a level first.

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
        precisions = _known_precisions(evaluation.results[evaluation.tasks.index(task)].per_query, labels.shape[1])
        if len(precisions) < labels.shape[1]:
            precisions = _evaluate_levels(task, labels.shape[1], config)
    n_levels = labels.shape[1]
    level_names = task.level_names or tuple(f"level {n_levels - column}" for column in range(n_levels))
    tables = []
    for level in range(n_levels, 0, -1):
        column = column_of(level, n_levels)
        table = _one_level(queries, labels[:, column], precisions[level], _gallery_counts(task, column))
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
    write_results(path, pa.Table.from_pandas(table, SCHEMA, preserve_index=False), "per_label/1", provenance)


def _evaluate_each_label(task: RetrievalTask, config: EvaluationConfig) -> tuple[Integers, LabelMatrix, Precisions]:
    """Rank once for each label of each query; return the query, its label, and the APs of all levels."""
    assert isinstance(task.query_labels, LabelSets)
    assert isinstance(task.gallery_labels, LabelSets)
    members = task.query_labels.members
    queries = members.rows()
    n_labels = len(queries)
    single = RaggedIndices(np.arange(n_labels + 1), members.columns)
    each = replace(
        task,
        queries=task.queries[torch.from_numpy(queries)],
        judgements=LabelSetJudgements(LabelSets(task.query_labels.labels, single), task.gallery_labels, "best"),
        graded_judgements=None,
        query_ids=None,
        excluded=None if task.excluded is None else task.excluded.take(queries),
        itself=None if task.itself is None else task.itself.take(queries),
    )
    precisions = _evaluate_levels(each, task.query_labels.n_levels, config)
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
    return {level: per_query[name].to_numpy() for level, name in columns.items() if name in per_query}


def _one_level(
    queries: Integers, labels: Integers, values: npt.NDArray[np.float64], gallery: Mapping[int, int]
) -> pd.DataFrame:
    """Return a row per label; a query with several labels below one of this level counts once."""
    table = pd.DataFrame({"query": queries, "code": labels, "ap": values}).drop_duplicates(["query", "code"])
    groups = table.groupby("code")["ap"]
    counts = groups.count()
    rows = pd.DataFrame({"ap": groups.mean(), "queries": counts, "queries_without_positives": groups.size() - counts})
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

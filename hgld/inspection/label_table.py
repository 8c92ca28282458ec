"""Table of the average precision of every label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from hgld.arrays import Floats, Integers
from hgld.errors import ConfigurationError
from hgld.evaluation.evaluate import EvaluationConfig, evaluate_tasks
from hgld.evaluation.evaluation_files import Evaluation
from hgld.evaluation.retrieval_task import LabelSetJudgements, RetrievalTask
from hgld.hierarchy import LabelMatrix
from hgld.hierarchy.label_matrix import column_of
from hgld.hierarchy.label_sets import Labelling, LabelSets
from hgld.inspection.photos import label_name
from hgld.inspection.queries import take_queries
from hgld.io.writable import require_suffix
from hgld.ragged import RaggedIndices
from hgld.tables import Provenance, write_results

#: AP of each query by level: float64, shape (n_query,).
Precisions = Mapping[int, Floats]

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
    """Return the AP of every label of the queries, by level, finest first, and by AP, lowest first.

    The AP of a label is the mean over the queries that have it, with all images that have it as
    positives: every label is a separate binary problem, as in multi-label classification (thesis,
    section 6.2.1). An image with several labels is a query of each of them. With one label per image
    and level this is the mean over a class of the AP of the level.

    Images are not ranked again if the evaluation has the AP of every level. Otherwise images are ranked
    once more, and images with several labels once for each of their labels.

    Returns:
        Columns ``level`` (1: coarsest), ``level_name``, ``label``, ``ap`` (NaN if no query has
        positives), ``queries`` (the number of queries with positives), ``queries_without_positives``
        and ``gallery_images``, the number of ranked images with the label, including queries in their
        own gallery.

    Raises:
        ConfigurationError: The protocol does not rank by labels.
    """
    tasks = [task for task in evaluation.tasks if task.query_labels is not None]
    if len(tasks) != 1 or tasks[0].query_groups is not None:
        raise ConfigurationError(
            f"the AP per label needs one ranking by labels of all levels, and this protocol has {len(tasks)}"
        )
    task = tasks[0]
    assert task.query_labels is not None
    assert task.gallery_labels is not None
    config = EvaluationConfig(ranking=(config or EvaluationConfig()).ranking)
    if isinstance(task.query_labels, LabelSets):
        queries, labels, precisions = _evaluate_each_label(task, config)
    else:
        labels = task.query_labels
        queries = np.arange(len(labels))
        result = evaluation.results[evaluation.tasks.index(task)]
        precisions = _known_precisions(result.per_query, labels.shape[1])
        if len(precisions) < labels.shape[1]:
            precisions = _evaluate_levels(task, labels.shape[1], config)
    n_levels = labels.shape[1]
    level_names = task.level_names
    if level_names is None:
        level_names = tuple(f"level {level}" for level in range(n_levels, 0, -1))
    tables = []
    for level in range(n_levels, 0, -1):
        column = column_of(level, n_levels)
        counts = _gallery_counts(task, task.gallery_labels, column)
        table = _table_of_level(queries, labels[:, column], precisions[level], counts)
        names = []
        for code in table.pop("code"):
            name = label_name(task.label_names, level_names, column, code, evaluation.hierarchy)
            names.append(name)
        table.insert(0, "label", names)
        table.insert(0, "level_name", level_names[column])
        table.insert(0, "level", level)
        tables.append(table.sort_values(["ap", "label"], kind="stable", na_position="last"))
    all_levels: pd.DataFrame = pd.concat(tables, ignore_index=True)
    return all_levels


def write_label_table(table: pd.DataFrame, path: Path, provenance: Provenance) -> None:
    """Write the table of :func:`average_precision_per_label` as ``.csv`` or ``.parquet``, atomically.

    Raises:
        ConfigurationError: The file has another suffix.
    """
    require_suffix(path, ".csv", ".parquet")
    arrow_table = pa.Table.from_pandas(table, _LABEL_TABLE, preserve_index=False)
    write_results(path, arrow_table, "per_label/1", provenance)


def _evaluate_each_label(
    task: RetrievalTask, config: EvaluationConfig
) -> tuple[Integers, LabelMatrix, Precisions]:
    """Rank once for each label of each query; return the queries, their labels, and APs of all levels."""
    assert isinstance(task.query_labels, LabelSets)
    assert isinstance(task.gallery_labels, LabelSets)
    members = task.query_labels.members
    queries = members.rows()
    single = RaggedIndices(np.arange(len(queries) + 1), members.columns)
    labels = LabelSets(task.query_labels.labels, single)
    repeated = replace(
        take_queries(task, queries),
        judgements=LabelSetJudgements(labels, task.gallery_labels, "best"),
        graded_judgements=None,
        query_ids=None,
        query_labels=labels,
    )
    precisions = _evaluate_levels(repeated, labels.n_levels, config)
    return queries, labels.labels[members.columns], precisions


def _evaluate_levels(task: RetrievalTask, n_levels: int, config: EvaluationConfig) -> Precisions:
    """Rank, and return the APs of all levels."""
    metrics = [f"AP_l{level}" for level in range(1, n_levels + 1)]
    (result,) = evaluate_tasks([replace(task, metrics=metrics, metric_names={})], config)
    return _known_precisions(result.per_query, n_levels)


def _known_precisions(per_query: pd.DataFrame, n_levels: int) -> Precisions:
    """Return the APs of the levels that are in a table of all queries."""
    precisions = {}
    for level in range(1, n_levels + 1):
        name = f"AP_l{level}"
        if level == n_levels and name not in per_query:
            name = "AP"
        if name in per_query:
            precisions[level] = per_query[name].to_numpy()
    return precisions


def _table_of_level(
    queries: Integers, labels: Integers, values: Floats, gallery: Mapping[int, int]
) -> pd.DataFrame:
    """Return a row per label; a query with several labels below a label of this level counts once.

    Args:
        queries: Position of the query of each value.
        labels: Label of each value at the level.
        values: APs.
        gallery: Number of gallery images by label.
    """
    table = pd.DataFrame({"query": queries, "code": labels, "ap": values})
    groups = table.drop_duplicates(["query", "code"]).groupby("code")["ap"]
    n_queries = groups.count()
    rows = pd.DataFrame(
        {
            "ap": groups.mean(),
            "queries": n_queries,
            "queries_without_positives": groups.size() - n_queries,
        }
    )
    rows["gallery_images"] = [gallery.get(code, 0) for code in rows.index]
    result: pd.DataFrame = rows.reset_index()
    return result


def _gallery_counts(task: RetrievalTask, labels: Labelling, column: int) -> dict[int, int]:
    """Return the number of ranked gallery images with each label of a level."""
    if isinstance(labels, LabelSets):
        images = labels.members.rows()
        codes = labels.labels[labels.members.columns, column]
    else:
        images = np.arange(len(labels))
        codes = labels[:, column]
    if task.gallery_mask is not None:
        is_ranked = task.gallery_mask[images]
        images = images[is_ranked]
        codes = codes[is_ranked]
    pairs = pd.DataFrame({"image": images, "label": codes}).drop_duplicates()
    return {int(label): int(count) for label, count in pairs["label"].value_counts().items()}

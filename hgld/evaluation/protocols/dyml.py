"""DyML's protocol: leave-one-out at each level apart (Sun et al., Dynamic Metric Learning, CVPR 2021)."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np

from hgld.datasets.dyml_files import read_test_set
from hgld.datasets.image_labels import ImageLabels
from hgld.evaluation.evaluation_files import EvaluationInputs, EvaluationProtocol, InputSet
from hgld.evaluation.protocols.labels import labelled_leave_one_out
from hgld.evaluation.relevance import LabelJudgements
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.ragged import RaggedIndices
from hgld.tables.embeddings import Embeddings, rows_of

log = logging.getLogger(__name__)

METRICS = ("AP", "ASI", "R@1")


def benchmark_tasks(queries: Embeddings, gallery: Embeddings, folder: Path) -> list[RetrievalTask]:
    """Build a task from the test set of each level, which has binary labels of its own.

    Args:
        queries: Embeddings with ids such as ``bmk_fine/query/0.jpg``, relative to the folder.
        gallery: Embeddings with ids such as ``bmk_fine/gallery/0.jpg``; may be the same object.
        folder: Folder of the ground truth, see :func:`~hgld.datasets.dyml_files.read_test_set`.

    Raises:
        InputError: See :func:`~hgld.datasets.dyml_files.read_test_set`, or images are not embedded.
    """
    tasks = []
    for name, level in read_test_set(folder).items():
        rows = np.flatnonzero(level.self_positions >= 0)
        if not len(rows):
            log.warning(
                "%s, %s: no query has the name of a gallery image; if the gallery does hold the queries, they are "
                "ranked first for themselves, and the numbers are too high",
                folder,
                name,
            )
        itself = RaggedIndices.from_pairs(rows, level.self_positions[rows], len(level.query_ids))
        tasks.append(
            RetrievalTask(
                name=name,
                queries=queries.vectors[rows_of(queries, level.query_ids, f"queries of {folder}")],
                gallery=gallery.vectors[rows_of(gallery, level.gallery_ids, f"gallery images of {folder}")],
                judgements=LabelJudgements(level.query_labels[:, None], level.gallery_labels[:, None]),
                query_ids=np.array(level.query_ids),
                gallery_ids=np.array(level.gallery_ids),
                index_labels=level.gallery_labels[:, None],
                excluded=itself,
                itself=itself,
                metrics=METRICS,
            )
        )
    return tasks


def tasks_by_level(images: Embeddings, labels: ImageLabels) -> list[RetrievalTask]:
    """Build a leave-one-out task for each level of images that have labels of all levels."""
    return [
        replace(
            labelled_leave_one_out(images, replace(labels, labelling=labels.labels[:, [column]])),
            name=name,
            level_names=(name,),
            metrics=METRICS,
        )
        for column, name in enumerate(labels.level_names)
    ]


def _build_tasks(inputs: EvaluationInputs) -> list[RetrievalTask]:
    if inputs.files.ground_truth is None:
        return tasks_by_level(inputs.gallery, inputs.gallery_labels())
    return benchmark_tasks(inputs.queries, inputs.gallery, inputs.ground_truth)


DYML = EvaluationProtocol(
    name="dyml",
    inputs=(
        InputSet(("embeddings", "ground_truth")),
        InputSet(("query_embeddings", "gallery_embeddings", "ground_truth")),
        InputSet(("embeddings",), ("labels", "label_separator", "hierarchy", "split")),
    ),
    build_tasks=_build_tasks,
    descriptions={"ground_truth": "the folder of its test sets"},
    reports_mean=True,
)

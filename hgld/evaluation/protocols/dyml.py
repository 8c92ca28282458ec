"""DyML's protocol: leave-one-out at each level apart (Sun et al., Dynamic Metric Learning, CVPR 2021)."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np

from hgld.datasets.dyml_files import read_test_set
from hgld.datasets.image_labels import ImageLabels
from hgld.evaluation.relevance_judgements import LabelJudgements
from hgld.evaluation.retrieval_task import RetrievalTask, leave_one_out
from hgld.ragged import RaggedIndices
from hgld.tables.embeddings import Embeddings, rows_of

log = logging.getLogger(__name__)

METRICS = ("AP", "ASI", "R@1")


def dyml_tasks(queries: Embeddings, gallery: Embeddings, folder: Path) -> list[RetrievalTask]:
    """The test sets of the three levels, each with binary labels of its own.

    Args:
        queries: with ids such as ``bmk_fine/query/0.jpg``, relative to the folder.
        gallery: likewise, such as ``bmk_fine/gallery/0.jpg``; may be the same embeddings.
        folder: see :func:`~hgld.datasets.dyml_files.read_test_set`.

    Raises:
        InputError: see :func:`~hgld.datasets.dyml_files.read_test_set`, or images are not embedded.
    """
    tasks = []
    for name, level in read_test_set(folder).items():
        rows = np.flatnonzero(level.self_positions >= 0)
        if not len(rows):
            log.warning(
                "%s, %s: no query has the name of a gallery image; if the gallery does hold the queries, they find "
                "themselves, and the numbers are too high",
                folder,
                name,
            )
        tasks.append(
            RetrievalTask(
                name=name,
                queries=queries.vectors[rows_of(queries, level.query_ids, f"queries of {folder}")],
                gallery=gallery.vectors[rows_of(gallery, level.gallery_ids, f"gallery images of {folder}")],
                judgements=LabelJudgements(level.query_labels[:, None], level.gallery_labels[:, None]),
                query_ids=np.array(level.query_ids),
                gallery_ids=np.array(level.gallery_ids),
                excluded=RaggedIndices.distinct(rows, level.self_positions[rows], len(level.query_ids)),
                metrics=METRICS,
            )
        )
    return tasks


def tasks_by_level(images: Embeddings, labels: ImageLabels) -> list[RetrievalTask]:
    """DyML's protocol on one set of images that have labels of all levels: leave-one-out at each level apart."""
    return [
        replace(leave_one_out(images, replace(labels, labels=labels.labels[:, [column]])), name=name, metrics=METRICS)
        for column, name in enumerate(labels.level_names)
    ]

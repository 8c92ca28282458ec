"""Retrieval protocols, from the contents of input files to tasks; GLDv2's two have modules of their own.

By labels alone: leave-one-out, and retrieval with queries against a gallery of their own; DyML, ROxford and RParis.

A protocol is an :class:`~hgld.evaluation.evaluation_files.EvaluationProtocol`, and a line in
:data:`hgld.evaluation.settings.PROTOCOLS`.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from hgld.datasets.image_labels import ImageLabels
from hgld.datasets.readers.fine_grained import read_test_set
from hgld.datasets.readers.landmarks import SETTINGS, RevisitedGroundTruth, read_ground_truth
from hgld.errors import InputError
from hgld.evaluation.evaluation_files import EvaluationInputs, EvaluationProtocol, InputSet
from hgld.evaluation.metrics import REVISITED_METRICS
from hgld.evaluation.retrieval_task import (
    LabelJudgements,
    ListJudgements,
    RetrievalTask,
    leave_one_out_task,
    query_gallery_task,
    with_distractors,
)
from hgld.io.text_array import TextArray
from hgld.ragged import RaggedIndices
from hgld.tables.embeddings import Embeddings, rows_of

log = logging.getLogger(__name__)


def labelled_leave_one_out(images: Embeddings, labels: ImageLabels) -> RetrievalTask:
    """Rank every labelled image against all others; images without labels are excluded on both sides."""
    task = leave_one_out_task(
        images.vectors, labels.labelling, ids=images.ids, level_names=labels.level_names
    )
    return replace(task, label_names=labels.names)


def labelled_retrieval(
    queries: Embeddings, query_labels: ImageLabels, gallery: Embeddings, gallery_labels: ImageLabels
) -> RetrievalTask:
    """Rank the labelled gallery images for the labelled queries.

    Images without labels are excluded on both sides, and a gallery image with the id of the query from its ranking.
    """
    task = query_gallery_task(
        queries.vectors,
        query_labels.labelling,
        gallery.vectors,
        gallery_labels.labelling,
        query_ids=queries.ids,
        gallery_ids=gallery.ids,
        level_names=gallery_labels.level_names,
    )
    label_names = zip(gallery_labels.names, query_labels.names, strict=False)
    return replace(task, label_names=tuple({**names, **own} for names, own in label_names))


def _retrieval_tasks(inputs: EvaluationInputs) -> list[RetrievalTask]:
    query_labels, gallery_labels = inputs.labels()
    task = labelled_retrieval(inputs.queries, query_labels, inputs.gallery, gallery_labels)
    return [task if inputs.distractors is None else with_distractors(task, inputs.distractors)]


LEAVE_ONE_OUT = EvaluationProtocol(
    name="leave-one-out",
    inputs=(InputSet(("embeddings",), ("labels", "label_separator", "hierarchy", "split")),),
    build_tasks=lambda inputs: [labelled_leave_one_out(inputs.gallery, inputs.gallery_labels())],
)
RETRIEVAL = EvaluationProtocol(
    name="retrieval",
    inputs=(
        InputSet(
            ("query_embeddings", "gallery_embeddings"),
            (
                "distractor_embeddings",
                "labels",
                "query_labels",
                "label_separator",
                "hierarchy",
                "split",
            ),
        ),
    ),
    build_tasks=_retrieval_tasks,
)


#: Metrics of DyML's protocol: leave-one-out at each level apart (Sun et al., Dynamic Metric Learning, CVPR 2021).
DYML_METRICS = ("AP", "ASI", "R@1")


def benchmark_tasks(queries: Embeddings, gallery: Embeddings, folder: Path) -> list[RetrievalTask]:
    """Build a task from DyML's test set of each level, which has binary labels of its own.

    Args:
        queries: Embeddings with ids such as ``bmk_fine/query/0.jpg``, relative to the folder.
        gallery: Embeddings with ids such as ``bmk_fine/gallery/0.jpg``; may be the same object.
        folder: Folder of the ground truth, see :func:`~hgld.datasets.readers.fine_grained.read_test_set`.

    Raises:
        InputError: See :func:`~hgld.datasets.readers.fine_grained.read_test_set`, or images are not embedded.
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
                gallery=gallery.vectors[
                    rows_of(gallery, level.gallery_ids, f"gallery images of {folder}")
                ],
                judgements=LabelJudgements(
                    level.query_labels[:, None], level.gallery_labels[:, None]
                ),
                query_ids=np.array(level.query_ids),
                gallery_ids=np.array(level.gallery_ids),
                excluded=itself,
                itself=itself,
                metrics=DYML_METRICS,
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
            metrics=DYML_METRICS,
        )
        for column, name in enumerate(labels.level_names)
    ]


def _dyml_tasks(inputs: EvaluationInputs) -> list[RetrievalTask]:
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
    build_tasks=_dyml_tasks,
    descriptions={"ground_truth": "the folder of its test sets"},
    reports_mean=True,
)


def revisited_tasks(
    queries: Embeddings,
    gallery: Embeddings,
    truth: RevisitedGroundTruth,
    distractors: Embeddings | None = None,
) -> list[RetrievalTask]:
    """Build the tasks "easy", "medium" and "hard" of ROxford5k or RParis6k (Radenovic et al., CVPR 2018).

    Args:
        queries: Embeddings with the names of the queries as ids; folders and suffixes of ids do not matter.
        gallery: The same for the gallery; images that the ground truth does not name, such as those of the queries,
            are left out.
        distractors: Further images of the gallery, all of which are negatives, such as the million of R1M.

    Returns:
        A task per setting, with the metrics of the protocol: mAP and mP@1, 5, 10. A query without positives in a
        setting has no value there.

    Raises:
        InputError: Images are not embedded, two ids mean the same image, or distractors have another number of
            dimensions.
    """
    query_rows = rows_of(_with_short_ids(queries), truth.query_names, "queries of the ground truth")
    gallery_rows = rows_of(
        _with_short_ids(gallery), truth.gallery_names, "gallery images of the ground truth"
    )
    vectors = queries.vectors[torch.from_numpy(query_rows)]
    gallery_vectors = gallery.vectors[torch.from_numpy(gallery_rows)]
    tasks = [
        RetrievalTask(
            name=setting,
            queries=vectors,
            gallery=gallery_vectors,
            judgements=ListJudgements(truth.positives(setting), len(gallery_vectors)),
            query_ids=np.array(truth.query_names),
            gallery_ids=np.array(truth.gallery_names),
            excluded=truth.ignored(setting),
            metrics=tuple(REVISITED_METRICS),
            fixed_metrics=True,
            settings={"AP": "by trapezoids (Oxford)"},
        )
        for setting in SETTINGS
    ]
    return tasks if distractors is None else [with_distractors(task, distractors) for task in tasks]


def _with_short_ids(images: Embeddings) -> Embeddings:
    """Return embeddings whose ids have neither folders nor suffixes; without these, ids have to differ as well."""
    if images.ids is None:
        return images
    ids = [PurePosixPath(image).stem for image in images.ids.tolist()]
    n_repeated = len(ids) - len(set(ids))
    if n_repeated:
        raise InputError(
            f"{images.path}: {n_repeated:,} ids differ from others in folder and suffix alone; the ground truth "
            "names images without them"
        )
    return replace(images, ids=TextArray(ids))


_WITH_DISTRACTORS = (
    InputSet(
        ("query_embeddings", "gallery_embeddings", "ground_truth"), ("distractor_embeddings",)
    ),
)
ROXFORD, RPARIS = (
    EvaluationProtocol(
        name,
        _WITH_DISTRACTORS,
        lambda inputs: revisited_tasks(
            inputs.queries,
            inputs.gallery,
            read_ground_truth(inputs.ground_truth),
            inputs.distractors,
        ),
        {"ground_truth": file},
    )
    for name, file in (("roxford", "gnd_roxford5k.pkl"), ("rparis", "gnd_rparis6k.pkl"))
)

"""Retrieval protocols: leave-one-out, queries against a gallery, DyML, ROxford and RParis.

A protocol builds tasks from the contents of input files. It is an
:class:`~hgld.evaluation.evaluation_files.EvaluationProtocol`, and a line in
:data:`hgld.evaluation.settings.PROTOCOLS`. The two protocols of GLDv2 have modules of their own.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from hgld.datasets.image_labels import ImageLabels
from hgld.datasets.readers.dyml import read_test_set
from hgld.datasets.readers.revisited import SETTINGS, RevisitedGroundTruth, read_ground_truth
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
    """Build the task that ranks every labelled image against all other labelled images."""
    task = leave_one_out_task(
        images.vectors, labels.labelling, ids=images.ids, level_names=labels.level_names
    )
    return replace(task, label_names=labels.names)


def labelled_retrieval(
    queries: Embeddings, query_labels: ImageLabels, gallery: Embeddings, gallery_labels: ImageLabels
) -> RetrievalTask:
    """Build the task that ranks the labelled gallery images for the labelled queries.

    Images without labels are excluded on both sides. A gallery image with the id of the query is
    excluded from the ranking of this query.
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
    label_names = []
    for gallery_names, query_names in zip(gallery_labels.names, query_labels.names, strict=False):
        label_names.append({**gallery_names, **query_names})
    return replace(task, label_names=tuple(label_names))


def _leave_one_out_tasks(inputs: EvaluationInputs) -> list[RetrievalTask]:
    """Build the task of the protocol leave-one-out."""
    return [labelled_leave_one_out(inputs.gallery, inputs.gallery_labels())]


def _retrieval_tasks(inputs: EvaluationInputs) -> list[RetrievalTask]:
    """Build the task of the protocol retrieval."""
    query_labels, gallery_labels = inputs.labels()
    task = labelled_retrieval(inputs.queries, query_labels, inputs.gallery, gallery_labels)
    if inputs.distractors is not None:
        task = with_distractors(task, inputs.distractors)
    return [task]


LEAVE_ONE_OUT = EvaluationProtocol(
    name="leave-one-out",
    inputs=(InputSet(("embeddings",), ("labels", "label_separator", "hierarchy", "split")),),
    build_tasks=_leave_one_out_tasks,
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


#: Metrics of DyML: leave-one-out at each level (Sun et al., Dynamic Metric Learning, CVPR 2021).
DYML_METRICS = ("AP", "ASI", "R@1")


def benchmark_tasks(queries: Embeddings, gallery: Embeddings, folder: Path) -> list[RetrievalTask]:
    """Build a task from DyML's test set of each level, which has its own binary labels.

    Args:
        queries: Embeddings with ids such as ``bmk_fine/query/0.jpg``, relative to the folder.
        gallery: Embeddings with ids such as ``bmk_fine/gallery/0.jpg``; may be the same object.
        folder: Folder of the ground truth, see
            :func:`~hgld.datasets.readers.dyml.read_test_set`.

    Raises:
        InputError: See :func:`~hgld.datasets.readers.dyml.read_test_set`, or images are not
            embedded.
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
        query_rows = rows_of(queries, level.query_ids, f"queries of {folder}")
        gallery_rows = rows_of(gallery, level.gallery_ids, f"gallery images of {folder}")
        task = RetrievalTask(
            name=name,
            queries=queries.vectors[query_rows],
            gallery=gallery.vectors[gallery_rows],
            judgements=LabelJudgements(level.query_labels[:, None], level.gallery_labels[:, None]),
            query_ids=np.array(level.query_ids),
            gallery_ids=np.array(level.gallery_ids),
            excluded=itself,
            itself=itself,
            metrics=DYML_METRICS,
        )
        tasks.append(task)
    return tasks


def tasks_by_level(images: Embeddings, labels: ImageLabels) -> list[RetrievalTask]:
    """Build a leave-one-out task for each level of images that have labels of all levels."""
    tasks = []
    for column, name in enumerate(labels.level_names):
        labels_of_level = replace(labels, labelling=labels.labels[:, [column]])
        task = labelled_leave_one_out(images, labels_of_level)
        task = replace(task, name=name, level_names=(name,), metrics=DYML_METRICS)
        tasks.append(task)
    return tasks


def _dyml_tasks(inputs: EvaluationInputs) -> list[RetrievalTask]:
    """Build a task per level, from DyML's test sets or from labels of all levels."""
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
    """Build the tasks easy, medium and hard of ROxford5k or RParis6k (Radenovic et al., CVPR 2018).

    Args:
        queries: Embeddings with the names of the queries as ids; folders and suffixes of ids are
            ignored.
        gallery: Embeddings of the gallery, with ids in the same form; images that the ground truth
            does not name, such as the queries' images, are excluded.
        truth: Positives and junk of each query.
        distractors: Further images of the gallery, all of which are negatives, such as the million
            of R1M.

    Returns:
        A task per setting, with the metrics of the protocol: mAP and mP@1, 5, 10. A query without
        positives in a setting has no value in it.

    Raises:
        InputError: Images are not embedded, two ids name the same image, or distractors have another
            number of dimensions.
    """
    query_rows = rows_of(_with_short_ids(queries), truth.query_names, "queries of the ground truth")
    gallery_rows = rows_of(
        _with_short_ids(gallery), truth.gallery_names, "gallery images of the ground truth"
    )
    query_vectors = queries.vectors[torch.from_numpy(query_rows)]
    gallery_vectors = gallery.vectors[torch.from_numpy(gallery_rows)]
    tasks = []
    for setting in SETTINGS:
        task = RetrievalTask(
            name=setting,
            queries=query_vectors,
            gallery=gallery_vectors,
            judgements=ListJudgements(truth.positives(setting), len(gallery_vectors)),
            query_ids=np.array(truth.query_names),
            gallery_ids=np.array(truth.gallery_names),
            excluded=truth.ignored(setting),
            metrics=tuple(REVISITED_METRICS),
            fixed_metrics=True,
            settings={"AP": "by trapezoids (Oxford)"},
        )
        if distractors is not None:
            task = with_distractors(task, distractors)
        tasks.append(task)
    return tasks


def _with_short_ids(images: Embeddings) -> Embeddings:
    """Return embeddings whose ids have no folders and suffixes.

    Raises:
        InputError: Ids are equal without folders and suffixes.
    """
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


def _revisited_protocol(name: str, file: str) -> EvaluationProtocol:
    """Return the protocol of ROxford5k or RParis6k.

    Args:
        name: Name of the protocol.
        file: Name of the file of its ground truth.
    """
    inputs = InputSet(
        ("query_embeddings", "gallery_embeddings", "ground_truth"), ("distractor_embeddings",)
    )
    return EvaluationProtocol(
        name, (inputs,), _build_revisited_tasks, descriptions={"ground_truth": file}
    )


def _build_revisited_tasks(inputs: EvaluationInputs) -> list[RetrievalTask]:
    """Build the tasks of ROxford5k or RParis6k from input files."""
    truth = read_ground_truth(inputs.ground_truth)
    return revisited_tasks(inputs.queries, inputs.gallery, truth, inputs.distractors)


ROXFORD = _revisited_protocol("roxford", "gnd_roxford5k.pkl")
RPARIS = _revisited_protocol("rparis", "gnd_rparis6k.pkl")

"""Face retrieval: embeddings of the same medium, then of the same template, are averaged, and the averages ranked.

All levels but the coarsest say what is averaged, finest first; the coarsest, the subject, says what is relevant.
Every embedding and every average is L2-normalised before it is averaged further, as in the published evaluation of
templates (``standard_evaluation/ijb_evaluation.py`` of github.com/ox-vgg/vgg_face2). With the levels medium and
subject, each medium is ranked against all others. This is the protocol of Smooth-AP for IJB-C (Brown et al., ECCV
2020, Sec. 5.1), in which the frames of a video are one instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from hgld.datasets.image_labels import ImageLabels
from hgld.errors import ConfigurationError
from hgld.evaluation.evaluation_files import EvaluationInputs, EvaluationProtocol, InputSet
from hgld.evaluation.protocols.labels import labelled_leave_one_out, labelled_retrieval
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.tables.embeddings import Embeddings

METRICS = ("AP", "R@1")
#: Embeddings read at once: 64 MB as float64 where vectors have 2,048 numbers.
_BLOCK = 4096


def sum_directions(vectors: torch.Tensor, groups: npt.NDArray[np.int64], n_groups: int) -> npt.NDArray[np.float64]:
    """Return the sum of the L2-normalised vectors of each group; vectors are read in blocks.

    Args:
        vectors: float, shape (n, d); may be memory-mapped.
        groups: int64, shape (n,); position of the group of each vector, -1 for vectors of none, which are not read.
        n_groups: Number of groups.

    Returns:
        float64, shape (n_groups, d).

    >>> sum_directions(torch.tensor([[2.0, 0.0], [0.0, 3.0], [9.0, 9.0]]), np.array([0, 0, -1]), 1)
    array([[1., 1.]])
    """
    sums = np.zeros((n_groups, vectors.shape[1]))
    selected = np.flatnonzero(groups >= 0)
    for start in range(0, len(selected), _BLOCK):
        rows = selected[start : start + _BLOCK]
        np.add.at(sums, groups[rows], normalised(vectors[torch.from_numpy(rows)].double().numpy()))
    return sums


def normalised(vectors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return vectors divided by their length."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def average_labels(images: Embeddings, labels: ImageLabels) -> tuple[Embeddings, ImageLabels]:
    """Average embeddings by the labels of all levels but the coarsest, level by level.

    Args:
        images: Embeddings; those without labels are left out.
        labels: Labels of at least two levels.

    Returns:
        The averages, of length 1, and their labels at the coarsest level. Their ids are the names of their labels at
        the level below.

    Raises:
        ConfigurationError: There is only one level.
    """
    if len(labels.level_names) < 2:
        raise ConfigurationError(
            f"the labels have the level {labels.level_names[0]} alone; expected at least two, such as medium and "
            "subject, or choose another `protocol`"
        )
    rows = np.flatnonzero(labels.labelled)
    vectors, matrix = images.vectors, labels.labels
    names: list[str] = []
    for column in range(len(labels.level_names) - 1):
        classes, first, groups = np.unique(matrix[rows, column], return_index=True, return_inverse=True)
        positions = np.full(len(matrix), -1)
        positions[rows] = groups
        vectors = torch.from_numpy(normalised(sum_directions(vectors, positions, len(classes))).astype(np.float32))
        matrix = matrix[rows[first]]
        rows = np.arange(len(classes))
        known: Mapping[int, str] = labels.names[column] if labels.names else {}
        names = [known.get(label, str(label)) for label in classes.tolist()]
    averages = Embeddings(vectors, np.array(names, np.str_), None, images.path)
    coarsest = ImageLabels(matrix[:, -1:], labels.level_names[-1:], np.ones(len(matrix), np.bool_), labels.names[-1:])
    return averages, coarsest


def _build_tasks(inputs: EvaluationInputs) -> list[RetrievalTask]:
    gallery, gallery_labels = average_labels(inputs.gallery, inputs.gallery_labels())
    if inputs.queries is inputs.gallery:
        task = labelled_leave_one_out(gallery, gallery_labels)
    else:
        queries, query_labels = average_labels(inputs.queries, inputs.query_labels())
        task = labelled_retrieval(queries, query_labels, gallery, gallery_labels)
    counts = {**task.counts, "images": len(inputs.gallery)}
    return [replace(task, name="templates", metrics=METRICS, counts=counts)]


TEMPLATES = EvaluationProtocol(
    name="templates",
    inputs=(
        InputSet(("embeddings", "labels")),
        InputSet(("query_embeddings", "gallery_embeddings", "labels"), ("query_labels",)),
    ),
    build_tasks=_build_tasks,
    descriptions={"labels": "medium and subject, or medium, template and subject, such as a manifest"},
)

"""Measures beside the metrics of rankings: consistency across levels, recall in groups of classes, label noise.

They are functions of embeddings and labels, and not among the metrics of :func:`hgld.evaluation.evaluate_retrieval`,
which ranks levels and never sees the labels of single items.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from hgld.arrays import Booleans, Integers
from hgld.compute.scoring import Vectors, as_tensor
from hgld.errors import ConfigurationError
from hgld.evaluation.evaluate import EvaluationConfig, build_task, evaluate_retrieval, evaluate_tasks, label_array
from hgld.evaluation.ranking import RankingConfig
from hgld.hierarchy.label_matrix import LabelMatrix, LabelSets, column_of, labelled_rows


def path_consistency(
    query_embeddings: Vectors,
    query_labels: LabelMatrix | Tensor,
    gallery_embeddings: Vectors | None = None,
    gallery_labels: LabelMatrix | Tensor | None = None,
    *,
    k: int = 5,
) -> dict[str, float]:
    """Predict each level by a vote of the k nearest neighbours, and measure whether the levels fit each other.

    ``FPA@k``, full-path accuracy: share of queries that are predicted right at every level (Park et al., ICLR 2025).
    Queries without a gallery item of their finest class are left out, as no prediction could be right. ``TICE@k``,
    tree-based inconsistency error: share of queries whose predicted labels are not a path of the tree, right or
    wrong, such as a species with another family than its own; lower is better. Both are defined for classifiers that
    predict every level on its own, as in arXiv 2512.21529. Embeddings predict nothing, so here each level is
    predicted by the most frequent label among the first k items, and of equally frequent ones by that of the nearest
    item. The labels of a single neighbour are a path of the tree: FPA@1 is R@1, and TICE@1 is 0.

    Queries for which fewer than k items are ranked are left out. Of items with equal scores, the first of the gallery
    is the nearest.

    Args:
        query_embeddings: float, shape (n_query, d).
        query_labels: Integers, shape (n_query, L), finest first; -1 at every level for images without labels, which
            are left out.
        gallery_embeddings: The same for the gallery, shape (n_gallery, d). Without a gallery each query is ranked
            against all others.
        gallery_labels: The same for the gallery, shape (n_gallery, L).
        k: Number of neighbours that vote.

    Returns:
        Shares from 0 to 1 by name; NaN without a query that counts.

    Raises:
        InputError: See :func:`~hgld.evaluation.evaluate_retrieval`.
        ConfigurationError: k is beyond the gallery, or images have several labels each.

    >>> cosines = np.array([0.9, 0.8, 0.7, 0.6, 0.5])
    >>> gallery = np.stack([cosines, np.sqrt(1 - cosines**2)], axis=1)
    >>> labels = np.array([[0, 0], [0, 0], [1, 1], [2, 1], [3, 1]])  # most of one class, but more of the other group
    >>> path_consistency(np.array([[1.0, 0.0]]), np.array([[0, 0]]), gallery, labels, k=5)
    {'FPA@5': 0.0, 'TICE@5': 1.0}
    """
    task = build_task(query_embeddings, query_labels, gallery_embeddings, gallery_labels)
    own, others = task.query_labels, task.gallery_labels
    if not isinstance(own, np.ndarray) or not isinstance(others, np.ndarray):
        raise ConfigurationError("labels vote for a path of a tree, which needs one label per image and level")
    ranking = RankingConfig(device=str(task.queries.device))
    (result,) = evaluate_tasks([task], EvaluationConfig((f"P@{k}",), ranking=ranking, n_neighbours=k))
    assert result.nearest is not None
    positions = result.nearest.positions
    ranked = (positions >= 0).all(1)
    neighbours = others[positions]  # (n_query, k, L)
    winners = np.stack([_most_frequent(neighbours[..., column]) for column in range(own.shape[1])], axis=1)
    rows = np.arange(len(own))
    votes = neighbours[rows[:, None], winners, np.arange(own.shape[1])]
    # Labels are nested: the only path that ends at the finest label is that of any item which has it.
    inconsistent = (votes != neighbours[rows, winners[:, 0]]).any(1)
    right = (votes == own).all(1)
    counted = ranked & (result.per_query[f"positives_l{own.shape[1]}"] > 0).to_numpy()
    return {f"FPA@{k}": _share(right[counted]), f"TICE@{k}": _share(inconsistent[ranked])}


def _most_frequent(labels: Integers) -> Integers:
    """Return the first position of the most frequent label in each row."""
    counts = np.zeros(labels.shape, np.int64)
    for column in labels.T:
        counts += labels == column[:, None]
    first: Integers = counts.argmax(1)
    return first


def _share(flags: Booleans) -> float:
    return float(flags.mean()) if len(flags) else math.nan


def grouped_recall(
    embeddings: Vectors,
    labels: LabelMatrix | Tensor,
    *,
    k: int = 1,
    level: int | None = None,
    classes_per_group: int = 10,
    seed: int = 0,
) -> float:
    """Measure R@k in random groups of as many classes each, so that it can be compared between sets of images.

    R@k falls as a set has more classes, of any quality of the embeddings: that of a training set and that of a test
    set, or of two data sets, say little about overfitting or difficulty. Grouped Recall@K (Zhdanov and Karpukhin,
    "Catching Image Retrieval Generalization", arXiv 2306.13357) divides the classes into random groups of a fixed
    number of classes, takes R@k in each, where an image is ranked against the others of its group, and returns the
    mean over the groups. Classes that are left over, too few for a group, are not used, and neither are groups in
    which no class has two images.

    Args:
        embeddings: float, shape (n, d).
        labels: Integers, shape (n, L), finest first, or (n,); -1 at every level for images without labels, which are
            left out.
        k: Number of first items, of which one has to be of the query's class.
        level: Level of the classes, 1 for the coarsest; by default the finest.
        classes_per_group: Number of classes in a group.
        seed: Seed of the division into groups.

    Returns:
        Share from 0 to 1; NaN if no group is used.

    Raises:
        InputError: Embeddings and labels do not fit each other.
        ConfigurationError: There are fewer classes than a group has, no such level, or k is beyond a group.

    >>> labels = np.array([0, 0, 1, 1, 2, 2])
    >>> embeddings = np.array([[1, 0], [1, 0.1], [1, 0.2], [1, 0.3], [1, 0.4], [1, 0.9]])
    >>> evaluate_retrieval(embeddings, labels, metrics=["R@1"]).means["R@1"]
    0.5
    >>> grouped_recall(embeddings, labels, classes_per_group=2)
    0.75
    """
    vectors, own = as_tensor(embeddings), label_array(labels, "query")
    if isinstance(own, LabelSets):
        raise ConfigurationError("groups of classes need one label per image and level")
    column = own[:, column_of(own.shape[1] if level is None else level, own.shape[1])]
    column = np.where(labelled_rows(own), column, -1)
    classes = np.unique(column[column >= 0])
    if not 1 <= classes_per_group <= len(classes):
        raise ConfigurationError(
            f"`classes_per_group` is {classes_per_group:,}; expected 1 to {len(classes):,}, the number of classes"
        )
    n_groups = len(classes) // classes_per_group
    drawn = np.random.default_rng(seed).permutation(len(classes))[: n_groups * classes_per_group]
    group_of_class = np.full(len(classes), -1)
    group_of_class[drawn] = np.arange(len(drawn)) // classes_per_group
    group = np.where(column >= 0, group_of_class[np.searchsorted(classes, column)], -1)
    recalls = []
    starts = np.searchsorted(np.sort(group), np.arange(n_groups))
    for rows in np.split(np.argsort(group, kind="stable"), starts)[1:]:  # the first part is of no group
        if len(np.unique(column[rows])) < len(rows):
            part = evaluate_retrieval(vectors[torch.from_numpy(rows)], column[rows], metrics=[f"R@{k}"])
            recalls.append(part.means[f"R@{k}"])
    return float(np.mean(recalls)) if recalls else math.nan


def label_noise_ceiling(agreement: float) -> float:
    """Return the largest R@1 and P@k at a level that can be expected where the labels have errors.

    It bounds every model that sees images and not the labels drawn for them, however good: sqrt(agreement). Let q(c)
    be the probability that an annotator gives an image the label c. Two annotators agree on it with probability a =
    sum over c of q(c)^2. An item that is ranked for it, by any rule, has its label with probability sum over c of
    q(c) q'(c) <= max over c of q(c) <= sqrt(a); and the mean of sqrt(a) over the images is at most the square root of
    the mean. A model that ranks the images of the query's true class first, in random order, is expected to have an
    R@1 of at most the agreement itself.

    The bound needs labels of single images, given independently. It does not hold where all images of a class took
    their label from one decision, as the levels above landmarks in H-GLDv2 did: two photographs of a landmark then
    have the same label, right or wrong, and R@1 can be 1. Nor does it hold for AP, mAP@R and H-AP: with classes of
    very different sizes a ranking can serve two labels of a query at once, if the few images of one come before the
    many of the other. Means leave out queries without a positive; where these are a share s of all, divide by 1 - s.

    Args:
        agreement: Share of images, from 0 to 1, on which two labellings made like the evaluated one agree at the
            level. If that one was adjudicated, the agreement of single annotators is too low.

    Raises:
        ConfigurationError: The agreement is not between 0 and 1.

    >>> round(label_noise_ceiling(0.93), 4)
    0.9644
    """
    if not 0 <= agreement <= 1:
        raise ConfigurationError(f"`agreement` is {agreement}; expected a share between 0 and 1")
    return math.sqrt(agreement)

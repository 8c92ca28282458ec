"""Measures beside the metrics of single rankings, and metrics of a model while it embeds batches.

Consistency across levels, recall in groups of classes and label noise are functions of embeddings and labels, and not
among the metrics of :func:`hgld.evaluation.evaluate_retrieval`, which ranks levels and never sees the labels of
single items.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.processes import current_processes
from hgld.compute.scoring import Vectors, as_tensor
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.evaluate import EvaluationConfig, build_task, evaluate_retrieval, evaluate_tasks, label_array
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.retrieval_task import split_task
from hgld.hierarchy.label_matrix import LabelMatrix, LabelSets, column_of, labelled_rows


def path_consistency(
    query_embeddings: Vectors,
    query_labels: LabelMatrix | torch.Tensor,
    gallery_embeddings: Vectors | None = None,
    gallery_labels: LabelMatrix | torch.Tensor | None = None,
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


def _most_frequent(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the first position of the most frequent label in each row."""
    counts = np.zeros(labels.shape, np.int64)
    for column in labels.T:
        counts += labels == column[:, None]
    first: npt.NDArray[np.int64] = counts.argmax(1)
    return first


def _share(flags: npt.NDArray[np.bool_]) -> float:
    return float(flags.mean()) if len(flags) else math.nan


def grouped_recall(
    embeddings: Vectors,
    labels: LabelMatrix | torch.Tensor,
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


#: Embeddings, labels, whether each image is a query, and ids; None for what was not given.
_Batch = tuple[torch.Tensor, LabelMatrix, npt.NDArray[np.bool_] | None, npt.NDArray[Any] | None]


class RetrievalMetric:
    """Collect embeddings and labels batch by batch, then evaluate them as :func:`evaluate_retrieval` does.

    It has the methods ``update``, ``compute`` and ``reset`` of torchmetrics, but does not need that package; in
    Lightning, call ``self.log_dict(metric.compute())`` at the end of an epoch. Numbers are exact, not means over
    batches: those of ``evaluate_retrieval`` for all images, in the order of the batches, first those of the first
    process. Where ``torch.distributed`` is initialised, ``compute`` gathers the images of all processes, which share
    the work and all get the result; every process has to call it.

    Embeddings are kept in the memory of the CPU. Samplers for several processes, such as ``DistributedSampler``, may
    repeat images to give each process as many. **Pass ids then**: an image that comes again is not counted again.

    Args:
        metrics: Names such as ``H-AP``; by default :func:`~hgld.evaluation.metrics.default_metrics`.
        **settings: Further settings of :class:`EvaluationConfig`, such as ``relevance_alpha`` or
            ``ranking=RankingConfig(device="cuda")``.

    >>> metric = RetrievalMetric(["R@1", "H-AP"])
    >>> metric.update(torch.tensor([[1.0, 0.0], [0.8, 0.3]]), torch.tensor([[0, 0], [0, 0]]))
    >>> metric.update(torch.tensor([[0.9, 0.1], [0.0, 1.0]]), torch.tensor([[1, 0], [2, 1]]))
    >>> metric.compute()
    {'R@1': 0.0, 'H-AP': 0.888888888888889}
    >>> metric.reset()
    """

    def __init__(self, metrics: Sequence[str] | None = None, **settings: Any) -> None:
        self._config = EvaluationConfig(None if metrics is None else tuple(metrics), **settings)
        self._batches: list[_Batch] = []

    def update(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor | LabelMatrix,
        *,
        is_query: torch.Tensor | npt.ArrayLike | None = None,
        ids: Sequence[Any] | torch.Tensor | npt.NDArray[Any] | None = None,
    ) -> None:
        """Add a batch of images.

        Args:
            embeddings: float, shape (B, d), on any device.
            labels: Integers, shape (B, L), finest first; or (B,) for one level. Images with -1 at every level are
                excluded.
            is_query: bool, shape (B,); True for queries, False for the gallery that is ranked for them. By default
                every image is ranked against all others.
            ids: Ids of the images, integers or texts, shape (B,). Images are then in the order of their ids, so that
                results do not depend on batches and processes, and count once.

        Raises:
            InputError: The arguments are not of as many images, or labels are not integers.
        """
        matrix = label_array(labels, "query")
        if isinstance(matrix, LabelSets):
            raise InputError("batches have one label per image and level; found label sets")
        mask = None if is_query is None else _array(is_query).astype(bool)
        names = None if ids is None else _array(ids)
        lengths = [len(part) for part in (embeddings, matrix, mask, names) if part is not None]
        if len(set(lengths)) > 1:
            raise InputError(
                f"the arguments of a batch have {', '.join(map(str, lengths))} rows; expected the same number"
            )
        self._batches.append((embeddings.detach().to("cpu", copy=True), matrix.copy(), mask, names))

    def compute(self) -> dict[str, float]:
        """Return the mean of each metric over the queries of all batches and processes.

        Raises:
            InputError: There are no images, only some batches have ids or queries, or see :func:`evaluate_retrieval`.
            ConfigurationError: See :func:`evaluate_retrieval`.
        """
        processes = current_processes()
        batches = [batch for share in processes.gather(self._batches) for batch in share]
        if not batches:
            raise InputError("no images were added; call `update` with a batch before `compute`")
        vectors, matrices, masks, names = zip(*batches, strict=True)
        for parts, name in ((masks, "is_query"), (names, "ids")):
            if len({part is None for part in parts}) > 1:
                raise InputError(f"only some batches have `{name}`; give it with all batches, or none")
        embeddings, labels = torch.cat(vectors), np.concatenate(matrices)
        is_query = None if masks[0] is None else np.concatenate(masks)
        ids = None if names[0] is None else np.concatenate(names)
        if ids is not None:  # an image may be a query and in the gallery
            role = np.zeros(len(ids), bool) if is_query is None else is_query
            keys = np.stack([np.unique(ids, return_inverse=True)[1], role])
            rows = np.unique(keys, axis=1, return_index=True)[1]
            embeddings, labels, ids = embeddings[torch.from_numpy(rows)], labels[rows], ids[rows]
            is_query = None if is_query is None else is_query[rows]
        task = split_task(embeddings, labels, is_query, ids=ids)
        (result,) = evaluate_tasks([task], replace(self._config, processes=processes))
        return result.means

    def reset(self) -> None:
        """Forget all images."""
        self._batches = []


def _array(values: Any) -> npt.NDArray[Any]:
    return values.cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)

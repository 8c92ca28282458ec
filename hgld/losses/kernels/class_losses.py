"""Base classes of losses of one level: of pairs, of proxies, of pytorch-metric-learning."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hgld.errors import InputError, require
from hgld.losses.base import Loss, shared_classes, warn_without_positives
from hgld.losses.kernels.batches import inner_products


class Items(NamedTuple):
    """Images with their classes at one level."""

    embeddings: Tensor  #: shape (n, d)
    classes: Tensor  #: int64, shape (n,); or (n, K), -1 as padding, if the loss takes label sets


class ClassLoss(Loss):
    """A loss of the finest level; :class:`~hgld.losses.SumOverLevels` applies it to all levels."""

    def forward_batch(
        self,
        embeddings: Tensor,
        labels: Tensor,
        reference_embeddings: Tensor | None = None,
        reference_labels: Tensor | None = None,
    ) -> Tensor:
        classes = labels[..., 0]
        references = None
        reference_classes = None
        if reference_embeddings is not None and reference_labels is not None:
            reference_classes = reference_labels[..., 0]
            references = Items(reference_embeddings, reference_classes)
        value = self.forward_classes(Items(embeddings, classes), references)
        if self.uses_references:
            warn_without_positives(classes, reference_classes)
        return value

    @abstractmethod
    def forward_classes(self, queries: Items, references: Items | None) -> Tensor:
        """Return the loss of checked input: a scalar of the dtype of the queries' embeddings.

        Args:
            queries: The batch, in float32 or float64.
            references: Items of the same dtype, or of 16 bits and without gradient, see
                :func:`~hgld.losses.kernels.batches.inner_products`. None: the batch itself.
        """


class PairLoss(ClassLoss):
    """A loss of the scores of all pairs of a query and a reference, with O(B N) memory.

    Images with several labels are positives if they have any class in common.

    Args:
        include_query: Count the query as one of its own positives when there are no references.
    """

    takes_label_sets = True

    def __init__(self, include_query: bool = True) -> None:
        super().__init__()
        self.include_query = include_query

    def forward_classes(self, queries: Items, references: Items | None) -> Tensor:
        items = references or queries
        scores = self.scores(queries.embeddings, items.embeddings)
        positives = shared_classes(queries.classes, items.classes)
        negatives = ~positives
        if references is None and not self.include_query:
            positives.fill_diagonal_(False)
        return self.forward_pairs(scores, positives, negatives)

    def scores(self, embeddings: Tensor, references: Tensor) -> Tensor:
        """Return the scores of all pairs, shape (B, N): cosines unless a loss overrides this."""
        return inner_products(embeddings, references)

    @abstractmethod
    def forward_pairs(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Return the loss of the scores.

        Args:
            scores: float32 or float64 tensor of shape (B, N).
            positives: Boolean mask of the same shape.
            negatives: Boolean mask of the same shape; pairs in neither mask are excluded.

        Returns:
            Scalar of the dtype of ``scores``.
        """


def euclidean_distances(scores: Tensor) -> Tensor:
    """Return the Euclidean distances of unit vectors from their dot products.

    The gradient at distance 0 is 0.

    >>> euclidean_distances(torch.tensor([-1.0, 0.5])).tolist()
    [2.0, 1.0]
    """
    return (2 - 2 * scores).clamp(min=1e-8).sqrt()


def mean_over_queries(losses: Tensor, n_positives: Tensor) -> Tensor:
    """Return the mean over the queries that have positives.

    Args:
        losses: Float tensor of shape (B,).
        n_positives: Number of positives of each query, of the same shape.

    Raises:
        InputError: No query has a positive.
    """
    has_positive = n_positives > 0
    if not has_positive.any():
        raise InputError(
            f"none of {len(losses)} queries has a positive; batches for a loss of average precision need two or more "
            "images of a class"
        )
    return losses[has_positive].mean()


class MetricLearningLoss(ClassLoss):
    """A loss of pytorch-metric-learning over mined pairs or triplets.

    Distances of the library must have ``normalize_embeddings=False``, as virtual items of SiMix are
    not normalised.

    Args:
        loss: Loss of pytorch-metric-learning.
        miner: Miner of the same library that selects pairs or triplets. Default: all pairs or
            triplets.
        include_query: Count the query as one of its own positives when there are no references.
    """

    def __init__(
        self, loss: nn.Module, miner: nn.Module | None = None, *, include_query: bool = False
    ) -> None:
        super().__init__()
        self._loss = loss
        self._miner = miner
        self.include_query = include_query

    def forward_classes(self, queries: Items, references: Items | None) -> Tensor:
        embeddings, classes = queries
        reference_embeddings = reference_classes = None
        if references is not None:
            reference_embeddings = references.embeddings.to(embeddings.dtype)
            reference_classes = references.classes
        elif self.include_query:
            # the library excludes queries only if the references' classes are the same object
            reference_embeddings, reference_classes = embeddings, classes.clone()
        mined = None
        if self._miner is not None:
            mined = self._miner(embeddings, classes, reference_embeddings, reference_classes)
        value: Tensor = self._loss(
            embeddings, classes, mined, reference_embeddings, reference_classes
        )
        return value


class ProxyBasedLoss(ClassLoss):
    """A loss that compares embeddings with one learnt proxy per class and ignores references.

    Args:
        n_classes: Number of classes, which are numbered 0 to ``n_classes - 1``.
        dim: Dimension d of the embeddings.
    """

    uses_references = False

    def __init__(self, n_classes: int, dim: int) -> None:
        super().__init__()
        require(min(n_classes, dim) >= 1, "at least 1 of each", n_classes=n_classes, dim=dim)
        self.n_classes = n_classes
        self.dim = dim

    def forward_classes(self, queries: Items, references: Items | None) -> Tensor:
        embeddings, classes = queries
        check_proxies(embeddings, classes, self.n_classes, self.dim)
        return self.forward_proxies(embeddings, classes)

    @abstractmethod
    def forward_proxies(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """Return the loss of a batch.

        Args:
            embeddings: float32 or float64 tensor of shape (B, d).
            classes: int64 tensor of shape (B,), or (B, K) for label sets; each class has a proxy.
        """


def uniform_proxies(n_classes: int, dim: int) -> torch.nn.Parameter:
    """Return (n_classes, d) proxies drawn uniformly from ±1 / sqrt(d), as in NormSoftMax."""
    bound = dim**-0.5
    return torch.nn.Parameter(torch.empty(n_classes, dim).uniform_(-bound, bound))


def check_proxies(embeddings: Tensor, classes: Tensor, n_classes: int, dim: int) -> None:
    """Check that embeddings and proxies have one dimension, and that each class has a proxy.

    Raises:
        InputError: Dimensions differ, or a class has no proxy.
    """
    if embeddings.shape[1] != dim:
        raise InputError(
            f"`embeddings` have dimension {embeddings.shape[1]}, but the loss has proxies of dimension {dim}"
        )
    check_classes(classes, n_classes)


def check_classes(classes: Tensor, n_classes: int) -> None:
    """Raise an :class:`InputError` if a class has no learnt parameters."""
    if classes.ndim == 2:  # label sets, with -1 as padding
        classes = classes[classes >= 0]
    low = int(classes.min())
    high = int(classes.max())
    if low < 0 or high >= n_classes:
        raise InputError(
            f"`labels` have classes {low} to {high}, but the loss was built for 0 to {n_classes - 1}; number the "
            "labels from 0 within each column, and build the loss for as many classes"
        )

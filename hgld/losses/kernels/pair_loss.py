"""Base class of losses of the scores of all pairs."""

from __future__ import annotations

from abc import abstractmethod

import torch

from hgld.errors import InputError
from hgld.losses.base import shared_classes
from hgld.losses.kernels.class_loss import ClassLoss
from hgld.losses.kernels.products import inner_products


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

    def forward_classes(
        self,
        embeddings: torch.Tensor,
        classes: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_classes: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :meth:`ClassLoss.forward_classes`."""
        if reference_embeddings is None or reference_classes is None:
            same = shared_classes(classes, classes)
            negatives = ~same
            if not self.include_query:
                same.fill_diagonal_(False)
            return self.forward_pairs(embeddings @ embeddings.T, same, negatives)
        same = shared_classes(classes, reference_classes)
        return self.forward_pairs(inner_products(embeddings, reference_embeddings), same, ~same)

    @abstractmethod
    def forward_pairs(self, scores: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        """Return the loss of the scores.

        Args:
            scores: float32 or float64 tensor of shape (B, N).
            positives: Boolean mask of the same shape.
            negatives: Boolean mask of the same shape; pairs in neither mask are excluded.

        Returns:
            Scalar of the dtype of ``scores``.
        """


def euclidean_distances(scores: torch.Tensor) -> torch.Tensor:
    """Return the Euclidean distances of unit vectors with these dot products; the gradient at distance 0 is 0.

    >>> euclidean_distances(torch.tensor([-1.0, 0.5])).tolist()
    [2.0, 1.0]
    """
    return (2 - 2 * scores).clamp(min=1e-8).sqrt()


def mean_over_queries(losses: torch.Tensor, n_positives: torch.Tensor) -> torch.Tensor:
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

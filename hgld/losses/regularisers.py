"""Regularisers of embeddings, which are added to other losses: their entropy, and their lengths."""

from __future__ import annotations

import torch
from torch import Tensor

from hgld.errors import require_at_least
from hgld.losses.base import Loss, WeightedSum
from hgld.losses.pair_losses import XBMContrastive


class KoLeo(Loss):
    """Negative entropy of a batch's embeddings, estimated from distances to nearest neighbours.

    ::

        -(1/B) sum over i of log of the distance of embedding i to its nearest neighbour in the batch

    is the estimator of the negative differential entropy by Kozachenko and Leonenko, up to
    constants (Sablayrolles et al., ICLR 2019). As a loss, it spreads embeddings. Labels and
    references are ignored, and the distance of equal embeddings counts as 1e-8, without gradient.

    >>> KoLeo()(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]]), torch.tensor([[0], [0], [1]]))
    tensor(0.9946)
    """

    takes_label_sets = True
    uses_references = False

    def forward_batch(
        self, embeddings: Tensor, labels: Tensor, *references: Tensor | None
    ) -> Tensor:
        if len(embeddings) < 2:
            return embeddings.sum() * 0
        with torch.no_grad():
            nearest = (embeddings @ embeddings.T).fill_diagonal_(-torch.inf).argmax(1)
        squares = (embeddings - embeddings[nearest]).square().sum(1)
        return -squares.clamp(min=1e-16).log().mean() / 2


class SphericalConstraint(Loss):
    """The variance of the lengths of a batch's embeddings, SEC (Zhang et al., NeurIPS 2020).

    It is added to a loss of cosines, whose gradient depends on the lengths of embeddings before
    normalisation::

        loss(normalize(x), labels) + 0.5 * SphericalConstraint()(x, labels)

    Models of hgld normalise embeddings in their last layer, so the variance of their lengths is 0;
    use this loss in training loops of your own. Labels and references are ignored.

    >>> SphericalConstraint()(torch.tensor([[3.0, 4.0], [0.0, 1.0]]), torch.tensor([[0], [1]]))
    tensor(4.)
    """

    takes_label_sets = takes_any_length = True
    uses_references = False

    def forward_batch(
        self, embeddings: Tensor, labels: Tensor, *references: Tensor | None
    ) -> Tensor:
        lengths: Tensor = embeddings.norm(dim=1)
        return (lengths - lengths.mean()).square().mean()


def irt(lambda_: float = 0.7, margin: float = 0.5) -> WeightedSum:
    """Return IRT_R, the contrastive loss plus an entropy regulariser (arXiv 2102.05644).

    The contrastive loss is :class:`XBMContrastive`, which suits the paper's memory.

    Args:
        lambda_: Weight of :class:`~hgld.losses.KoLeo`, 0 or more; unofficial code uses 0.7 for CUB.
        margin: Cosine above which negatives are penalised, -1 to 1.

    Returns:
        Loss with the parts ``contrastive`` and ``entropy``.

    >>> irt().weights
    {'contrastive': 1.0, 'entropy': 0.7}
    """
    require_at_least(0, lambda_=lambda_)
    return WeightedSum(
        {"contrastive": (1.0, XBMContrastive(margin)), "entropy": (lambda_, KoLeo())}
    )

"""The entropy of embeddings as a regulariser (KoLeo), and the loss of IRT_R that has it."""

from __future__ import annotations

import torch

from hgld.errors import require_at_least
from hgld.losses.base import Loss
from hgld.losses.pair_losses import XBMContrastive
from hgld.losses.weighted_sum import WeightedSum


class KoLeo(Loss):
    """-(1/B) sum over i of log of the distance of embedding i to its nearest neighbour in the batch.

    The estimate of the negative differential entropy by Kozachenko and Leonenko, up to constants (Sablayrolles et
    al., ICLR 2019), which spreads embeddings. Labels and references are ignored, and the distance of equal embeddings
    counts as 1e-8, without gradient.

    >>> KoLeo()(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]]), torch.tensor([[0], [0], [1]]))
    tensor(0.9946)
    """

    takes_label_sets = True

    def forward_batch(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :meth:`hgld.losses.Loss.forward_batch`."""
        if len(embeddings) < 2:
            return embeddings.sum() * 0
        with torch.no_grad():
            nearest = (embeddings @ embeddings.T).fill_diagonal_(-torch.inf).argmax(1)
        squares = (embeddings - embeddings[nearest]).square().sum(1)
        return -squares.clamp(min=1e-16).log().mean() / 2

    def reference_part(self) -> Loss | None:
        """Return None: the entropy is that of the batch."""
        return None


def irt(lambda_: float = 0.7, margin: float = 0.5) -> WeightedSum:
    """Return the contrastive loss with an entropy regulariser, IRT_R (El-Nouby et al., arXiv 2102.05644).

    Its first term is :class:`XBMContrastive`, also for the memory that the paper has.

    Args:
        lambda_: Weight of :class:`~hgld.losses.KoLeo`, 0 or more; 0.7 as unofficial code has it for CUB.
        margin: Cosine above which negatives are penalised, -1 to 1.

    Returns:
        Loss with the parts ``contrastive`` and ``entropy``.

    Raises:
        ConfigurationError: A number is out of range.

    >>> irt().weights
    {'contrastive': 1.0, 'entropy': 0.7}
    """
    require_at_least(0, lambda_=lambda_)
    return WeightedSum({"contrastive": (1.0, XBMContrastive(margin)), "entropy": (lambda_, KoLeo())})

"""The lifted structure loss."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from hgld.errors import ConfigurationError
from hgld.losses.kernels.pair_loss import PairLoss, euclidean_distances


class LiftedStructureLoss(PairLoss):
    """Each positive pair against all negatives of both of its items (Song et al., CVPR 2016, Eq. 4).

    With Euclidean distances D, the mean over the positive pairs i, j of ::

        1/2 [ log( sum over negatives k of i of exp(margin - D_ik)
                   + sum over negatives k of j of exp(margin - D_jk) ) + D_ij ]_+^2

    A query is not its own positive. With references, the negatives of a reference are queries. Pairs whose items have
    no negatives count 0, and so does a batch without positive pairs.

    Args:
        margin: Margin alpha, 1 in that paper.

    Raises:
        ConfigurationError: The margin is not a number.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> LiftedStructureLoss()(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(2.3008)
    """

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__(include_query=False)
        if math.isnan(margin):
            raise ConfigurationError("`margin` is not a number")
        self.margin = margin

    def forward_pairs(self, scores: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        """See :meth:`~hgld.losses.kernels.pair_loss.PairLoss.forward_pairs`."""
        distances = euclidean_distances(scores)
        lowest = torch.finfo(scores.dtype).min / 2  # logsumexp of -inf alone has no gradient
        exponents = (self.margin - distances).masked_fill(~negatives, lowest)
        log_sums = torch.logaddexp(exponents.logsumexp(1, keepdim=True), exponents.logsumexp(0, keepdim=True))
        terms = functional.relu(log_sums + distances).square() / 2
        return torch.where(positives, terms, 0).sum() / positives.sum().clamp(min=1)

"""BlackBox-AP, average precision whose gradient interpolates between rankings."""

from __future__ import annotations

from typing import Any

import torch

from hgld.errors import ConfigurationError
from hgld.losses.kernels.autograd import first_derivative_only
from hgld.losses.kernels.class_losses import PairLoss, mean_over_queries


class BlackBoxAP(PairLoss):
    """1 - AP with the gradient of a blackbox ranker (Rolinek et al., CVPR 2020).

    Ranks r are divided by the size of the retrieval set. If G is the gradient of the mean of 1 - AP with respect to
    r, scores s get the gradient -(r(s) - r(s + lambda G)) / lambda. Before ranking, positives lose and negatives gain
    half of ``margin * |z|``, where z is drawn from a normal distribution for each pair and call, with torch's global
    generator, as in the authors' code. The query is one of its own positives when there are no references. The loss
    is averaged over the queries that have positives.

    Args:
        lambda_: Distance that scores move along the gradient, above 0.
        margin: Scale of the noise that penalises positives, 0 or more.

    Raises:
        ConfigurationError: A number is out of range.
        InputError: (when called) No query has a positive.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> BlackBoxAP(margin=0.0)(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.1111)
    """

    def __init__(self, lambda_: float = 4.0, margin: float = 0.02) -> None:
        super().__init__()
        if not (lambda_ > 0 and margin >= 0):
            raise ConfigurationError(f"`lambda_` is {lambda_} and `margin` {margin}; expected above 0, and 0 or more")
        self.lambda_ = lambda_
        self.margin = margin

    def forward_pairs(self, scores: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        """See :meth:`~hgld.losses.kernels.class_losses.PairLoss.forward_pairs`."""
        handicap = self.margin * torch.randn_like(scores).abs() * (positives.to(scores.dtype) - 0.5)
        ranked = scores - handicap
        ranks: torch.Tensor = _BlackBoxRanks.apply(ranked, self.lambda_)
        ranks_among_positives = _ranks(torch.where(positives, ranked.detach(), -torch.inf))
        n_positives = positives.sum(dim=1)
        precisions = torch.where(positives, ranks_among_positives / ranks, 0)
        return mean_over_queries(1 - precisions.sum(dim=1) / n_positives.clamp(min=1), n_positives)


class _BlackBoxRanks(torch.autograd.Function):
    """Ranks from 1 / N for the highest score to 1, with the gradient of :class:`BlackBoxAP`."""

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, lambda_: float) -> torch.Tensor:
        ranks = _ranks(scores)
        ctx.save_for_backward(scores, ranks)
        ctx.lambda_ = lambda_
        return ranks

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        scores, ranks = ctx.saved_tensors
        return (_ranks(scores + ctx.lambda_ * gradients[0]) - ranks) / ctx.lambda_, None


def _ranks(scores: torch.Tensor) -> torch.Tensor:
    n_items = scores.shape[1]
    sorted_ranks = torch.arange(1, n_items + 1, device=scores.device, dtype=scores.dtype) / n_items
    order = scores.argsort(dim=1, descending=True)
    return torch.empty_like(scores).scatter_(1, order, sorted_ranks.expand_as(scores))

"""Surrogates of average precision at one level: soft histograms, and a blackbox ranker."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hgld.errors import require
from hgld.losses.kernels.batches import first_derivative_only
from hgld.losses.kernels.class_losses import PairLoss, mean_over_queries


class SoftBinAP(PairLoss):
    """1 - AP of a histogram of the scores (Revaud et al., ICCV 2019).

    The centres of the bins are evenly spaced from score 1 down to -1, and a score counts for the
    two nearest bins, in shares that are linear in its distances from them. With h^+_b and h_b the
    positives and all items of bin b, and H^+_b and H_b their cumulative sums down to b::

        AP = 1/|Omega^+| sum over b of h^+_b H^+_b / H_b.

    The loss is averaged over the queries that have positives.

    Args:
        n_bins: Number of bins, at least 2.
        include_query: Count the query as one of its own positives when there are no references, as
            the authors do.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SoftBinAP()(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.3106)
    """

    def __init__(self, n_bins: int = 20, include_query: bool = True) -> None:
        super().__init__(include_query)
        require(n_bins >= 2, "at least 2", n_bins=n_bins)
        self.n_bins = n_bins

    def forward_pairs(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        last = self.n_bins - 1
        position = ((1 - scores) * last / 2).clamp(0, last)
        upper = position.detach().floor().clamp(max=last - 1)
        lower_share = position - upper
        bins = upper.long()

        def histogram(items: Tensor) -> Tensor:
            counts = scores.new_zeros(len(scores), self.n_bins)
            counts = counts.scatter_add(1, bins, torch.where(items, 1 - lower_share, 0))
            return counts.scatter_add(1, bins + 1, torch.where(items, lower_share, 0))

        hits = histogram(positives)
        cumulative_hits = hits.cumsum(dim=1)
        cumulative_items = cumulative_hits + histogram(negatives).cumsum(dim=1)
        precision = cumulative_hits / torch.where(cumulative_items > 0, cumulative_items, 1)
        n_positives = positives.sum(dim=1)
        losses = 1 - (hits * precision).sum(dim=1) / n_positives.clamp(min=1)
        return mean_over_queries(losses, n_positives)


class FastAP(SoftBinAP):
    """1 - AP of a histogram of squared distances (Cakir et al., CVPR 2019).

    Squared distances of unit vectors are 2 - 2 s, so ``n_bins`` + 1 bins of distances from 0 to 4
    equal the bins of :class:`~hgld.losses.SoftBinAP` from 1 to -1. The query is excluded from its
    own retrieval set. pytorch-metric-learning has the same loss, but without references.

    Args:
        n_bins: Number of intervals between bin centres, at least 1.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> FastAP()(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.5000)
    """

    def __init__(self, n_bins: int = 10) -> None:
        require(n_bins >= 1, "at least 1", n_bins=n_bins)
        super().__init__(n_bins + 1, include_query=False)


class BlackBoxAP(PairLoss):
    """1 - AP with the gradient of a blackbox ranker (Rolinek et al., CVPR 2020).

    Ranks r are divided by the size of the retrieval set. If G is the gradient of the mean of 1 - AP
    with respect to r, scores s get the gradient -(r(s) - r(s + lambda G)) / lambda. Before ranking,
    positives lose and negatives gain half of ``margin * |z|``, where z is drawn from a normal
    distribution for each pair and call, with torch's global generator, as in the authors' code. The
    query is one of its own positives when there are no references. The loss is averaged over the
    queries that have positives.

    Args:
        lambda_: Distance that scores move along the gradient, above 0.
        margin: Scale of the noise that penalises positives, 0 or more.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> BlackBoxAP(margin=0.0)(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.1111)
    """

    def __init__(self, lambda_: float = 4.0, margin: float = 0.02) -> None:
        super().__init__()
        require(
            lambda_ > 0 and margin >= 0, "above 0, and 0 or more", lambda_=lambda_, margin=margin
        )
        self.lambda_ = lambda_
        self.margin = margin

    def forward_pairs(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        signs = positives.to(scores.dtype) - 0.5
        noisy_scores = scores - self.margin * torch.randn_like(scores).abs() * signs
        ranks: Tensor = _BlackBoxRanks.apply(noisy_scores, self.lambda_)
        ranks_among_positives = _ranks(torch.where(positives, noisy_scores.detach(), -torch.inf))
        precisions = torch.where(positives, ranks_among_positives / ranks, 0)
        n_positives = positives.sum(dim=1)
        losses = 1 - precisions.sum(dim=1) / n_positives.clamp(min=1)
        return mean_over_queries(losses, n_positives)


class _BlackBoxRanks(torch.autograd.Function):
    """Ranks from 1 / N for the highest score to 1, with the gradient of :class:`BlackBoxAP`."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, lambda_: float) -> Tensor:
        ranks = _ranks(scores)
        ctx.save_for_backward(scores, ranks)
        ctx.lambda_ = lambda_
        return ranks

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        scores, ranks = ctx.saved_tensors
        moved_ranks = _ranks(scores + ctx.lambda_ * gradients[0])
        return (moved_ranks - ranks) / ctx.lambda_, None


def _ranks(scores: Tensor) -> Tensor:
    n_items = scores.shape[1]
    sorted_ranks = torch.arange(1, n_items + 1, device=scores.device, dtype=scores.dtype) / n_items
    order = scores.argsort(dim=1, descending=True)
    return torch.empty_like(scores).scatter_(1, order, sorted_ranks.expand_as(scores))

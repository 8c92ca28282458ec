"""Losses of average precision that the papers compare with: histograms, and differences of whole rankings."""

from __future__ import annotations

from typing import Any

import torch

from hgld.errors import ConfigurationError
from hgld.losses.binary import PairLoss, mean_over_queries


class SoftBinAP(PairLoss):
    """1 - AP of a histogram of the scores (Revaud et al., ICCV 2019).

    Bins have evenly spaced centres from score 1 down to -1, and a score counts for the two nearest, in shares linear
    in its distances from them. With h^+_b and h_b the positives and all items of bin b, and H^+_b and H_b those of
    the bins down to b,

        AP = 1/|Omega^+| sum over b of h^+_b H^+_b / H_b.

    The loss is averaged over queries with positives.

    Args:
        n_bins: at least 2.
        include_query: without references, count the query as one of its own positives, as the authors do.

    Raises:
        ConfigurationError: there are too few bins.
        InputError: (when called) no query has a positive.
    """

    def __init__(self, n_bins: int = 20, include_query: bool = True) -> None:
        super().__init__(include_query)
        if n_bins < 2:
            raise ConfigurationError(f"n_bins is {n_bins}; expected at least 2")
        self.n_bins = n_bins

    def of_pairs(self, scores: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        """See :class:`~hgld.losses.binary.PairLoss`."""
        last = self.n_bins - 1
        position = ((1 - scores) * last / 2).clamp(0, last)
        above = position.detach().floor().clamp(max=last - 1)
        share_below = position - above
        bins = above.long()

        def histogram(items: torch.Tensor) -> torch.Tensor:
            counts = scores.new_zeros(len(scores), self.n_bins)
            counts = counts.scatter_add(1, bins, torch.where(items, 1 - share_below, 0))
            return counts.scatter_add(1, bins + 1, torch.where(items, share_below, 0))

        found = histogram(positives)
        found_so_far = found.cumsum(dim=1)
        so_far = found_so_far + histogram(negatives).cumsum(dim=1)
        precision = found_so_far / torch.where(so_far > 0, so_far, 1)
        n_positives = positives.sum(dim=1)
        losses = 1 - (found * precision).sum(dim=1) / n_positives.clamp(min=1)
        return mean_over_queries(losses, n_positives)


class FastAP(SoftBinAP):
    """1 - AP of a histogram of squared distances (Cakir et al., CVPR 2019).

    Squared distances of unit vectors are 2 - 2 s, so their ``n_bins`` + 1 bins from 0 to 4 are those of
    :class:`SoftBinAP` from 1 to -1. A query is left out of its own retrieval set. pytorch-metric-learning has the
    same, but not against references.

    Args:
        n_bins: the intervals between bin centres, at least 1.

    Raises:
        ConfigurationError: there are too few bins.
        InputError: (when called) no query has a positive.
    """

    def __init__(self, n_bins: int = 10) -> None:
        if n_bins < 1:
            raise ConfigurationError(f"n_bins is {n_bins}; expected at least 1")
        super().__init__(n_bins + 1, include_query=False)


class BlackBoxAP(PairLoss):
    """1 - AP, its gradient from how the ranking changes when scores do (Rolinek et al., CVPR 2020).

    Ranks r are divided by the size of the retrieval set. Where G is the gradient by r of the mean of 1 - AP, scores s
    get the gradient -(r(s) - r(s + lambda G)) / lambda. Before ranking, positives lose and negatives gain half of
    ``margin`` |z|, z drawn anew from a normal distribution for each pair and call, with torch's global generator, as
    the authors' code does. The query is one of its own positives, and the mean is over queries with positives.

    Args:
        lambda_: how far scores move along the gradient, above 0.
        margin: how far positives have to be ahead, 0 or more.

    Raises:
        ConfigurationError: a number is out of its range.
        InputError: (when called) no query has a positive.
    """

    def __init__(self, lambda_: float = 4.0, margin: float = 0.02) -> None:
        super().__init__()
        if not (lambda_ > 0 and margin >= 0):
            raise ConfigurationError(f"lambda is {lambda_} and margin {margin}; expected above 0, and 0 or more")
        self.lambda_ = lambda_
        self.margin = margin

    def of_pairs(self, scores: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        """See :class:`~hgld.losses.binary.PairLoss`."""
        handicap = self.margin * torch.randn_like(scores).abs() * (positives.to(scores.dtype) - 0.5)
        ranked = scores - handicap
        ranks: torch.Tensor = _Ranks.apply(ranked, self.lambda_)
        among_positives = _ranks(torch.where(positives, ranked.detach(), -torch.inf))
        n_positives = positives.sum(dim=1)
        precisions = torch.where(positives, among_positives / ranks, 0)
        return mean_over_queries(1 - precisions.sum(dim=1) / n_positives.clamp(min=1), n_positives)


class _Ranks(torch.autograd.Function):
    """Ranks from 1 / N for the highest score to 1, with the gradient of :class:`BlackBoxAP`."""

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, lambda_: float) -> torch.Tensor:
        ranks = _ranks(scores)
        ctx.save_for_backward(scores, ranks)
        ctx.lambda_ = lambda_
        return ranks

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        scores, ranks = ctx.saved_tensors
        return (_ranks(scores + ctx.lambda_ * gradients[0]) - ranks) / ctx.lambda_, None


def _ranks(scores: torch.Tensor) -> torch.Tensor:
    n = scores.shape[1]
    places = torch.arange(1, n + 1, device=scores.device, dtype=scores.dtype) / n
    return torch.empty_like(scores).scatter_(1, scores.argsort(dim=1, descending=True), places.expand_as(scores))

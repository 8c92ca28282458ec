"""SoftBin-AP and FastAP, average precision of a soft histogram of the scores or of squared distances."""

from __future__ import annotations

import torch

from hgld.errors import ConfigurationError
from hgld.losses.kernels.class_losses import PairLoss, mean_over_queries


class SoftBinAP(PairLoss):
    """1 - AP of a histogram of the scores (Revaud et al., ICCV 2019).

    The centres of the bins are evenly spaced from score 1 down to -1, and a score counts for the two nearest bins, in
    shares that are linear in its distances from them. With h^+_b and h_b the positives and all items of bin b, and
    H^+_b and H_b their cumulative sums down to b::

        AP = 1/|Omega^+| sum over b of h^+_b H^+_b / H_b.

    The loss is averaged over the queries that have positives.

    Args:
        n_bins: Number of bins, at least 2.
        include_query: Count the query as one of its own positives when there are no references, as the authors do.

    Raises:
        ConfigurationError: There are too few bins.
        InputError: (when called) No query has a positive.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SoftBinAP()(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.3106)
    """

    def __init__(self, n_bins: int = 20, include_query: bool = True) -> None:
        super().__init__(include_query)
        if n_bins < 2:
            raise ConfigurationError(f"`n_bins` is {n_bins}; expected at least 2")
        self.n_bins = n_bins

    def forward_pairs(self, scores: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        """See :meth:`~hgld.losses.kernels.class_losses.PairLoss.forward_pairs`."""
        last = self.n_bins - 1
        position = ((1 - scores) * last / 2).clamp(0, last)
        upper = position.detach().floor().clamp(max=last - 1)
        lower_share = position - upper
        bins = upper.long()

        def histogram(items: torch.Tensor) -> torch.Tensor:
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

    Squared distances of unit vectors are 2 - 2 s, so their ``n_bins`` + 1 bins from 0 to 4 are those of
    :class:`~hgld.losses.SoftBinAP` from 1 to -1. The query is excluded from its own retrieval set.
    pytorch-metric-learning has the same loss, but without references.

    Args:
        n_bins: Number of intervals between bin centres, at least 1.

    Raises:
        ConfigurationError: There are too few bins.
        InputError: (when called) No query has a positive.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> FastAP()(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.5000)
    """

    def __init__(self, n_bins: int = 10) -> None:
        if n_bins < 1:
            raise ConfigurationError(f"`n_bins` is {n_bins}; expected at least 1")
        super().__init__(n_bins + 1, include_query=False)

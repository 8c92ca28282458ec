"""The selectively contrastive triplet loss."""

from __future__ import annotations

import torch
from torch.nn import functional

from hgld.errors import ConfigurationError
from hgld.losses.kernels.pair_loss import PairLoss
from hgld.losses.kernels.steps import check_temperature

#: Score above which a positive is taken for a copy of the query, as in the authors' code.
COPY = 0.9999


class SelectivelyContrastiveTriplet(PairLoss):
    """Easiest positive and hardest negative of each query, of which hard negatives are only pushed away.

    Xuan et al., Hard Negative Examples are Hard, but Useful, ECCV 2020. With s_p the score of the most similar
    positive of a query and s_n that of the most similar negative, the mean over queries of ::

        weight s_n                              if s_n > s_p or s_n > hard
        log(1 + exp((s_n - s_p) / tau))         else

    A query is not its own positive, nor are positives with a score above 0.9999, which are taken for copies of it.
    Queries without a positive or without a negative are not counted.

    Args:
        tau: Temperature, at least 1e-8.
        hard: Score above which a negative is hard in any case.
        weight: Weight lambda of the hard negatives, 0 or more.

    Raises:
        ConfigurationError: A number is out of range.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> SelectivelyContrastiveTriplet()(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.8800)
    """

    def __init__(self, tau: float = 0.1, hard: float = 0.8, weight: float = 1.0) -> None:
        super().__init__(include_query=False)
        check_temperature("tau", tau)
        if not weight >= 0:
            raise ConfigurationError(f"`weight` is {weight}; expected 0 or more")
        self.tau = tau
        self.hard = hard
        self.weight = weight

    def forward_pairs(self, scores: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        """See :meth:`~hgld.losses.kernels.pair_loss.PairLoss.forward_pairs`."""
        positives = positives & (scores <= COPY)
        valid = positives.any(dim=1) & negatives.any(dim=1)
        positive = scores.masked_fill(~positives, -2)[valid].amax(dim=1)
        negative = scores.masked_fill(~negatives, -2)[valid].amax(dim=1)
        is_hard = (negative > positive) | (negative > self.hard)
        easy_terms = functional.softplus((negative - positive) / self.tau)
        terms = torch.where(is_hard, self.weight * negative, easy_terms)
        return terms.sum() / valid.sum().clamp(min=1)

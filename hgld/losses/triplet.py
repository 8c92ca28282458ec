"""The triplet loss with several ways of mining, and its selectively contrastive variant."""

from __future__ import annotations

from typing import Literal

import torch
from torch.nn import functional

from hgld.errors import ConfigurationError, require_at_least
from hgld.losses.kernels.class_losses import MetricLearningLoss, PairLoss
from hgld.losses.kernels.steps import check_temperature

#: Score above which a positive is taken for a copy of the query, as in the authors' code.
COPY = 0.9999
#: How triplets are selected, see :class:`TripletLoss`.
Mining = Literal["semihard", "easy_positive", "all"]


class TripletLoss(MetricLearningLoss):
    """[s_n - s_p + margin]_+, averaged over the triplets where it is positive (Schroff et al., CVPR 2015).

    Triplets take O(B N^2) memory while they are selected, so this loss suits batches and small memories.

    Args:
        margin: Margin between positive and negative scores, above 0.
        mining: ``semihard`` takes all triplets whose negative is less similar than the positive, but by less than the
            margin. ``easy_positive`` takes the most similar positive of each query and the most similar negative
            below that, as the published code means to. ``all`` takes all triplets, as the published settings do
            without their option ``semihard``, also those of the sum over levels.
        include_query: Count the query as one of its own positives when there are no references, as the published code
            does. Its triplets then have a loss where a negative is more similar than 1 - margin, and are the only
            ones that ``easy_positive`` takes.

    Raises:
        ConfigurationError: The margin is out of range, or there is no such mining.

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> TripletLoss(margin=0.1, mining="all")(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.3800)
    """

    def __init__(self, margin: float = 0.05, mining: Mining = "semihard", *, include_query: bool = False) -> None:
        from pytorch_metric_learning import distances, losses, miners

        if not margin > 0:
            raise ConfigurationError(f"`margin` is {margin}; expected more than 0")
        cosine = distances.DotProductSimilarity(normalize_embeddings=False)
        if mining == "semihard":
            miner = miners.TripletMarginMiner(margin=margin, type_of_triplets="semihard", distance=cosine)
        elif mining == "easy_positive":
            miner = miners.BatchEasyHardMiner(distance=cosine)
        elif mining == "all":
            miner = None
        else:
            raise ConfigurationError(f'`mining` is "{mining}"; choose semihard, easy_positive or all')
        loss = losses.TripletMarginLoss(margin=margin, distance=cosine)
        super().__init__(loss, miner, include_query=include_query)


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
        require_at_least(0, weight=weight)
        self.tau = tau
        self.hard = hard
        self.weight = weight

    def forward_pairs(self, scores: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
        """See :meth:`~hgld.losses.kernels.class_losses.PairLoss.forward_pairs`."""
        positives = positives & (scores <= COPY)
        valid = positives.any(dim=1) & negatives.any(dim=1)
        positive = scores.masked_fill(~positives, -2)[valid].amax(dim=1)
        negative = scores.masked_fill(~negatives, -2)[valid].amax(dim=1)
        is_hard = (negative > positive) | (negative > self.hard)
        easy_terms = functional.softplus((negative - positive) / self.tau)
        terms = torch.where(is_hard, self.weight * negative, easy_terms)
        return terms.sum() / valid.sum().clamp(min=1)

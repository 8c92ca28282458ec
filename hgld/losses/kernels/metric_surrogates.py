"""Metrics of a ranking with surrogate ranks (:mod:`~hgld.losses.kernels.ranks`) as losses: AP, R@k, H-AP and NDCG.

Each class leaves the steps h^+ and h^- open. The losses called Sup use Heaviside's step for h^+, which has no
gradient, and an upper bound of it for h^-. So they bound 1 minus the metric from above, with ties counted against the
ranking. The losses called Smooth use sigmoids for both.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch

from hgld.errors import ConfigurationError
from hgld.evaluation.relevance import Relevance, exponential_gain
from hgld.losses.kernels.level_counts import count_levels
from hgld.losses.kernels.rank_loss import RankLoss
from hgld.losses.kernels.ranks import h_rank_plus, rank
from hgld.losses.kernels.relevance_options import RelevanceName, chosen_relevance
from hgld.losses.kernels.sorting import Ranking
from hgld.losses.kernels.step_sums import step_sums
from hgld.losses.kernels.steps import Step, check_temperature

#: Maps scores and levels, both (n_query, n_items), to the same with further columns of virtual positives.
Mixup = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


class SingleLevelLoss(RankLoss):
    """A rank loss whose items are positive from some level on, and negative below it.

    Args:
        plus: Step h^+, used among positives.
        step: Step h^-.
        level: Lowest level of a positive, 1 (the coarsest) to L. Default: L.
        mixup: Function that adds virtual positives to the retrieval set of each query, such as
            :class:`~hgld.losses.MixedPositives`.
        include_query: See :class:`RankLoss`.

    Raises:
        ConfigurationError: (when called) The labels have no such level.
    """

    def __init__(
        self, *, plus: Step, step: Step, level: int | None, mixup: Mixup | None, include_query: bool
    ) -> None:
        super().__init__(step=step, include_query=include_query)
        self.plus = plus
        self.level = level
        self.mixup = mixup

    def query_losses(self, scores: torch.Tensor, levels: torch.Tensor, n_levels: int) -> torch.Tensor:
        """See :meth:`RankLoss.query_losses`."""
        levels = self._binary(levels, n_levels)
        if self.mixup is not None:
            scores, levels = self.mixup(scores, levels)
        return self.binary_query_losses(scores, levels)

    @abstractmethod
    def binary_query_losses(self, scores: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
        """Return the loss of each query, as :meth:`query_losses`, from levels 1 (positive), 0 and -1 (excluded)."""

    @property
    def is_random(self) -> bool:
        """See :attr:`RankLoss.is_random`."""
        return self.mixup is not None

    def lowest_positive_level(self, n_levels: int) -> int:
        """See :meth:`RankLoss.lowest_positive_level`."""
        return n_levels if self.level is None else self.level

    def has_positive(self, levels: torch.Tensor, n_levels: int) -> torch.Tensor:
        """See :meth:`RankLoss.has_positive`."""
        return (self._binary(levels, n_levels) > 0).any(1)

    def _binary(self, levels: torch.Tensor, n_levels: int) -> torch.Tensor:
        level = self.lowest_positive_level(n_levels)
        if not 1 <= level <= n_levels:
            raise ConfigurationError(f"`level` is {level}; the labels have levels 1 (the coarsest) to {n_levels}")
        return (levels >= level).long() - (levels < 0).long()


class APLoss(SingleLevelLoss):
    """1 - AP with surrogate ranks (paper, Eq. 9)."""

    def binary_query_losses(self, scores: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
        """See :meth:`SingleLevelLoss.binary_query_losses`."""
        is_positive = levels > 0
        among_positives = scores.new_tensor([[[0, 0], [0, 1]]])
        ranking = Ranking(scores, levels)
        rank_plus = 1 + step_sums(scores, levels, among_positives, self.plus, ranking)
        rank_minus = step_sums(scores, levels, among_positives.flip(2), self.step, ranking)
        ratios = rank_plus / (rank_plus + rank_minus)
        return 1 - (ratios * is_positive).sum(1) / is_positive.sum(1)  # 0 / 0 without positives


class RecallLoss(SingleLevelLoss):
    """1 - R@k with surrogate ranks and a sigmoid for "among the first k", averaged over several k (paper, Eq. 16).

    Args:
        ks: Cut-offs k, at least one, each 1 or more.
        tau_star: Temperature of the sigmoid, in ranks, at least 1e-8.
        clip: Clip the number of positives among the first k to k.
        plus: See :class:`SingleLevelLoss`.
        step: See :class:`SingleLevelLoss`.
        level: See :class:`SingleLevelLoss`.
        mixup: See :class:`SingleLevelLoss`.
        include_query: See :class:`RankLoss`.

    Raises:
        ConfigurationError: A number is out of range.
    """

    def __init__(
        self,
        ks: tuple[int, ...],
        tau_star: float,
        *,
        clip: bool,
        plus: Step,
        step: Step,
        level: int | None,
        mixup: Mixup | None,
        include_query: bool,
    ) -> None:
        super().__init__(plus=plus, step=step, level=level, mixup=mixup, include_query=include_query)
        if not ks or not all(k >= 1 for k in ks):
            raise ConfigurationError(f"`ks` is {list(ks)}; expected at least one k, each 1 or more")
        check_temperature("tau_star", tau_star)
        self.ks = tuple(ks)
        self.tau_star = tau_star
        self.clip = clip

    def binary_query_losses(self, scores: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
        """See :meth:`SingleLevelLoss.binary_query_losses`."""
        is_positive = levels > 0
        n_positives = is_positive.sum(1)
        ranks = rank(scores, levels, 1, plus=self.plus, minus=self.step)
        recalls = torch.zeros_like(scores[:, 0])
        for k in self.ks:
            hits = (torch.sigmoid((k - ranks) / self.tau_star) * is_positive).sum(1)
            if self.clip:
                hits = hits.clamp(max=k)
            recalls = recalls + hits / n_positives.clamp(max=k)  # 0 / 0 without positives
        return 1 - recalls / len(self.ks)


class HAPLoss(RankLoss):
    """1 - H-AP with surrogate ranks (paper, Eqs. 19 and 21).

    Args:
        alpha: Exponent of the relevance (l/L)^alpha / |Omega^(l)| (Eq. 20), 0 or more.
        relevance: See :func:`~hgld.losses.kernels.relevance_options.chosen_relevance`.
        level_weights: See there.
        plus: Step h^+.
        step: Step h^-.
        finer: Step of H-rank^+ for items of finer levels than that of k. Default: ``plus``.
        include_query: See :class:`RankLoss`.

    Raises:
        ConfigurationError: See there.
    """

    def __init__(
        self,
        alpha: float,
        relevance: RelevanceName | Relevance,
        level_weights: tuple[float, ...] | None,
        *,
        plus: Step,
        step: Step,
        finer: Step | None,
        include_query: bool,
    ) -> None:
        super().__init__(step=step, include_query=include_query)
        self.relevance = chosen_relevance(relevance, alpha, level_weights)
        self.plus = plus
        self.finer = finer

    def query_losses(self, scores: torch.Tensor, levels: torch.Tensor, n_levels: int) -> torch.Tensor:
        """See :meth:`RankLoss.query_losses`."""
        relevance = self.relevance(count_levels(levels, n_levels))
        ranking = Ranking(scores, levels)
        rank_plus = h_rank_plus(
            scores, levels, relevance.to(scores.dtype), plus=self.plus, finer=self.finer, ranking=ranking
        )
        ratios = rank_plus / rank(scores, levels, n_levels, plus=self.plus, minus=self.step, ranking=ranking)
        total = relevance.gather(1, levels.clamp(min=0)).sum(1)
        return 1 - (ratios * (levels > 0)).sum(1) / total.to(scores.dtype)  # 0 / 0 without positives


class NDCGLoss(RankLoss):
    """1 - NDCG with surrogate ranks (paper, Eqs. 23 and 24).

    Args:
        plus: Step h^+.
        step: Step h^-.
        include_query: See :class:`RankLoss`.
    """

    def __init__(self, *, plus: Step, step: Step, include_query: bool) -> None:
        super().__init__(step=step, include_query=include_query)
        self.plus = plus

    def query_losses(self, scores: torch.Tensor, levels: torch.Tensor, n_levels: int) -> torch.Tensor:
        """See :meth:`RankLoss.query_losses`."""
        counts = count_levels(levels, n_levels)
        gain = exponential_gain(counts)
        ranks = rank(scores, levels, n_levels, plus=self.plus, minus=self.step)
        # the ideal ranking has the finest level first
        discounts = 1 / torch.log2(torch.arange(2, levels.shape[1] + 2, dtype=torch.float64, device=levels.device))
        cumulative = torch.nn.functional.pad(discounts.cumsum(0), (1, 0))
        ends = counts.flip(1).cumsum(1).long()
        ideal = (gain.flip(1) * cumulative[ends].diff(dim=1, prepend=cumulative.new_zeros(len(ends), 1))).sum(1)
        shares = (gain / ideal.unsqueeze(1)).to(scores.dtype)  # 0 / 0 without positives; float32 has no gain of 2^128
        return 1 - (shares.gather(1, levels.clamp(min=0)) / torch.log2(1 + ranks)).sum(1)

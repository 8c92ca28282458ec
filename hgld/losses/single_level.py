"""Rank losses that know positives and negatives alone: AP and recall, at one level of the hierarchy.

Sup and Smooth mean what they mean in :mod:`~hgld.losses.rank_losses`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch

from hgld.errors import ConfigurationError
from hgld.losses.kernels.rank_loss import RankLoss
from hgld.losses.kernels.ranks import rank
from hgld.losses.kernels.step_sums import step_sums
from hgld.losses.kernels.steps import Heaviside, Sigmoid, Step, SupRankStep
from hgld.losses.simix import MixedPositives

_SUPRANK = SupRankStep()
_SIGMOID = Sigmoid()


class SingleLevelLoss(RankLoss):
    """A rank loss for which an item is positive from some level on, and else negative.

    Args:
        level: the level, 1 (the coarsest) to L; None for L.
        plus: h^+, the step among positives.
        step: h^-.
        mixup: adds virtual positives to each query's retrieval set.
        include_query: see :class:`RankLoss`.

    Raises:
        ConfigurationError: (when called) labels have no such level.
    """

    def __init__(
        self, level: int | None, *, plus: Step, step: Step, mixup: MixedPositives | None, include_query: bool
    ) -> None:
        super().__init__(step=step, include_query=include_query)
        self.mixup = mixup
        self.level = level
        self.plus = plus

    def per_query(self, scores: torch.Tensor, levels: torch.Tensor, n_levels: int) -> torch.Tensor:
        """See :class:`RankLoss`."""
        levels = self._binary(levels, n_levels)
        if self.mixup is not None:
            scores, levels = self.mixup(scores, levels)
        return self.per_binary_query(scores, levels)

    @abstractmethod
    def per_binary_query(self, scores: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
        """As :meth:`per_query`, of levels 1, 0 and -1."""

    @property
    def draws(self) -> bool:
        """See :class:`RankLoss`."""
        return self.mixup is not None

    def has_positive(self, levels: torch.Tensor, n_levels: int) -> torch.Tensor:
        """See :class:`RankLoss`."""
        return (self._binary(levels, n_levels) > 0).any(1)

    def _binary(self, levels: torch.Tensor, n_levels: int) -> torch.Tensor:
        level = n_levels if self.level is None else self.level
        if not 1 <= level <= n_levels:
            raise ConfigurationError(f"the level is {level}; the labels have levels 1 (the coarsest) to {n_levels}")
        return (levels >= level).long() - (levels < 0).long()


class _AP(SingleLevelLoss):
    def per_binary_query(self, scores: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
        is_positive = levels > 0
        among_positives = scores.new_tensor([[[0, 0], [0, 1]]])
        rank_plus = 1 + step_sums(scores, levels, among_positives, self.plus)
        rank_minus = step_sums(scores, levels, among_positives.flip(2), self.step)
        ratios = rank_plus / (rank_plus + rank_minus)
        return 1 - (ratios * is_positive).sum(1) / is_positive.sum(1)  # 0 / 0 without positives


class SupAP(_AP):
    """L_Sup-AP (paper, Eq. 11).

    The mean over queries of ::

        1 - 1 / |Omega^+| * sum over k in Omega^+ of rank^+(k) / (rank^+(k) + rank_s^-(k))

    It lies between 0 and 1, and nowhere below 1 - AP (Eq. 9) with the steps ``eq4`` and ``cfg144``.

    Args:
        step: H^-.
        level: from which on an item is positive, 1 (the coarsest) to L; None for L.
        mixup: adds virtual positives to each query's retrieval set; see :mod:`~hgld.losses.simix`.
        include_query: see :class:`RankLoss`.

    Raises:
        ConfigurationError: (when called) labels have no such level.
    """

    def __init__(
        self,
        *,
        step: Step = _SUPRANK,
        level: int | None = None,
        mixup: MixedPositives | None = None,
        include_query: bool = True,
    ) -> None:
        super().__init__(level, plus=Heaviside(), step=step, mixup=mixup, include_query=include_query)


class SmoothAP(_AP):
    """L_Smooth-AP (Brown et al., Eqs. 5 to 8): :class:`SupAP` with sigmoids for all steps; no bound of 1 - AP.

    Args:
        step: h^+ and h^-.
        level: as in :class:`SupAP`.
        mixup: adds virtual positives to each query's retrieval set; see :mod:`~hgld.losses.simix`.
        include_query: see :class:`RankLoss`.

    Raises:
        ConfigurationError: (when called) labels have no such level.
    """

    def __init__(
        self,
        *,
        step: Step = _SIGMOID,
        level: int | None = None,
        mixup: MixedPositives | None = None,
        include_query: bool = True,
    ) -> None:
        super().__init__(level, plus=step, step=step, mixup=mixup, include_query=include_query)


class _Recall(SingleLevelLoss):
    def __init__(
        self,
        ks: Sequence[int],
        tau_star: float,
        clip: bool,
        plus: Step,
        step: Step,
        level: int | None,
        mixup: MixedPositives | None,
        include_query: bool,
    ) -> None:
        super().__init__(level, plus=plus, step=step, mixup=mixup, include_query=include_query)
        if not ks or not all(k >= 1 for k in ks):
            raise ConfigurationError(f"the ks of a recall loss are {list(ks)}; expected one or more, from 1 on")
        if not tau_star > 0:
            raise ConfigurationError(f"tau_star is {tau_star}; expected more than 0")
        self.ks = tuple(ks)
        self.tau_star = tau_star
        self.clip = clip

    def per_binary_query(self, scores: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
        is_positive = levels > 0
        n_positive = is_positive.sum(1)
        ranks = rank(scores, levels, 1, plus=self.plus, minus=self.step)
        recalls = torch.zeros_like(scores[:, 0])
        for k in self.ks:
            found = (torch.sigmoid((k - ranks) / self.tau_star) * is_positive).sum(1)
            if self.clip:
                found = found.clamp(max=k)
            recalls = recalls + found / n_positive.clamp(max=k)  # 0 / 0 without positives
        return 1 - recalls / len(self.ks)


#: The K of Patel et al., which the authors of SupRank took over.
DEFAULT_KS = (1, 2, 4, 8, 16)


class SupRecall(_Recall):
    """L_Sup-R@K (paper, Eq. 16).

    The mean over queries and over the k in K of ::

        1 - 1 / min(|Omega^+|, k) * sum over p in Omega^+ of sigma((k - rank^+(p) - rank_s^-(p)) / tau_star)

    The surrogate of the rank bounds the rank from above (with the steps ``eq4`` and ``cfg144``), but the loss does
    not bound 1 - TR@k (Eq. 14): its second sigmoid gives an item beyond rank k a part of what one before it has. So
    where k is small beside |Omega^+| the loss may even be negative; it is at most 1.

    Args:
        ks: K, one or more, each at least 1.
        tau_star: the temperature of the second sigmoid, above 0, in ranks.
        step: H^-.
        level: from which on an item is positive, 1 (the coarsest) to L; None for L.
        mixup: adds virtual positives to each query's retrieval set; see :mod:`~hgld.losses.simix`.
        include_query: see :class:`RankLoss`.

    Raises:
        ConfigurationError: a number is out of its range, or (when called) labels have no such level.
    """

    def __init__(
        self,
        ks: Sequence[int] = DEFAULT_KS,
        tau_star: float = 1.0,
        *,
        step: Step = _SUPRANK,
        level: int | None = None,
        mixup: MixedPositives | None = None,
        include_query: bool = True,
    ) -> None:
        super().__init__(ks, tau_star, False, Heaviside(), step, level, mixup, include_query)


class SmoothRecall(_Recall):
    """The Recall@k surrogate loss RS@k (Patel et al., Eqs. 5 to 7), with min(|P_q|, k) for |P_q| as in its section 3.

    :class:`SupRecall` with sigmoids for all steps; ``tau_star`` is called tau_1 there, and tau of ``step`` tau_2.

    Args:
        ks: as in :class:`SupRecall`.
        tau_star: as in :class:`SupRecall`.
        clip: clip what is found among the first k to k, so that the loss is not negative. Patel et al. did, the
            authors of SupRank did not.
        step: h^+ and h^-.
        level: as in :class:`SupRecall`.
        mixup: adds virtual positives to each query's retrieval set; see :mod:`~hgld.losses.simix`.
        include_query: see :class:`RankLoss`; Patel et al. leave the query out.

    Raises:
        ConfigurationError: a number is out of its range, or (when called) labels have no such level.
    """

    def __init__(
        self,
        ks: Sequence[int] = DEFAULT_KS,
        tau_star: float = 1.0,
        *,
        clip: bool = False,
        step: Step = _SIGMOID,
        level: int | None = None,
        mixup: MixedPositives | None = None,
        include_query: bool = True,
    ) -> None:
        super().__init__(ks, tau_star, clip, step, step, level, mixup, include_query)

"""Losses that are made of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
from torch import nn

from hgld.errors import ConfigurationError, InputError
from hgld.losses.base import Loss, check_batch
from hgld.losses.decomposability_losses import ProxyLoss
from hgld.losses.kernels.steps import Step, SupRankStep
from hgld.losses.rank_losses import SupHAP, SupNDCG
from hgld.losses.single_level import DEFAULT_KS, SupAP, SupRecall

_SUPRANK = SupRankStep()


class WeightedSum(Loss):
    """The sum of losses, each times a weight; ``parts`` has their values before weights.

    Args:
        losses: weight and loss by the name in ``parts``, at least one.

    Raises:
        ConfigurationError: there is nothing to add up.
    """

    def __init__(self, losses: Mapping[str, tuple[float, Loss]]) -> None:
        super().__init__()
        if not losses:
            raise ConfigurationError("a weighted sum of no losses; name at least one")
        self.weights = {name: weight for name, (weight, _) in losses.items()}
        self.losses = nn.ModuleDict({name: loss for name, (_, loss) in losses.items()})

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :class:`~hgld.losses.base.Loss`."""
        values = {
            name: loss(embeddings, labels, reference_embeddings, reference_labels)
            for name, loss in self.losses.items()
        }
        self.parts = {name: value.detach() for name, value in values.items()}
        return torch.stack([self.weights[name] * value for name, value in values.items()]).sum()

    def reference_part(self) -> Loss | None:
        """See :class:`~hgld.losses.base.Loss`."""
        parts = {name: cast(Loss, loss).reference_part() for name, loss in self.losses.items()}
        kept = {name: (self.weights[name], part) for name, part in parts.items() if part is not None}
        return WeightedSum(kept) if kept else None


class AtLevel(Loss):
    """A loss that is shown one column of the labels.

    Args:
        loss: the loss.
        column: 0 for the finest.
    """

    def __init__(self, loss: Loss, column: int) -> None:
        super().__init__()
        self.loss = loss
        self.column = column

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :class:`~hgld.losses.base.Loss`."""
        check_batch(embeddings, labels, reference_embeddings, reference_labels)
        if self.column >= labels.shape[1]:
            raise InputError(f"labels of {labels.shape[1]} levels have no column {self.column}")
        one = slice(self.column, self.column + 1)
        shown = None if reference_labels is None else reference_labels[:, one]
        value: torch.Tensor = self.loss(embeddings, labels[:, one], reference_embeddings, shown)
        self.parts = self.loss.parts
        return value

    def reference_part(self) -> Loss | None:
        """See :class:`~hgld.losses.base.Loss`."""
        part = self.loss.reference_part()
        return None if part is None else AtLevel(part, self.column)


class SumOverLevels(WeightedSum):
    """The sum of a loss at every level, each shown one column of the labels; the papers' tables call it Sigma.

    ``parts`` has the levels as ``level_1``, the coarsest, to ``level_L``.

    Args:
        make_loss: makes the loss of a column, 0 for the finest; proxies are as many as that column has classes.
        n_levels: L, at least 1.

    Raises:
        ConfigurationError: there are no levels.
    """

    def __init__(self, make_loss: Callable[[int], Loss], n_levels: int) -> None:
        levels = {f"level_{n_levels - column}": AtLevel(make_loss(column), column) for column in range(n_levels)}
        super().__init__({name: (1.0, loss) for name, loss in levels.items()})

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :class:`~hgld.losses.base.Loss`."""
        if labels.ndim == 2 and labels.shape[1] != len(self.losses):
            raise InputError(f"labels of {labels.shape[1]} levels, but the loss is a sum over {len(self.losses)}")
        return super().forward(embeddings, labels, reference_embeddings, reference_labels)


def roadmap(
    decomposability: Loss, lambda_: float = 0.1, *, step: Step = _SUPRANK, include_query: bool = True
) -> WeightedSum:
    """L_ROADMAP = (1 - lambda) L_Sup-AP + lambda L_DG (paper, Eq. 12); parts ``sup_ap`` and ``decomposability``.

    Args:
        decomposability: a :class:`~hgld.losses.DecomposabilityLoss`, as in ROADMAP of NeurIPS 2021 (with a
            lambda of 0.5), or a :class:`~hgld.losses.ProxyLoss`, which the paper keeps after its Table II.
        lambda_: 0 to 1.
        step: H^-.
        include_query: see :class:`~hgld.losses.RankLoss`.

    Raises:
        ConfigurationError: ``lambda_`` is out of its range.
    """
    return _decomposable("sup_ap", SupAP(step=step, include_query=include_query), decomposability, lambda_)


def rod_recall(
    decomposability: Loss,
    lambda_: float = 0.5,
    *,
    ks: Sequence[int] = DEFAULT_KS,
    tau_star: float = 1.0,
    step: Step = _SUPRANK,
    include_query: bool = True,
) -> WeightedSum:
    """L_ROD-R@K = (1 - lambda) L_Sup-R@K + lambda L_DG (paper, Eq. 17); parts ``sup_recall`` and ``decomposability``.

    Args:
        decomposability: as in :func:`roadmap`.
        lambda_: 0 to 1.
        ks: K, see :class:`~hgld.losses.SupRecall`.
        tau_star: see there.
        step: H^-.
        include_query: see :class:`~hgld.losses.RankLoss`.

    Raises:
        ConfigurationError: a number is out of its range.
    """
    rank_loss = SupRecall(ks, tau_star, step=step, include_query=include_query)
    return _decomposable("sup_recall", rank_loss, decomposability, lambda_)


def happier(
    proxies: ProxyLoss,
    lambda_: float = 0.1,
    *,
    alpha: float = 1.0,
    step: Step = _SUPRANK,
    include_query: bool = True,
) -> WeightedSum:
    """L_HAPPIER = (1 - lambda) L_Sup-H-AP + lambda L*_DG (paper, Eq. 22); parts ``sup_hap`` and ``decomposability``.

    HAPPIER_F is the same with an ``alpha`` above 1: 5 on SOP, 3 on iNaturalist (VII-C).

    Args:
        proxies: L*_DG.
        lambda_: 0 to 1.
        alpha: of the relevance, see :class:`~hgld.losses.SupHAP`.
        step: H^-.
        include_query: see :class:`~hgld.losses.RankLoss`.

    Raises:
        ConfigurationError: a number is out of its range.
    """
    rank_loss = SupHAP(alpha, step=step, include_query=include_query)
    return _decomposable("sup_hap", rank_loss, proxies, lambda_)


def rod_ndcg(
    proxies: ProxyLoss, lambda_: float = 0.1, *, step: Step = _SUPRANK, include_query: bool = True
) -> WeightedSum:
    """L_ROD-NDCG = (1 - lambda) L_Sup-NDCG + lambda L*_DG (paper, Eq. 25); ``sup_ndcg`` and ``decomposability``.

    Args:
        proxies: L*_DG.
        lambda_: 0 to 1.
        step: H^-.
        include_query: see :class:`~hgld.losses.RankLoss`.

    Raises:
        ConfigurationError: ``lambda_`` is out of its range.
    """
    return _decomposable("sup_ndcg", SupNDCG(step=step, include_query=include_query), proxies, lambda_)


def _decomposable(name: str, rank_loss: Loss, decomposability: Loss, lambda_: float) -> WeightedSum:
    if not 0 <= lambda_ <= 1:
        raise ConfigurationError(f"lambda is {lambda_}; expected 0 (the rank loss alone) to 1")
    return WeightedSum({name: (1 - lambda_, rank_loss), "decomposability": (lambda_, decomposability)})

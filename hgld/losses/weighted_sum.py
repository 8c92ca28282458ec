"""Weighted sums of losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import nn

from hgld.errors import ConfigurationError
from hgld.losses.base import Loss


class WeightedSum(Loss):
    """The sum of losses times weights; ``parts`` has the values of the losses before weighting.

    Args:
        losses: Weight and loss by the name in ``parts``, at least one.

    Raises:
        ConfigurationError: There are no losses.

    >>> from hgld.losses import DecomposabilityLoss, SupAP
    >>> loss = WeightedSum({"ap": (0.9, SupAP()), "pairs": (0.1, DecomposabilityLoss())})
    >>> loss(torch.tensor([[1.0, 0.0], [0.8, 0.6]]), torch.tensor([[0], [0]]))
    tensor(0.0050)
    >>> loss.parts
    {'ap': tensor(0.), 'pairs': tensor(0.0500)}
    """

    takes_label_sets = True

    def __init__(self, losses: Mapping[str, tuple[float, Loss]]) -> None:
        super().__init__()
        if not losses:
            raise ConfigurationError("`losses` of a weighted sum is empty; name at least one")
        self.weights = {name: weight for name, (weight, _) in losses.items()}
        self.losses = nn.ModuleDict({name: loss for name, (_, loss) in losses.items()})

    def forward_batch(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :meth:`hgld.losses.Loss.forward_batch`."""
        values = {
            name: cast(Loss, loss).forward_batch(embeddings, labels, reference_embeddings, reference_labels)
            for name, loss in self.losses.items()
        }
        self.parts = {name: value.detach() for name, value in values.items()}
        return torch.stack([self.weights[name] * value for name, value in values.items()]).sum()

    def reference_part(self) -> Loss | None:
        """See :meth:`hgld.losses.Loss.reference_part`."""
        return self._sum_of({name: cast(Loss, loss).reference_part() for name, loss in self.losses.items()})

    def proxy_part(self) -> Loss | None:
        """See :meth:`hgld.losses.Loss.proxy_part`."""
        return self._sum_of({name: cast(Loss, loss).proxy_part() for name, loss in self.losses.items()})

    def _sum_of(self, parts: Mapping[str, Loss | None]) -> WeightedSum | None:
        kept = {name: (self.weights[name], part) for name, part in parts.items() if part is not None}
        return WeightedSum(kept) if kept else None


def with_decomposability(name: str, rank_loss: Loss, decomposability: Loss, lambda_: float) -> WeightedSum:
    """Return (1 - lambda) ``rank_loss`` + lambda ``decomposability`` (paper, Eq. 2).

    Args:
        name: Name of the rank loss in ``parts``; the other is ``decomposability``.
        rank_loss: Rank loss.
        decomposability: Decomposability loss.
        lambda_: Weight of the decomposability loss, 0 to 1.

    Raises:
        ConfigurationError: ``lambda_`` is out of range.
    """
    if not 0 <= lambda_ <= 1:
        raise ConfigurationError(f"`lambda_` is {lambda_}; expected 0 (the rank loss alone) to 1")
    return WeightedSum({name: (1 - lambda_, rank_loss), "decomposability": (lambda_, decomposability)})

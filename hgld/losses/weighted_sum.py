"""Weighted sums of losses, and of a loss over the levels of the labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import nn

from hgld.errors import ConfigurationError, InputError
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

    takes_label_sets = takes_any_length = True

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


class AtLevel(Loss):
    """A loss of one column of the labels.

    Args:
        loss: Loss that sees this column only.
        column: Column of the labels, 0 for the finest level.

    Raises:
        InputError: (when called) The labels have no such column.

    >>> from hgld.losses import SupAP
    >>> embeddings, labels = torch.tensor([[1.0, 0.0], [0.8, 0.6]]), torch.tensor([[0, 0], [1, 0]])
    >>> AtLevel(SupAP(include_query=False), column=1)(embeddings, labels)
    tensor(0.)
    """

    takes_label_sets = takes_any_length = True

    def __init__(self, loss: Loss, column: int) -> None:
        super().__init__()
        self.loss = loss
        self.column = column

    def forward_batch(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :meth:`hgld.losses.Loss.forward_batch`."""
        if self.column >= labels.shape[-1]:
            raise InputError(f"`labels` have {labels.shape[-1]} levels and no column {self.column}")
        column = slice(self.column, self.column + 1)
        reference_column = None if reference_labels is None else reference_labels[..., column]
        value = self.loss.forward_batch(embeddings, labels[..., column], reference_embeddings, reference_column)
        self.parts = self.loss.parts
        return value

    def reference_part(self) -> Loss | None:
        """See :meth:`hgld.losses.Loss.reference_part`."""
        return self._of(self.loss.reference_part())

    def proxy_part(self) -> Loss | None:
        """See :meth:`hgld.losses.Loss.proxy_part`."""
        return self._of(self.loss.proxy_part())

    def _of(self, part: Loss | None) -> Loss | None:
        return None if part is None else AtLevel(part, self.column)


class SumOverLevels(WeightedSum):
    """The sum of a loss over all levels, each of which sees one column of the labels (Sigma in the papers' tables).

    ``parts`` has the values ``level_1``, the coarsest, to ``level_L``.

    Args:
        make_loss: Function that builds the loss of a column, 0 for the finest, with as many proxies as that column
            has classes.
        n_levels: Number of levels L, at least 1.
        mean: Divide the sum by L, as the authors' code does.

    Raises:
        ConfigurationError: There are no levels.
        InputError: (when called) The labels have another number of levels.

    >>> from hgld.losses import SupAP
    >>> loss = SumOverLevels(lambda column: SupAP(), n_levels=2)
    >>> loss(torch.tensor([[1.0, 0.0], [0.8, 0.6]]), torch.tensor([[0, 0], [0, 0]]))
    tensor(0.)
    >>> loss.parts
    {'level_2': tensor(0.), 'level_1': tensor(0.)}
    """

    def __init__(self, make_loss: Callable[[int], Loss], n_levels: int, *, mean: bool = False) -> None:
        levels = {f"level_{n_levels - column}": AtLevel(make_loss(column), column) for column in range(n_levels)}
        weight = 1 / n_levels if mean else 1.0
        super().__init__({name: (weight, loss) for name, loss in levels.items()})

    def forward_batch(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :meth:`hgld.losses.Loss.forward_batch`."""
        if labels.shape[-1] != len(self.losses):
            raise InputError(
                f"`labels` have {labels.shape[-1]} levels, but the loss is a sum over {len(self.losses)}"
            )
        return super().forward_batch(embeddings, labels, reference_embeddings, reference_labels)

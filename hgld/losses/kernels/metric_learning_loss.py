"""Base class of losses implemented by pytorch-metric-learning.

That library normalises embeddings unless its distances are told not to; virtual items of SiMix must stay as they are.
"""

from __future__ import annotations

import torch
from torch import nn

from hgld.losses.kernels.class_loss import ClassLoss


class MetricLearningLoss(ClassLoss):
    """A loss of pytorch-metric-learning over mined pairs or triplets.

    Args:
        loss: Loss of pytorch-metric-learning.
        miner: Miner of the same library that selects pairs or triplets. Default: all of them.
    """

    def __init__(self, loss: nn.Module, miner: nn.Module | None = None) -> None:
        super().__init__()
        self._loss = loss
        self._miner = miner

    def forward_classes(
        self,
        embeddings: torch.Tensor,
        classes: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_classes: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :meth:`ClassLoss.forward_classes`."""
        if reference_embeddings is not None:
            reference_embeddings = reference_embeddings.to(embeddings.dtype)
        references = (reference_embeddings, reference_classes)
        mined = None if self._miner is None else self._miner(embeddings, classes, *references)
        value: torch.Tensor = self._loss(embeddings, classes, mined, *references)
        return value

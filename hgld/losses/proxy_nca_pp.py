"""ProxyNCA++, a softmax over negative squared distances from proxies."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from hgld.errors import ConfigurationError
from hgld.losses.kernels.proxies import ProxyBasedLoss


class ProxyNCAPP(ProxyBasedLoss):
    """ProxyNCA++: cross entropy of -scale^2 ||x - p||^2 over normalised proxies p (Teh et al., ECCV 2020).

    Proxies are initialised with a normal distribution of standard deviation 1/8, as in the authors' code.

    Args:
        n_classes: Number of classes in column 0 of the labels.
        dim: Dimension d of the embeddings.
        scale: Square root of the inverse temperature, above 0.

    Raises:
        ConfigurationError: A number is out of range.

    >>> loss = ProxyNCAPP(n_classes=3, dim=2)
    >>> loss(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[0], [2]])).shape
    torch.Size([])
    """

    def __init__(self, n_classes: int, dim: int, scale: float = 3.0) -> None:
        from pytorch_metric_learning import losses

        super().__init__(n_classes, dim)
        if not scale > 0:
            raise ConfigurationError(f"`scale` is {scale}; expected more than 0")
        initialise = partial(nn.init.normal_, std=1 / 8)
        self._loss = losses.ProxyNCALoss(n_classes, dim, softmax_scale=scale**2, weight_init_func=initialise)

    def forward_proxies(self, embeddings: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """See :meth:`~hgld.losses.kernels.proxies.ProxyBasedLoss.forward_proxies`."""
        value: torch.Tensor = self._loss(embeddings, classes)
        return value

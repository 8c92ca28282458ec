"""ProxyNCA++, a softmax over negative squared distances from proxies."""

from __future__ import annotations

import torch
from torch.nn import functional

from hgld.losses.kernels.proxies import ScaledProxyLoss


class ProxyNCAPP(ScaledProxyLoss):
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

    def forward_proxies(self, embeddings: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """See :meth:`~hgld.losses.kernels.proxies.ProxyBasedLoss.forward_proxies`."""
        return functional.cross_entropy(-self.squared_distances(embeddings), classes)

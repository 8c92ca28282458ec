"""ProxyNCA, neighbourhood components analysis with a proxy per class."""

from __future__ import annotations

import torch
from torch.nn import functional

from hgld.losses.kernels.proxies import ScaledProxyLoss


class ProxyNCA(ScaledProxyLoss):
    """ProxyNCA with one proxy per class (Movshovitz-Attias et al., ICCV 2017, Eq. 6).

    ::

        scale^2 ||x - p_y||^2 + log sum over proxies z of other classes of exp(-scale^2 ||x - p_z||^2)

    averaged over the batch, with normalised proxies. The own proxy is not in the sum, unlike in
    :class:`~hgld.losses.ProxyNCAPP`, so the loss has no lower bound at 0. With a single class it is the first term
    alone.

    Args:
        n_classes: Number of classes in column 0 of the labels.
        dim: Dimension d of the embeddings.
        scale: Length that embeddings and proxies are scaled to, above 0; 3 as in the implementation that Smooth-AP's
            Table 3 compares with (Roth et al., ICML 2020), as is the initialisation of the proxies.

    Raises:
        ConfigurationError: A number is out of range.

    >>> loss = ProxyNCA(n_classes=3, dim=2)
    >>> loss(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[0], [2]])).shape
    torch.Size([])
    """

    def forward_proxies(self, embeddings: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """See :meth:`~hgld.losses.kernels.proxies.ProxyBasedLoss.forward_proxies`."""
        distances = self.squared_distances(embeddings)
        own = distances.gather(1, classes.unsqueeze(1))[:, 0]
        if self.n_classes == 1:
            return own.mean()
        is_own = functional.one_hot(classes, self.n_classes).bool()
        return (own + (-distances).masked_fill(is_own, -torch.inf).logsumexp(dim=1)).mean()

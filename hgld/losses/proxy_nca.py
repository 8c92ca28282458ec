"""ProxyNCA, neighbourhood components analysis with a proxy per class, and its softmax ProxyNCA++."""

from __future__ import annotations

import torch
from torch.nn import functional

from hgld.errors import ConfigurationError
from hgld.losses.kernels.class_losses import ProxyBasedLoss


class ProxyNCA(ProxyBasedLoss):
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

    def __init__(self, n_classes: int, dim: int, scale: float = 3.0) -> None:
        super().__init__(n_classes, dim)
        if not scale > 0:
            raise ConfigurationError(f"`scale` is {scale}; expected more than 0")
        self.scale = scale
        self.proxies = torch.nn.Parameter(torch.randn(n_classes, dim) / 8)

    def squared_distances(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Return scale^2 ||x - p||^2 for unit vectors x of shape (B, d) and each proxy: (B, n_classes)."""
        proxies = functional.normalize(self.proxies.to(embeddings.dtype))
        return 2 * self.scale**2 * (1 - embeddings @ proxies.T)

    def forward_proxies(self, embeddings: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """See :meth:`~hgld.losses.kernels.class_losses.ProxyBasedLoss.forward_proxies`."""
        distances = self.squared_distances(embeddings)
        own = distances.gather(1, classes.unsqueeze(1))[:, 0]
        if self.n_classes == 1:
            return own.mean()
        is_own = functional.one_hot(classes, self.n_classes).bool()
        return (own + (-distances).masked_fill(is_own, -torch.inf).logsumexp(dim=1)).mean()


class ProxyNCAPP(ProxyNCA):
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
        """See :meth:`~hgld.losses.kernels.class_losses.ProxyBasedLoss.forward_proxies`."""
        return functional.cross_entropy(-self.squared_distances(embeddings), classes)

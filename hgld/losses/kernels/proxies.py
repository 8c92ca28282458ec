"""Base class of losses that compare embeddings with one learnt proxy per class."""

from __future__ import annotations

from abc import abstractmethod

import torch

from hgld.errors import ConfigurationError, InputError
from hgld.losses.base import Loss
from hgld.losses.kernels.class_loss import ClassLoss


class ProxyBasedLoss(ClassLoss):
    """A loss that compares embeddings with one learnt proxy per class and ignores references.

    Args:
        n_classes: Number of classes, which are numbered 0 to ``n_classes - 1``.
        dim: Dimension d of the embeddings.

    Raises:
        ConfigurationError: A number is below 1.
    """

    def __init__(self, n_classes: int, dim: int) -> None:
        super().__init__()
        if n_classes < 1 or dim < 1:
            raise ConfigurationError(f"`n_classes` is {n_classes} and `dim` {dim}; expected at least 1 of each")
        self.n_classes = n_classes
        self.dim = dim

    def reference_part(self) -> Loss | None:
        """Return None: proxies do not depend on references."""
        return None

    def forward_classes(
        self,
        embeddings: torch.Tensor,
        classes: torch.Tensor,
        reference_embeddings: torch.Tensor | None = None,
        reference_classes: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :meth:`ClassLoss.forward_classes`."""
        check_proxies(embeddings, classes, self.n_classes, self.dim)
        return self.forward_proxies(embeddings, classes)

    @abstractmethod
    def forward_proxies(self, embeddings: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """Return the loss of embeddings (B, d) and classes (B,), or (B, K) for label sets, that all have a proxy."""


class ScaledProxyLoss(ProxyBasedLoss):
    """A loss of the squared distances of embeddings and proxies that are scaled to the same length.

    Args:
        n_classes: See :class:`ProxyBasedLoss`.
        dim: See :class:`ProxyBasedLoss`.
        scale: Length that embeddings and proxies are scaled to, above 0.

    Raises:
        ConfigurationError: A number is out of range.
    """

    def __init__(self, n_classes: int, dim: int, scale: float = 3.0) -> None:
        super().__init__(n_classes, dim)
        if not scale > 0:
            raise ConfigurationError(f"`scale` is {scale}; expected more than 0")
        self.scale = scale
        self.proxies = normal_proxies(n_classes, dim)

    def squared_distances(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Return scale^2 ||x - p||^2 for unit vectors x of shape (B, d) and each proxy: (B, n_classes)."""
        proxies = torch.nn.functional.normalize(self.proxies.to(embeddings.dtype))
        return 2 * self.scale**2 * (1 - embeddings @ proxies.T)


def uniform_proxies(n_classes: int, dim: int) -> torch.nn.Parameter:
    """Return proxies (n_classes, d) drawn uniformly between -1 / sqrt(d) and 1 / sqrt(d), as in NormSoftMax."""
    bound = dim**-0.5
    return torch.nn.Parameter(torch.empty(n_classes, dim).uniform_(-bound, bound))


def normal_proxies(n_classes: int, dim: int) -> torch.nn.Parameter:
    """Return proxies (n_classes, d) drawn normally with standard deviation 1/8, as in ProxyNCA++."""
    return torch.nn.Parameter(torch.randn(n_classes, dim) / 8)


def check_proxies(embeddings: torch.Tensor, classes: torch.Tensor, n_classes: int, dim: int) -> None:
    """Raise an :class:`InputError` if embeddings and proxies differ in dimension, or a class has no proxy."""
    if embeddings.shape[1] != dim:
        raise InputError(
            f"`embeddings` have dimension {embeddings.shape[1]}, but the loss has proxies of dimension {dim}"
        )
    check_classes(classes, n_classes)


def check_classes(classes: torch.Tensor, n_classes: int) -> None:
    """Raise an :class:`InputError` if a class has no learnt parameters."""
    if classes.ndim == 2:  # label sets, with -1 as padding
        classes = classes[classes >= 0]
    low, high = int(classes.min()), int(classes.max())
    if low < 0 or high >= n_classes:
        raise InputError(
            f"`labels` have classes {low} to {high}, but the loss was built for 0 to {n_classes - 1}; number the "
            "labels from 0 within each column, and build the loss for as many classes"
        )

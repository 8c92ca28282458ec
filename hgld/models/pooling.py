"""Pooling layers: from features at positions to one vector per image."""

from __future__ import annotations

import torch
from torch import nn

from hgld.compute.dtypes import at_least_float32

_EPS = 1e-6


class AveragePooling(nn.Module):
    """The mean over positions."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Pool features: float, shape (B, C, n) -> (B, C)."""
        return features.mean(-1)


class MaxPooling(nn.Module):
    """The maximum over positions."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Pool features: float, shape (B, C, n) -> (B, C)."""
        return features.amax(-1)


class GeM(nn.Module):
    """The generalised mean over positions, (1/n sum x^p)^(1/p), of features clamped to at least 1e-6.

    From Radenovic et al., TPAMI 2018. Computed in float32, or float64 for float64 features, regardless of autocast:
    third powers overflow in 16 bits.

    Args:
        p: Exponent, or its initial value if it is learnt; 1 is the mean, infinity the maximum.
        learnt: Whether p is a parameter; otherwise it is a buffer.

    >>> GeM(p=2.0, learnt=False)(torch.tensor([[[1.0, 7.0]]]))
    tensor([[5.]])
    """

    p: torch.Tensor

    def __init__(self, p: float = 3.0, *, learnt: bool = True) -> None:
        super().__init__()
        if learnt:
            self.p = nn.Parameter(torch.tensor(p))
        else:
            self.register_buffer("p", torch.tensor(p))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Pool features: float, shape (B, C, n) -> float32 or float64, shape (B, C)."""
        with torch.autocast(features.device.type, enabled=False):
            features = at_least_float32(features).clamp(min=_EPS)
            return generalised_mean(features, self.p)


def generalised_mean(values: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """Return the generalised mean of positive values over the last dimension, shape (..., n) -> (...)."""
    return values.pow(p).mean(-1).pow(1 / p)

"""From the features of positions to one vector."""

from __future__ import annotations

import torch
from torch import nn

from hgld.compute.dtypes import at_least_float32

_EPS = 1e-6


class Average(nn.Module):
    """The mean over positions."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """float, shape (B, C, n) -> (B, C)."""
        return features.mean(-1)


class Max(nn.Module):
    """The largest value over positions."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """float, shape (B, C, n) -> (B, C)."""
        return features.amax(-1)


class GeM(nn.Module):
    """The generalised mean over positions, (1/n sum x^p)^(1/p), of features clamped to 1e-6 (Radenovic et al., 2018).

    In float32, or in float64 where the features are, autocast or not: 16 bits have no room for third powers.

    Args:
        p: 1 is the mean, infinity the maximum; where it begins, if it is learnt.
        learnt: whether p is a parameter; else it is a buffer.

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
        """float, shape (B, C, n) -> float32 or float64 (B, C)."""
        with torch.autocast(features.device.type, enabled=False):
            features = at_least_float32(features).clamp(min=_EPS)
            return generalised_mean(features, self.p)


def generalised_mean(values: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """Over the last dimension of positive values, shape (..., n) -> (...)."""
    return values.pow(p).mean(-1).pow(1 / p)

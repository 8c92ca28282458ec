"""Floating-point types of computations."""

from __future__ import annotations

import torch


def at_least_float32(values: torch.Tensor) -> torch.Tensor:
    """Return float64 tensors unchanged, and all others as float32.

    >>> at_least_float32(torch.zeros(2, dtype=torch.float16)).dtype
    torch.float32
    """
    return values if values.dtype == torch.float64 else values.float()

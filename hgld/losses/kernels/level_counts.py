"""Numbers of items of each level."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from hgld.compute.compiled import compiled, is_compiled


def count_levels(levels: torch.Tensor, n_levels: int) -> torch.Tensor:
    """Return the number of items of each level for each query.

    Args:
        levels: int64 tensor of shape (n_query, n_items): 0 to L, or -1 for items that are not counted.
        n_levels: Number of levels L.

    Returns:
        float64 tensor of shape (n_query, L + 1).

    >>> count_levels(torch.tensor([[2, 0, 0, -1]]), 2)
    tensor([[2., 0., 1.]], dtype=torch.float64)
    """
    if is_compiled(levels.device):
        counts = torch.zeros(len(levels), n_levels + 1, dtype=torch.float64)
        _count(levels.contiguous().numpy(), counts.numpy())
        return counts
    return torch.stack([(levels == level).sum(1) for level in range(n_levels + 1)], 1).to(torch.float64)


@compiled()
def _count(levels: NDArray[np.int64], counts: NDArray[np.float64]) -> None:
    """Count the items of each row; neighbours have counters of their own, which do not wait for one another."""
    n_rows, n_items = levels.shape
    n_counters = counts.shape[1] + 1
    counters = np.empty((4, n_counters), np.int64)
    for row in range(n_rows):
        counters[:] = 0
        row_levels = levels[row]
        for item in range(n_items):
            counters[item & 3, row_levels[item] + 1] += 1
        for level in range(1, n_counters):
            for lane in range(4):
                counts[row, level - 1] += counters[lane, level]

"""Fast sorting of scores, the first step of exact counts over a ranking."""

from __future__ import annotations

import torch


def sort_scores(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort the scores of each query, several times as fast as ``scores.sort(1)`` for long float32 rows on a CPU.

    Torch has a radix sort for single rows of integers on a CPU, so the bits of the scores are sorted as integers.

    Args:
        scores: Float tensor of shape (n_query, n_items) without NaN.

    Returns:
        Scores of each query in ascending order, and the int64 indices of their items; ties are in any order.

    >>> sort_scores(torch.tensor([[0.5, -1.0, 0.25]]))
    (tensor([[-1.0000,  0.2500,  0.5000]]), tensor([[1, 2, 0]]))
    """
    if scores.dtype != torch.float32 or scores.device.type != "cpu":
        return scores.sort(1)
    keys = _flip_negative(scores.detach().view(torch.int32))
    order = torch.empty_like(keys, dtype=torch.int64)
    for row_keys, row_order in zip(keys, order, strict=True):
        torch.sort(row_keys, out=(row_keys, row_order))
    return _flip_negative(keys).view(torch.float32), order


def _flip_negative(bits: torch.Tensor) -> torch.Tensor:
    """Map the bits of float32 to int32 of the same order, and back: sign and magnitude to two's complement."""
    return bits ^ (bits >> 31).bitwise_and_(2**31 - 1)

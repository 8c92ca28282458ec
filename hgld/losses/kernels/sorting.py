"""Scores in ascending order, which exact counts of a ranking begin with."""

from __future__ import annotations

import torch


def sort_scores(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What ``scores.sort(1)`` returns, but several times as fast for long rows of float32 on a CPU.

    There torch has a radix sort, for one row of whole numbers: so the bits of the scores are sorted as such.

    Args:
        scores: float, shape (n_query, n_items); no NaN.

    Returns:
        The scores of each query in ascending order, and int64, the items that they belong to; ties in any order.

    >>> sort_scores(torch.tensor([[0.5, -1.0, 0.25]]))
    (tensor([[-1.0000,  0.2500,  0.5000]]), tensor([[1, 2, 0]]))
    """
    if scores.dtype != torch.float32 or scores.device.type != "cpu":
        return scores.sort(1)
    keys = _flip_negative(scores.detach().view(torch.int32))
    order = torch.empty_like(keys, dtype=torch.int64)
    for row, order_of_row in zip(keys, order, strict=True):
        torch.sort(row, out=(row, order_of_row))
    return _flip_negative(keys).view(torch.float32), order


def _flip_negative(bits: torch.Tensor) -> torch.Tensor:
    """The bits of float32 as int32 of the same order, and back: a sign and a magnitude become one number."""
    return bits ^ (bits >> 31).bitwise_and_(2**31 - 1)

"""Keep the highest scores of a matrix that is computed in blocks of columns."""

from __future__ import annotations

import torch


def merge_top_k(
    best: torch.Tensor, positions: torch.Tensor, scores: torch.Tensor, start: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k highest scores of each row so far and their columns; the first columns win ties.

    Args:
        best: float, shape (n, k); the highest scores of earlier columns, best first; ``-inf`` where there are fewer
            than k.
        positions: int64, shape (n, k); columns of these scores, -1 where there are none.
        scores: float, shape (n, w); scores of further columns, ``-inf`` for those to leave out.
        start: Number of the first of these columns, which is above all earlier ones.

    Returns:
        Both updated, best first.
    """
    values, columns = _top_k(scores, min(best.shape[1], scores.shape[1]))
    columns = (columns + start).masked_fill(values.isneginf(), -1)
    # Both are in order, and earlier columns come first, so a stable sort lets these win ties.
    values, order = torch.cat([best, values], dim=1).sort(dim=1, descending=True, stable=True)
    positions = torch.cat([positions, columns], dim=1).gather(1, order)
    return values[:, : best.shape[1]], positions[:, : best.shape[1]]


def _top_k(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k highest scores of each row and their columns, in descending order, equal scores by column."""
    values, columns = scores.topk(min(k + 1, scores.shape[1]), dim=1)
    if values.shape[1] > k:
        # ``topk`` may choose any of the columns that tie for the last place.
        last = values[:, k - 1]
        tied = ((last == values[:, k]) & ~last.isneginf()).nonzero()[:, 0]
        columns = columns[:, :k]
        if len(tied):
            columns[tied] = scores[tied].sort(dim=1, descending=True, stable=True).indices[:, :k]
    columns = columns.sort(dim=1).values
    values, order = scores.gather(1, columns).sort(dim=1, descending=True, stable=True)
    return values, columns.gather(1, order)

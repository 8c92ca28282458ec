"""Keep the highest scores of a matrix that is computed in blocks of columns."""

from __future__ import annotations

import torch


def merge_top_k(
    best: torch.Tensor, positions: torch.Tensor, scores: torch.Tensor, start: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k highest scores of each row so far and their columns; the first columns win ties.

    Args:
        best: float, shape (n, k); the highest scores of earlier columns in the order of the columns, ``-inf`` where
            there are fewer than k.
        positions: int64, shape (n, k); columns of these scores.
        scores: float, shape (n, w); scores of further columns.
        start: Number of the first of these columns, which is above all earlier ones.

    Returns:
        Both updated, again in the order of the columns.
    """
    k = best.shape[1]
    columns = torch.arange(start, start + scores.shape[1], device=scores.device).expand_as(scores)
    scores, positions = torch.cat([best, scores], dim=1), torch.cat([positions, columns], dim=1)
    # ``topk`` alone may return any of the items that tie for the last place.
    last = scores.topk(k, dim=1).values[:, -1:]
    above, equal = scores > last, scores == last
    kept = above | (equal & (equal.cumsum(dim=1) <= k - above.sum(dim=1, keepdim=True)))
    return scores[kept].view(-1, k), positions[kept].view(-1, k)


def sort_top_k(best: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the result of :func:`merge_top_k` best first, with NaN and -1 where fewer than k scores are finite."""
    best, order = best.sort(dim=1, descending=True, stable=True)
    empty = best.isneginf()
    return best.masked_fill(empty, torch.nan), positions.gather(1, order).masked_fill(empty, -1)

"""Keep the highest scores of a matrix that is computed in blocks of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hgld.errors import ConfigurationError

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.int64]


class RunningTopK:
    """The k highest scores of each row of a matrix so far and their columns; the first columns win ties.

    On a CPU, the scores above the k-th highest of their row are collected, and merged when there are as many of them
    as kept ones. Few blocks of a long matrix have any, so the cost is that of one comparison per score.

    Args:
        n_rows: Number of rows.
        k: Number of scores per row; may exceed the number of columns.
        dtype: Type of the scores, float32 or float64.
        device: Device of the scores.

    >>> top_k = RunningTopK(1, 2, torch.float32, torch.device("cpu"))
    >>> top_k.add(torch.tensor([[0.5, 2.0]]), 0)
    >>> top_k.add(torch.tensor([[1.0, 2.0, -torch.inf]]), 2)
    >>> [part.tolist() for part in top_k.result()]
    [[[2.0, 2.0]], [[1, 3]]]
    """

    def __init__(self, n_rows: int, k: int, dtype: torch.dtype, device: torch.device) -> None:
        check_k(k)
        self._best = torch.full((n_rows, k), -torch.inf, dtype=dtype, device=device)
        self._positions = torch.full((n_rows, k), -1, device=device)
        self._collected: list[tuple[Integers, Integers, Floats]] = []  # rows, columns, scores
        self._n_collected = 0

    def add(self, scores: torch.Tensor, start: int) -> None:
        """Take further columns into account.

        Args:
            scores: float, shape (n_rows, w), contiguous; ``-inf`` for those to leave out.
            start: Number of the first of these columns, which is above all earlier ones.
        """
        if scores.is_cuda:
            self._best, self._positions = merge_top_k(self._best, self._positions, scores, start)
            return
        block, k = scores.numpy(), self._best.shape[1]
        lowest: Floats = self._best.numpy()[:, -1:]
        if block.shape[1] > k and np.isneginf(lowest).any():  # a row has fewer than k yet: all would be collected
            kth = np.partition(block, -k, axis=1)[:, -k, None]
            lowest = np.maximum(lowest, np.nextafter(kth, -np.inf, dtype=kth.dtype))
        hits = np.flatnonzero(block > lowest)
        rows, columns = np.divmod(hits, block.shape[1])
        self._collected.append((rows, columns + start, block.reshape(-1)[hits]))
        self._n_collected += len(hits)
        if self._n_collected >= self._best.numel():
            self._merge()

    def result(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return scores and columns, best first, both (n_rows, k); ``-inf`` and -1 where there are fewer than k."""
        self._merge()
        return self._best, self._positions

    def _merge(self) -> None:
        """Sort the collected scores into the kept ones."""
        if not self._n_collected:
            return
        n_rows, k = self._best.shape
        kept = (np.repeat(np.arange(n_rows), k), self._positions.numpy().reshape(-1), self._best.numpy().reshape(-1))
        rows, positions, scores = (
            np.concatenate([own, *more]) for own, *more in zip(kept, *self._collected, strict=True)
        )
        order = np.lexsort((positions, -scores, rows))
        first = np.searchsorted(rows[order], np.arange(n_rows))  # each row has k or more
        best = order[first[:, None] + np.arange(k)]
        self._best, self._positions = torch.from_numpy(scores[best]), torch.from_numpy(positions[best])
        self._collected, self._n_collected = [], 0


def check_k(k: int) -> None:
    """Raise a :class:`ConfigurationError` unless ``k`` is at least 1."""
    if k < 1:
        raise ConfigurationError(f"`k` is {k}; expected at least 1")


def joined_top_k(parts: Sequence[RunningTopK]) -> tuple[Floats, Integers]:
    """Return the highest scores over several parts of the columns, which follow one another.

    Returns:
        Scores and columns, best first, as NumPy arrays of shape (n_rows, k); NaN and -1 where there are fewer than k.
    """
    results = [part.result() for part in parts]
    scores, positions = (torch.cat(tensors, dim=1) for tensors in zip(*results, strict=True))
    k = results[0][0].shape[1]
    scores, order = scores.sort(dim=1, descending=True, stable=True)  # earlier columns win ties
    scores, positions = scores[:, :k], positions.gather(1, order[:, :k])
    return scores.masked_fill(positions < 0, torch.nan).cpu().numpy(), positions.cpu().numpy()


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

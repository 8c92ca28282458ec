"""Exact k-nearest-neighbour search.

:mod:`hgld.evaluation.ranking` ranks whole galleries for metrics; this module returns the first items.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hgld.arrays import AnyFloats, Booleans, Integers
from hgld.compute.scoring import Scorer, ScoringConfig, Vectors, as_tensor, float32_matmul
from hgld.errors import require
from hgld.ragged import RaggedIndices


class RunningTopK:
    """The k highest scores of each row of a matrix so far and their columns; the first columns win ties.

    On a CPU, scores above the k-th highest score of their row are collected, and merged when there are as many
    collected as kept scores. Few blocks of a long matrix have any, so the cost is about one comparison per score.

    Args:
        k: Number of scores per row; may exceed the number of columns.

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
        self._collected: list[tuple[Integers, Integers, AnyFloats]] = []  # rows, columns, scores
        self._n_collected = 0

    def add(self, scores: Tensor, start: int) -> None:
        """Take further columns into account.

        Args:
            scores: float, shape (n_rows, w), contiguous; ``-inf`` for scores to leave out.
            start: Number of the first of the w columns, above the numbers of all earlier columns.
        """
        if scores.is_cuda:
            self._best, self._positions = merge_top_k(self._best, self._positions, scores, start)
            return
        block, k = scores.numpy(), self._best.shape[1]
        lowest: AnyFloats = self._best.numpy()[:, -1:]
        if block.shape[1] > k and np.isneginf(lowest).any():
            # A row has fewer than k scores so far, so all of its scores would be collected.
            kth = np.partition(block, -k, axis=1)[:, -k, None]
            lowest = np.maximum(lowest, np.nextafter(kth, -np.inf, dtype=kth.dtype))
        hits = np.flatnonzero(block > lowest)
        rows, columns = np.divmod(hits, block.shape[1])
        self._collected.append((rows, columns + start, block.reshape(-1)[hits]))
        self._n_collected += len(hits)
        if self._n_collected >= self._best.numel():
            self._merge()

    def result(self) -> tuple[AnyFloats, Integers]:
        """Return scores and columns, best first, both (n_rows, k); NaN and -1 where there are fewer than k."""
        self._merge()
        scores = self._best.masked_fill(self._positions < 0, torch.nan)
        return scores.cpu().numpy(), self._positions.cpu().numpy()

    def _merge(self) -> None:
        """Merge the collected scores with the kept scores."""
        if not self._n_collected:
            return
        n_rows, k = self._best.shape
        all_rows = [np.repeat(np.arange(n_rows), k)]
        all_positions = [self._positions.numpy().reshape(-1)]
        all_scores = [self._best.numpy().reshape(-1)]
        for block_rows, block_positions, block_scores in self._collected:
            all_rows.append(block_rows)
            all_positions.append(block_positions)
            all_scores.append(block_scores)
        rows = np.concatenate(all_rows)
        positions, scores = np.concatenate(all_positions), np.concatenate(all_scores)
        order = np.lexsort((positions, -scores, rows))
        first = np.searchsorted(rows[order], np.arange(n_rows))  # each row has k or more
        best = order[first[:, None] + np.arange(k)]
        self._best = torch.from_numpy(scores[best])
        self._positions = torch.from_numpy(positions[best])
        self._collected, self._n_collected = [], 0


def check_k(k: int) -> None:
    """Raise a :class:`ConfigurationError` unless ``k`` is at least 1."""
    require(k >= 1, "at least 1", k=k)


def merge_top_k(
    best: Tensor, positions: Tensor, scores: Tensor, start: int
) -> tuple[Tensor, Tensor]:
    """Return the k highest scores of each row so far and their columns; the first columns win ties.

    Args:
        best: float, shape (n, k); the highest scores of earlier columns, best first; ``-inf`` where there are fewer
            than k.
        positions: int64, shape (n, k); columns of these scores, -1 for missing scores.
        scores: float, shape (n, w); scores of further columns, ``-inf`` for scores to leave out.
        start: Number of the first of the w columns, above the numbers of all earlier columns.

    Returns:
        The updated scores and columns, best first.
    """
    k = best.shape[1]
    values, columns = _top_k(scores, min(k, scores.shape[1]))
    columns = (columns + start).masked_fill(values.isneginf(), -1)
    # Both are in order, and earlier columns come first, so a stable sort lets these win ties.
    values, order = torch.cat([best, values], dim=1).sort(dim=1, descending=True, stable=True)
    positions = torch.cat([positions, columns], dim=1).gather(1, order)
    return values[:, :k], positions[:, :k]


def _top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k highest scores of each row and their columns, in descending order, equal scores by column."""
    values, columns = scores.topk(min(k + 1, scores.shape[1]), dim=1)
    if values.shape[1] > k:
        # ``topk`` may choose any of the columns that tie for the last place.
        last = values[:, k - 1]
        is_tied = (last == values[:, k]) & ~last.isneginf()
        tied_rows = is_tied.nonzero()[:, 0]
        columns = columns[:, :k]
        if len(tied_rows):
            ordered = scores[tied_rows].sort(dim=1, descending=True, stable=True)
            columns[tied_rows] = ordered.indices[:, :k]
    columns = columns.sort(dim=1).values
    values, order = scores.gather(1, columns).sort(dim=1, descending=True, stable=True)
    return values, columns.gather(1, order)


def nearest_neighbours(
    query_embeddings: Vectors,
    gallery_embeddings: Vectors,
    k: int,
    *,
    excluded: RaggedIndices | None = None,
    gallery_mask: Booleans | None = None,
    config: ScoringConfig | None = None,
    scorer: Scorer | None = None,
) -> tuple[npt.NDArray[Any], Integers]:
    """Return the k gallery items with the highest scores, best first.

    The gallery is scored in blocks, and only the best items so far are kept. So memory is needed for the scores of a
    block of queries with a block of the gallery. Items with equal scores are ordered by their positions.

    Args:
        query_embeddings: float, shape (n_query, d).
        gallery_embeddings: float, shape (n_gallery, d).
        k: Number of items per query; may exceed the size of the gallery.
        excluded: Gallery items to exclude for each query.
        gallery_mask: bool, shape (n_gallery,); False for items to exclude for all queries.
        scorer: Scorer to use in place of a scorer with this configuration.

    Returns:
        Scores (float32, or float64 with this precision) and positions in the gallery (int64), both of shape
        (n_query, k), best first. Where fewer than k items remain, the last scores are NaN and the last positions -1.

    Raises:
        ConfigurationError: ``k`` is less than 1.
        InputError: The embeddings do not fit each other, or one has a value that is not finite, or only zeros.

    >>> queries, gallery = np.array([[1.0, 0.0]]), np.array([[0.6, 0.8], [1.0, 0.0], [0.0, 2.0]])
    >>> scores, positions = nearest_neighbours(queries, gallery, k=2)
    >>> scores.round(2).tolist(), positions.tolist()
    ([[1.0, 0.6000000238418579]], [[1, 0]])
    """
    check_k(k)
    config = config or ScoringConfig()
    queries = as_tensor(query_embeddings)
    gallery = queries if gallery_embeddings is query_embeddings else as_tensor(gallery_embeddings)
    if scorer is None:
        scorer = Scorer(queries, gallery, config)
    n_queries, n_gallery = len(queries), len(gallery)
    if excluded is None:
        excluded = RaggedIndices.empty(n_queries)
    excluded.check(n_queries, n_gallery, "`excluded`")
    masked = torch.zeros(n_gallery, dtype=torch.bool)
    if gallery_mask is not None:
        masked = ~torch.from_numpy(gallery_mask)
    masked = masked.to(config.device)
    dtype = np.float64 if config.precision == "float64" else np.float32
    scores, positions = np.empty((n_queries, k), dtype), np.empty((n_queries, k), np.int64)
    step = config.queries_per_block(n_gallery)
    for start in range(0, n_queries, step):
        rows = slice(start, min(start + step, n_queries))
        scorer.prepare(rows)
        scores[rows], positions[rows] = search_block(scorer, rows, k, excluded, masked, config)
    return scores, positions


def search_block(
    scorer: Scorer,
    queries: slice,
    k: int,
    excluded: RaggedIndices,
    masked: Tensor,
    config: ScoringConfig,
) -> tuple[npt.NDArray[Any], Integers]:
    """Return the k gallery items with the highest scores for a block of queries, see :func:`nearest_neighbours`."""
    excluded_rows, excluded_columns = excluded.block(queries)
    rows = torch.from_numpy(excluded_rows).to(config.device)
    columns = torch.from_numpy(excluded_columns).to(config.device)
    dtype = torch.float64 if config.precision == "float64" else torch.float32
    top_k = RunningTopK(queries.stop - queries.start, k, dtype, torch.device(config.device))
    with float32_matmul(config.precision):
        for gallery, scores in scorer.scores(queries):
            inside = (columns >= gallery.start) & (columns < gallery.stop)
            scores[rows[inside], columns[inside] - gallery.start] = -torch.inf
            scores[:, masked[gallery]] = -torch.inf
            top_k.add(scores, gallery.start)
    return top_k.result()

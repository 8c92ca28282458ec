"""Exact k-nearest-neighbour search.

:mod:`hgld.evaluation.ranking` ranks whole galleries for metrics; this module returns the first items.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.scoring import Scorer, ScoringConfig, Vectors, as_tensor, float32_matmul
from hgld.compute.top_k import RunningTopK, check_k, joined_top_k
from hgld.ragged import RaggedIndices


def nearest_neighbours(
    query_embeddings: Vectors,
    gallery_embeddings: Vectors,
    k: int,
    *,
    excluded: RaggedIndices | None = None,
    gallery_mask: npt.NDArray[np.bool_] | None = None,
    config: ScoringConfig | None = None,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return the k gallery items with the highest scores, best first.

    The gallery is scored in blocks, of which only the best items so far are kept, so memory is that of a block of
    queries times a block of the gallery. Items with equal scores are ordered by their positions.

    Args:
        query_embeddings: float, shape (n_query, d).
        gallery_embeddings: float, shape (n_gallery, d).
        k: Number of items per query; may exceed the size of the gallery.
        excluded: Gallery items to exclude for each query.
        gallery_mask: bool, shape (n_gallery,); False for items to exclude for all queries.
        config: How scores are computed.

    Returns:
        Scores (float32, or float64 where that is the precision) and positions in the gallery (int64), both of shape
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
    scorer = Scorer(queries, gallery, config)
    n_queries, n_gallery = len(queries), len(gallery)
    excluded = RaggedIndices.from_lists([[]] * n_queries) if excluded is None else excluded
    excluded.check(n_queries, n_gallery, "`excluded`")
    masked = torch.zeros(n_gallery, dtype=torch.bool) if gallery_mask is None else ~torch.from_numpy(gallery_mask)
    masked = masked.to(config.device)
    dtype = np.float64 if config.precision == "float64" else np.float32
    scores, positions = np.empty((n_queries, k), dtype), np.empty((n_queries, k), np.int64)
    step = config.queries_per_block(n_gallery)
    for start in range(0, n_queries, step):
        rows = slice(start, min(start + step, n_queries))
        scores[rows], positions[rows] = _search_block(scorer, rows, k, excluded, masked, config)
    return scores, positions


def _search_block(
    scorer: Scorer, queries: slice, k: int, excluded: RaggedIndices, masked: torch.Tensor, config: ScoringConfig
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    rows, columns = (torch.from_numpy(indices).to(config.device) for indices in excluded.block(queries))
    dtype = torch.float64 if config.precision == "float64" else torch.float32
    top_k = RunningTopK(queries.stop - queries.start, k, dtype, torch.device(config.device))
    with float32_matmul(config.precision):
        for gallery, scores in scorer.scores(queries):
            inside = (columns >= gallery.start) & (columns < gallery.stop)
            scores[rows[inside], columns[inside] - gallery.start] = -torch.inf
            scores[:, masked[gallery]] = -torch.inf
            top_k.add(scores, gallery.start)
    return joined_top_k([top_k])

"""The nearest gallery items of each query, with their scores: to look at, where :mod:`.ranking` is to count."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from hgld.errors import ConfigurationError
from hgld.evaluation.evaluate import Vectors, as_tensor
from hgld.evaluation.ranking import RankingConfig, Scorer, float32_matmul
from hgld.ragged import RaggedIndices


def nearest(
    query_embeddings: Vectors,
    gallery_embeddings: Vectors,
    k: int,
    *,
    excluded: RaggedIndices | None = None,
    gallery_mask: npt.NDArray[np.bool_] | None = None,
    config: RankingConfig | None = None,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Find the k gallery items with the highest scores, which are those of :func:`~hgld.evaluation.ranking.rank`.

    The gallery is scored a part at a time, and only the best so far are kept: memory is that of a block of queries
    and a part of the gallery. Of two items with the same score the one that stands earlier in the gallery is first.

    Args:
        query_embeddings: float, shape (n_query, d).
        gallery_embeddings: float, shape (n_gallery, d).
        k: how many; may be more than there are.
        excluded: for each query the gallery items that it may not find.
        gallery_mask: bool, shape (n_gallery,); False for the items that no query may find.
        config: how to score; its ``ties`` say nothing here.

    Returns:
        Scores, float32, and positions in the gallery, int64, both of the shape (n_query, k), best first. Where fewer
        than k items are left, the last scores are NaN and the last positions -1.

    Raises:
        ConfigurationError: k is less than 1.
        InputError: see :func:`~hgld.evaluation.ranking.rank`.

    >>> scores, positions = nearest(np.array([[1.0, 0.0]]), np.array([[0.6, 0.8], [1.0, 0.0], [0.0, 2.0]]), k=2)
    >>> scores.round(2).tolist(), positions.tolist()
    ([[1.0, 0.6000000238418579]], [[1, 0]])
    """
    if k < 1:
        raise ConfigurationError(f"the {k} nearest items are asked for; expected 1 or more")
    config = config or RankingConfig()
    own = as_tensor(query_embeddings)
    scorer = Scorer(own, own if gallery_embeddings is query_embeddings else as_tensor(gallery_embeddings), config)
    n_queries, n_gallery = len(query_embeddings), len(gallery_embeddings)
    gone = RaggedIndices.of([[]] * n_queries) if excluded is None else excluded
    gone.check(n_queries, n_gallery, "the list of items to leave out")
    masked = torch.zeros(n_gallery, dtype=torch.bool) if gallery_mask is None else ~torch.from_numpy(gallery_mask)
    masked = masked.to(config.device)
    scores, positions = np.empty((n_queries, k), np.float32), np.empty((n_queries, k), np.int64)
    step = config.queries_per_block(n_gallery)
    for start in range(0, n_queries, step):
        queries = slice(start, min(start + step, n_queries))
        rows, columns = (torch.from_numpy(indexes).to(config.device) for indexes in gone.block(queries))
        shape = (queries.stop - start, k)
        best = torch.full(shape, -torch.inf, device=config.device)  # widened by float64 scores
        best_at = torch.full(shape, -1, device=config.device)
        with float32_matmul(config.precision):
            for gallery, block in scorer.scores(queries):
                here = (columns >= gallery.start) & (columns < gallery.stop)
                block[rows[here], columns[here] - gallery.start] = -torch.inf
                block[:, masked[gallery]] = -torch.inf
                at = torch.arange(gallery.start, gallery.stop, device=block.device).expand_as(block)
                best, best_at = _highest(torch.cat([best, block], dim=1), torch.cat([best_at, at], dim=1), k)
        best, order = best.sort(dim=1, descending=True, stable=True)
        nothing = best.isneginf()
        scores[queries] = best.masked_fill(nothing, torch.nan).cpu().numpy()
        positions[queries] = best_at.gather(1, order).masked_fill(nothing, -1).cpu().numpy()
    return scores, positions


def _highest(scores: torch.Tensor, positions: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k highest scores of each row and their positions, in the order of the columns; of ties the first columns.

    ``topk`` alone would take any of the items that tie for the last place.
    """
    last = scores.topk(k, dim=1).values[:, -1:]
    above, equal = scores > last, scores == last
    kept = above | (equal & (equal.cumsum(dim=1) <= k - above.sum(dim=1, keepdim=True)))
    return scores[kept].view(-1, k), positions[kept].view(-1, k)

"""Precision-recall curves at each semantic level, and the hierarchical one (paper, Eqs. 30 to 32).

The precision at a recall r is the precision at the first rank whose recall is r or more, which is the rank of a
positive. So the curve of a query is a staircase; the area below it is AP, and that below the hierarchical one H-AP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.threads import parallel_map
from hgld.errors import ConfigurationError
from hgld.evaluation.ranking import RankingConfig, rank
from hgld.evaluation.relevance import Relevance, by_level, checked_relevance, hierarchical_relevance
from hgld.evaluation.relevance_judgements import RelevanceJudgements
from hgld.ragged import RaggedIndices

#: Elements of a temporary array [rows, L, ranks]: few enough for a core's cache, or enough to keep a GPU busy.
_BLOCK = {"cpu": 2**18, "cuda": 2**25}
#: Tolerance for the rounding of sums of many shares of 1.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class PrecisionRecall:
    """Precision-recall curves, averaged over the queries that have positives; NaN where none has.

    Args:
        recall: float64, shape (m,); recalls above 0 and up to 1.
        precision: float64, shape (L, m); mean precision at each level, coarsest first.
        hierarchical: float64, shape (m,); mean H-P@k at the first k that reaches the H-R@k.
    """

    recall: npt.NDArray[np.float64]
    precision: npt.NDArray[np.float64]
    hierarchical: npt.NDArray[np.float64]


def precision_recall(
    query_embeddings: torch.Tensor,
    gallery_embeddings: torch.Tensor,
    judgements: RelevanceJudgements,
    *,
    recall: npt.ArrayLike,
    relevance: Relevance = hierarchical_relevance,
    excluded: RaggedIndices | None = None,
    gallery_mask: npt.NDArray[np.bool_] | None = None,
    config: RankingConfig | None = None,
) -> PrecisionRecall:
    """Rank the gallery for every query, and return the precision-recall curves of all levels.

    Args:
        query_embeddings: float, shape (n_query, d).
        gallery_embeddings: float, shape (n_gallery, d).
        judgements: Levels of relevance of all pairs.
        recall: Recalls at which to take the precision, shape (m,); above 0 and up to 1.
        relevance: Relevance of the hierarchical curve.
        excluded: Gallery items to exclude from the ranking of each query.
        gallery_mask: bool, shape (n_gallery,); False for items to exclude from all rankings.
        config: Ranking configuration.

    Raises:
        ConfigurationError: A recall is not above 0 and up to 1.
        InputError: See :func:`~hgld.evaluation.ranking.rank`.
    """
    recalls = torch.from_numpy(np.array(recall, np.float64))
    if recalls.ndim != 1 or not ((recalls > 0) & (recalls <= 1)).all():
        raise ConfigurationError(f"`recall` is {recalls.tolist()}; expected numbers above 0 and up to 1")
    n_levels = judgements.n_levels
    binary = [by_level([float(n >= level) for n in range(n_levels + 1)]) for level in range(1, n_levels + 1)]
    relevances: tuple[Relevance, ...] = (*binary, checked_relevance(relevance))
    sums = torch.zeros(n_levels + 1, len(recalls), dtype=torch.float64)
    counts = torch.zeros(n_levels + 1, len(recalls), dtype=torch.float64)
    for ranked in rank(
        query_embeddings, gallery_embeddings, judgements, excluded=excluded, gallery_mask=gallery_mask, config=config
    ):
        device, n_ranks = ranked.levels.device, ranked.levels.shape[1]
        block_precisions = partial(_precisions, n_levels=n_levels, relevances=relevances, recalls=recalls.to(device))
        n_rows = max(1, _BLOCK[device.type] // (n_levels * n_ranks))
        blocks = zip(torch.split(ranked.levels, n_rows), torch.split(ranked.n_ranked, n_rows), strict=True)
        for precisions in parallel_map(block_precisions, blocks, device):
            sums += precisions.nansum(dim=1).cpu()
            counts += (~precisions.isnan()).sum(dim=1).cpu()
    means = (sums / counts).numpy()
    return PrecisionRecall(recalls.numpy(), means[:-1], means[-1])


def _precisions(
    ranked: tuple[torch.Tensor, torch.Tensor],
    *,
    n_levels: int,
    relevances: Sequence[Relevance],
    recalls: torch.Tensor,
) -> torch.Tensor:
    """Return H-P@k at the first k that reaches each H-R@k, for each relevance, from levels and lengths of rankings.

    With relevances of 0 and 1 these are precision and recall.

    Returns:
        float64, shape (n_relevance, n, m); NaN without positives.
    """
    levels, n_ranked = ranked
    each_level = torch.arange(1, n_levels + 1, device=levels.device)[:, None]
    hits = (levels[:, None] == each_level).cumsum(dim=2, dtype=torch.float64)  # per level, up to each rank
    counts = torch.cat([(n_ranked - hits[..., -1].sum(1))[:, None], hits[..., -1]], dim=1)
    precisions = []
    for relevance in relevances:
        level_relevance = relevance(counts)
        gained = (level_relevance[:, None, 1:] @ hits)[:, 0]
        at = torch.searchsorted(gained, gained[:, -1:] * recalls * (1 - _ROUNDING))
        item_relevance = level_relevance.gather(1, levels.gather(1, at).to(torch.int64))
        capped = torch.minimum(level_relevance[:, 1:, None], item_relevance[:, None])
        hits_at = hits.gather(2, at[:, None].expand(-1, n_levels, -1))
        precisions.append((capped * hits_at).sum(dim=1) / ((at + 1) * item_relevance))
    return torch.stack(precisions)

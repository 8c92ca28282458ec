"""Precision over recall, at each semantic level and hierarchical (paper, Eqs. 30 to 32).

The precision at a recall r is that at the first rank whose recall is r or more, which is the rank of a positive. So
the curve of a query is a staircase, and the area below it is AP; that below its hierarchical one is H-AP.
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
from hgld.evaluation.relevance import Relevance, by_level, hierarchical_relevance
from hgld.evaluation.relevance_judgements import RelevanceJudgements
from hgld.ragged import RaggedIndices

#: Elements of a temporary array [rows, L, ranks]: some fit into a core's cache, and many keep a GPU busy.
_BLOCK = {"cpu": 2**18, "cuda": 2**25}
#: Sums of many shares of 1 are off by less.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class PrecisionRecall:
    """Precision over recall, means over the queries that have positives; NaN where none has.

    Args:
        recall: float64, shape (m,), above 0 and up to 1.
        precision: float64, shape (L, m), at each level, the coarsest first.
        hierarchical: float64, shape (m,): H-P@k at the first k with that H-R@k.
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
    """Rank the gallery for every query, and take the mean precision at some recalls, in one pass for all levels.

    Args:
        query_embeddings: float, shape (n_query, d).
        gallery_embeddings: float, shape (n_gallery, d).
        judgements: the levels of all pairs.
        recall: shape (m,), above 0 and up to 1.
        relevance: of the hierarchical curve.
        excluded: for each query the gallery items to leave out of its ranking.
        gallery_mask: bool, shape (n_gallery,); False for the items that are excluded from all rankings.
        config: how to rank.

    Raises:
        ConfigurationError: a recall is not above 0 and up to 1.
        InputError: see :func:`~hgld.evaluation.ranking.rank`.
    """
    wanted = torch.from_numpy(np.array(recall, np.float64))
    if wanted.ndim != 1 or not ((wanted > 0) & (wanted <= 1)).all():
        raise ConfigurationError(f"the recalls are {wanted.tolist()}; expected numbers above 0, and up to 1")
    n_levels = judgements.n_levels
    binary = (by_level([float(of >= level) for of in range(n_levels + 1)]) for level in range(1, n_levels + 1))
    relevances: tuple[Relevance, ...] = (*binary, relevance)
    sums = torch.zeros(n_levels + 1, len(wanted), dtype=torch.float64)
    n_known = torch.zeros(n_levels + 1, len(wanted), dtype=torch.float64)
    for ranked in rank(
        query_embeddings, gallery_embeddings, judgements, excluded=excluded, gallery_mask=gallery_mask, config=config
    ):
        device, n_ranks = ranked.levels.device, ranked.levels.shape[1]
        of_block = partial(_precisions, n_levels=n_levels, relevances=relevances, recall=wanted.to(device))
        step = max(1, _BLOCK[device.type] // (n_levels * n_ranks))
        blocks = zip(torch.split(ranked.levels, step), torch.split(ranked.n_ranked, step), strict=True)
        for found in parallel_map(of_block, blocks, device):
            sums += found.nansum(dim=1).cpu()
            n_known += (~found.isnan()).sum(dim=1).cpu()
    means = (sums / n_known).numpy()
    return PrecisionRecall(wanted.numpy(), means[:-1], means[-1])


def _precisions(
    ranked: tuple[torch.Tensor, torch.Tensor],
    *,
    n_levels: int,
    relevances: Sequence[Relevance],
    recall: torch.Tensor,
) -> torch.Tensor:
    """H-P@k at the first k with each H-R@k, for each relevance: shape (n_relevance, n, m); NaN without positives.

    They are precision and recall where relevances are 0 and 1. Of a few rankings there are levels and lengths.
    """
    levels, n_ranked = ranked
    exactly = torch.arange(1, n_levels + 1, device=levels.device)[:, None]
    seen = (levels[:, None] == exactly).cumsum(dim=2, dtype=torch.float64)  # of each level up to each rank
    counts = torch.cat([(n_ranked - seen[..., -1].sum(1))[:, None], seen[..., -1]], dim=1)
    found = []
    for relevance in relevances:
        of_level = relevance(counts)
        gathered = (of_level[:, None, 1:] @ seen)[:, 0]
        at = torch.searchsorted(gathered, gathered[:, -1:] * recall * (1 - _ROUNDING))
        own = of_level.gather(1, levels.gather(1, at).to(torch.int64))
        lesser = torch.minimum(of_level[:, 1:, None], own[:, None])
        hits = seen.gather(2, at[:, None].expand(-1, n_levels, -1))
        found.append((lesser * hits).sum(dim=1) / ((at + 1) * own))
    return torch.stack(found)

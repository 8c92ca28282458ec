"""Distributions of the scores of pairs, by the level that the pairs share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.scoring import Scorer, float32_matmul
from hgld.compute.threads import parallel_map
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.relevance_judgements import RelevanceJudgements
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.ragged import RaggedIndices


@dataclass(frozen=True, eq=False)
class ScoreCounts:
    """Histograms of cosines, one per level.

    Args:
        counts: int64, shape (L + 1, n_bins); number of pairs that share each level (0 for none) in each bin.
        edges: float64, shape (n_bins + 1,); edges of the equally wide bins, from -1 to 1.
    """

    counts: LabelMatrix
    edges: npt.NDArray[np.float64]

    def densities(self) -> npt.NDArray[np.float64]:
        """Return the density of cosines at each level, shape (L + 1, n_bins); NaN for levels without pairs."""
        sizes = self.counts.sum(axis=1, keepdims=True, dtype=np.float64)
        sizes[sizes == 0] = np.nan
        return np.asarray(self.counts / sizes / np.diff(self.edges))

    def separation(self) -> float:
        """Return the probability that a pair of the finest level scores higher than any other pair (ROC AUC).

        Pairs in the same bin count half. It is 1 where a single threshold separates the pairs of all queries, which
        is more than a correct ranking of each query requires.

        >>> ScoreCounts(np.array([[0, 2, 0, 0], [0, 1, 0, 1]]), np.linspace(-1, 1, 5)).separation()
        0.75
        """
        finest, others = self.counts[-1].astype(np.float64), self.counts[:-1].sum(axis=0, dtype=np.float64)
        lower = np.cumsum(others) - others / 2
        return float(finest @ lower / (finest.sum() * others.sum()))


def count_scores(
    query_embeddings: torch.Tensor,
    gallery_embeddings: torch.Tensor,
    judgements: RelevanceJudgements,
    *,
    excluded: RaggedIndices | None = None,
    gallery_mask: npt.NDArray[np.bool_] | None = None,
    n_bins: int = 200,
    config: RankingConfig | None = None,
) -> ScoreCounts:
    """Count the cosines of all queries with the gallery, in blocks of queries.

    Args:
        query_embeddings: float, shape (n_query, d).
        gallery_embeddings: float, shape (n_gallery, d).
        judgements: Levels of relevance of all pairs.
        excluded: Gallery items to exclude for each query.
        gallery_mask: bool, shape (n_gallery,); False for items to exclude for all queries.
        n_bins: Number of bins between -1 and 1.
        config: Ranking configuration.

    Raises:
        InputError: The embeddings differ in dimension, or one is zero or not finite.
    """
    config = config or RankingConfig()
    device = torch.device(config.device)
    scorer, judgements = Scorer(query_embeddings, gallery_embeddings, config), judgements.to(device)
    excluded = RaggedIndices.from_lists([[]] * judgements.n_queries) if excluded is None else excluded
    masked = None if gallery_mask is None else torch.from_numpy(~gallery_mask).to(device)
    counts = torch.zeros(judgements.n_levels + 1, n_bins, dtype=torch.int64, device=device)
    step = config.queries_per_block(judgements.n_gallery)
    for start in range(0, judgements.n_queries, step):
        queries = slice(start, min(start + step, judgements.n_queries))
        pairs = tuple(torch.from_numpy(indices).to(device) for indices in excluded.block(queries))
        count = partial(_count, scorer, judgements, queries, pairs, masked, n_bins)
        with float32_matmul(config.precision):
            for block_counts in parallel_map(count, scorer.shares(judgements.n_gallery), device):
                counts += block_counts
    return ScoreCounts(counts.cpu().numpy(), np.linspace(-1, 1, n_bins + 1))


def _count(
    scorer: Scorer,
    judgements: RelevanceJudgements,
    queries: slice,
    excluded: tuple[torch.Tensor, ...],
    masked: torch.Tensor | None,
    n_bins: int,
    starts: range,
) -> torch.Tensor:
    """Count the scores of a block of queries with blocks of the gallery.

    Pairs that are excluded or masked are counted in one bin past the last, which is dropped.
    """
    rows, columns = excluded
    n_counts = (judgements.n_levels + 1) * n_bins
    counts = torch.zeros(n_counts + 1, dtype=torch.int64, device=rows.device)
    for gallery, scores in scorer.scores(queries, starts):
        bins = ((scores + 1) * (n_bins / 2)).to(torch.int64).clamp_(0, n_bins - 1)
        bins += judgements.levels(queries, gallery).to(torch.int64) * n_bins
        inside = (columns >= gallery.start) & (columns < gallery.stop)
        bins[rows[inside], columns[inside] - gallery.start] = n_counts
        if masked is not None:
            bins[:, masked[gallery]] = n_counts
        counts += torch.bincount(bins.flatten(), minlength=n_counts + 1)
    return counts[:-1].view(-1, n_bins)

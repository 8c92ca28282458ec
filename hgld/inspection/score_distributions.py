"""How the scores of pairs are distributed, by the level that the two share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.threads import parallel_map
from hgld.evaluation.ranking import RankingConfig, Scorer, float32_matmul
from hgld.evaluation.relevance_judgements import RelevanceJudgements
from hgld.ragged import RaggedIndices


@dataclass(frozen=True, eq=False)
class ScoreCounts:
    """How many pairs have which cosine.

    Args:
        counts: int64, shape (L + 1, n_bins): pairs that share a level, 0 for none, in equally wide bins of cosines.
        edges: float64, shape (n_bins + 1,), of the bins, from -1 to 1.
    """

    counts: npt.NDArray[np.int64]
    edges: npt.NDArray[np.float64]

    def densities(self) -> npt.NDArray[np.float64]:
        """For each level the density of the cosines of its pairs, same shape; NaN for a level without pairs."""
        sizes = self.counts.sum(axis=1, keepdims=True, dtype=np.float64)
        sizes[sizes == 0] = np.nan
        return np.asarray(self.counts / sizes / np.diff(self.edges))

    def separation(self) -> float:
        """How often a pair of the finest level scores higher than one of any other, of all queries (ROC AUC).

        Pairs in one bin count half. It is 1 where a single score divides the pairs of all queries; a ranking of each
        query needs less.

        >>> ScoreCounts(np.array([[0, 2, 0, 0], [0, 1, 0, 1]]), np.linspace(-1, 1, 5)).separation()
        0.75
        """
        finest, others = self.counts[-1].astype(np.float64), self.counts[:-1].sum(axis=0, dtype=np.float64)
        below = np.cumsum(others) - others / 2
        return float(finest @ below / (finest.sum() * others.sum()))


def count_scores(
    query_embeddings: torch.Tensor,
    gallery_embeddings: torch.Tensor,
    judgements: RelevanceJudgements,
    *,
    excluded: RaggedIndices | None = None,
    n_bins: int = 200,
    config: RankingConfig | None = None,
) -> ScoreCounts:
    """Count the cosines of all queries with the gallery, a block of queries at a time.

    Args:
        query_embeddings: float, shape (n_query, d).
        gallery_embeddings: float, shape (n_gallery, d).
        judgements: the levels of all pairs.
        excluded: for each query the gallery items that do not count.
        n_bins: from -1 to 1.
        config: how to score.

    Raises:
        InputError: the embeddings do not fit each other, or one has a value that is not finite, or only zeros.
    """
    config = config or RankingConfig()
    device = torch.device(config.device)
    scorer, judgements = Scorer(query_embeddings, gallery_embeddings, config), judgements.to(device)
    gone = RaggedIndices.of([[]] * judgements.n_queries) if excluded is None else excluded
    counts = torch.zeros(judgements.n_levels + 1, n_bins, dtype=torch.int64, device=device)
    step = config.queries_per_block(judgements.n_gallery)
    for start in range(0, judgements.n_queries, step):
        queries = slice(start, min(start + step, judgements.n_queries))
        pairs = tuple(torch.from_numpy(indexes).to(device) for indexes in gone.block(queries))
        count = partial(_count, scorer, judgements, queries, pairs, n_bins)
        with float32_matmul(config.precision):
            for some in parallel_map(count, scorer.shares(judgements.n_gallery), device):
                counts += some
    return ScoreCounts(counts.cpu().numpy(), np.linspace(-1, 1, n_bins + 1))


def _count(
    scorer: Scorer,
    judgements: RelevanceJudgements,
    queries: slice,
    excluded: tuple[torch.Tensor, ...],
    n_bins: int,
    starts: range,
) -> torch.Tensor:
    """The counts of a few queries with parts of the gallery; what is left out is counted last, and dropped."""
    rows, columns = excluded
    n_counts = (judgements.n_levels + 1) * n_bins
    counts = torch.zeros(n_counts + 1, dtype=torch.int64, device=rows.device)
    for gallery, scores in scorer.scores(queries, starts):
        bins = ((scores + 1) * (n_bins / 2)).to(torch.int64).clamp_(0, n_bins - 1)
        bins += judgements.levels(queries, gallery).to(torch.int64) * n_bins
        here = (columns >= gallery.start) & (columns < gallery.stop)
        bins[rows[here], columns[here] - gallery.start] = n_counts
        counts += torch.bincount(bins.flatten(), minlength=n_counts + 1)
    return counts[:-1].view(-1, n_bins)

"""Data of the figures of a comparison: precision-recall curves, score distributions, class means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from hgld.arrays import Floats, Integers
from hgld.compute.machine import parallel_map
from hgld.compute.scoring import Scorer, float32_matmul
from hgld.errors import ConfigurationError
from hgld.evaluation import evaluate_retrieval
from hgld.evaluation.ranking import RankingConfig, rank
from hgld.evaluation.relevance import Relevance, by_level, hierarchical_relevance
from hgld.evaluation.retrieval_task import RelevanceJudgements, RetrievalTask
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.ragged import RaggedIndices

#: Elements of a temporary array [rows, L, ranks]: few enough for a core's cache, or enough for a GPU.
_BLOCK = {"cpu": 2**18, "cuda": 2**25}
#: Number of vectors read at once: 64 MB as float64 if vectors have 2,048 numbers.
_VECTORS_PER_BLOCK = 4096
#: Tolerance for the rounding of sums of many shares of 1.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class PrecisionRecall:
    """Precision-recall curves, averaged over the queries with positives; NaN without such queries.

    Args:
        recall: float64, shape (m,); recalls above 0 and up to 1.
        precision: float64, shape (L, m); mean precision at each level, coarsest first.
        hierarchical: float64, shape (m,); mean H-P@k at the first k that reaches the H-R@k.
    """

    recall: Floats
    precision: Floats
    hierarchical: Floats


def precision_recall(
    task: RetrievalTask,
    recall: npt.ArrayLike,
    *,
    config: RankingConfig | None = None,
) -> PrecisionRecall:
    """Return precision-recall curves of all levels (paper, Eqs. 30 to 32).

    The gallery is ranked for every query.

    The precision at a recall r is the precision at the first rank whose recall is r or more, which is
    the rank of a positive. So the curve of a query is a staircase; the area below it is AP, and the area
    below the hierarchical curve is H-AP.

    Args:
        task: The task.
        recall: float, shape (m,); recalls, above 0 and up to 1, at which to compute the precision.
        config: Settings of the ranking.

    Raises:
        ConfigurationError: A recall is not above 0 and up to 1.
        InputError: See :func:`~hgld.evaluation.ranking.rank`.
    """
    recalls = torch.from_numpy(np.array(recall, np.float64))
    if recalls.ndim != 1 or not ((recalls > 0) & (recalls <= 1)).all():
        raise ConfigurationError(
            f"`recall` is {recalls.tolist()}; expected numbers above 0 and up to 1"
        )
    n_levels = task.judgements.n_levels
    relevances: list[Relevance] = []
    for level in range(1, n_levels + 1):
        relevances.append(by_level([0.0] * level + [1.0] * (n_levels + 1 - level)))
    relevances.append(hierarchical_relevance)
    sums = torch.zeros(n_levels + 1, len(recalls), dtype=torch.float64)
    counts = torch.zeros(n_levels + 1, len(recalls), dtype=torch.float64)
    for ranked in rank(task, config):
        device = ranked.levels.device
        n_ranks = ranked.levels.shape[1]
        block_precisions = partial(
            _precisions, n_levels=n_levels, relevances=relevances, recalls=recalls.to(device)
        )
        n_rows = max(1, _BLOCK[device.type] // (n_levels * n_ranks))
        levels = torch.split(ranked.levels, n_rows)
        blocks = zip(levels, torch.split(ranked.n_ranked, n_rows), strict=True)
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
    """Return H-P@k at the first k that reaches each H-R@k, float64, shape (n_relevance, n, m).

    With relevances of 0 and 1 these are precision and recall. NaN for rankings without positives.

    Args:
        ranked: Levels in ranked order, uint8, shape (n, N), and the number of ranked items, shape (n,).
        n_levels: Number of levels L.
        relevances: Relevances of the levels.
        recalls: float64, shape (m,).
    """
    levels, n_ranked = ranked
    level_numbers = torch.arange(1, n_levels + 1, device=levels.device)[:, None]
    # Number of items of each level up to each rank.
    hits = (levels[:, None] == level_numbers).cumsum(dim=2, dtype=torch.float64)
    n_of_level = hits[..., -1]
    n_of_level_0 = n_ranked - n_of_level.sum(1)
    counts = torch.cat([n_of_level_0[:, None], n_of_level], dim=1)
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


@dataclass(frozen=True, eq=False)
class ScoreCounts:
    """Histograms of cosines, one per level.

    Args:
        counts: int64, shape (L + 1, n_bins); number of pairs in each bin by shared level, 0 for no shared
            level.
        edges: float64, shape (n_bins + 1,); edges of the equally wide bins, from -1 to 1.
    """

    counts: LabelMatrix
    edges: Floats

    def densities(self) -> Floats:
        """Return densities of cosines by level, shape (L + 1, n_bins); NaN for levels without pairs."""
        sizes = self.counts.sum(axis=1, keepdims=True, dtype=np.float64)
        sizes[sizes == 0] = np.nan
        return np.asarray(self.counts / sizes / np.diff(self.edges))

    def separation(self) -> float:
        """Return the ROC AUC: the probability that a pair of the finest level scores higher than another.

        Pairs in the same bin count half. It is 1 if a single threshold separates the pairs of all
        queries, which is more than a correct ranking of each query requires.

        >>> ScoreCounts(np.array([[0, 2, 0, 0], [0, 1, 0, 1]]), np.linspace(-1, 1, 5)).separation()
        0.75
        """
        finest = self.counts[-1].astype(np.float64)
        others = self.counts[:-1].sum(axis=0, dtype=np.float64)
        lower = np.cumsum(others) - others / 2
        return float(finest @ lower / (finest.sum() * others.sum()))


def count_scores(
    task: RetrievalTask, *, n_bins: int = 200, config: RankingConfig | None = None
) -> ScoreCounts:
    """Count the cosines of all queries with the gallery between -1 and 1, in blocks of queries.

    Raises:
        InputError: The embeddings differ in dimension, or an embedding is zero or not finite.
    """
    config = config or RankingConfig()
    device = torch.device(config.device)
    scorer = Scorer(task.queries, task.gallery, config)
    judgements = task.judgements.to(device)
    excluded = task.excluded
    if excluded is None:
        excluded = RaggedIndices.empty(judgements.n_queries)
    masked = None
    if task.gallery_mask is not None:
        masked = torch.from_numpy(~task.gallery_mask).to(device)
    counts = torch.zeros(judgements.n_levels + 1, n_bins, dtype=torch.int64, device=device)
    step = config.queries_per_block(judgements.n_gallery)
    for start in range(0, judgements.n_queries, step):
        queries = slice(start, min(start + step, judgements.n_queries))
        rows, columns = excluded.block(queries)
        pairs = (torch.from_numpy(rows).to(device), torch.from_numpy(columns).to(device))
        count = partial(_count, scorer, judgements, queries, pairs, masked, n_bins)
        with float32_matmul(config.precision):
            for block_counts in parallel_map(count, scorer.shares(judgements.n_gallery), device):
                counts += block_counts
    return ScoreCounts(counts.cpu().numpy(), np.linspace(-1, 1, n_bins + 1))


def _count(
    scorer: Scorer,
    judgements: RelevanceJudgements,
    queries: slice,
    excluded: tuple[torch.Tensor, torch.Tensor],
    masked: torch.Tensor | None,
    n_bins: int,
    starts: range,
) -> torch.Tensor:
    """Count the scores of a block of queries with blocks of the gallery.

    Excluded and masked pairs are counted in one bin after the last, which is dropped.
    """
    rows, columns = excluded
    n_counts = (judgements.n_levels + 1) * n_bins
    counts = torch.zeros(n_counts + 1, dtype=torch.int64, device=rows.device)
    for gallery, scores in scorer.scores(queries, starts):
        bins = ((scores + 1) * (n_bins / 2)).to(torch.int64).clamp_(0, n_bins - 1)
        bins += judgements.levels(queries, gallery).to(torch.int64) * n_bins
        is_inside = (columns >= gallery.start) & (columns < gallery.stop)
        bins[rows[is_inside], columns[is_inside] - gallery.start] = n_counts
        if masked is not None:
            bins[:, masked[gallery]] = n_counts
        counts += torch.bincount(bins.flatten(), minlength=n_counts + 1)
    return counts[:-1].view(-1, n_bins)


#: Number of nearest classes that :func:`neighbour_agreement` considers.
N_NEIGHBOURS = 5


@dataclass(frozen=True, eq=False)
class MeanEmbeddings:
    """Mean embeddings of classes of the finest level, or of a sample of classes.

    Args:
        means: Means of length 1, float64, shape (n, d).
        labels: Labels of the n classes, int64, shape (n, L), finest first; ascending at the finest level.
        n_classes: Number of classes from which the sample was drawn; n without a sample.
    """

    means: Floats
    labels: LabelMatrix
    n_classes: int


def class_means(
    parts: Sequence[tuple[torch.Tensor, LabelMatrix]], *, max_classes: int | None = None
) -> MeanEmbeddings:
    """Return the normalised mean of the normalised embeddings of each class of the finest level.

    The embeddings are read in blocks, so they may be memory-mapped; other memory is taken by the means.

    Args:
        parts: Embeddings, float, shape (n, d), with labels of the same classes, int64, shape (n, L),
            finest first; rows whose finest label is -1 are ignored.
        max_classes: Largest number of classes; of more classes, a random sample is used.
    """
    labels = np.concatenate([labels for _, labels in parts])
    classes, rows = np.unique(labels[:, 0], return_index=True)
    is_class = classes >= 0
    classes = classes[is_class]
    rows = rows[is_class]
    n_classes = len(classes)
    if max_classes is not None and n_classes > max_classes:
        sample = np.sort(np.random.default_rng(0).choice(n_classes, max_classes, replace=False))
        classes = classes[sample]
        rows = rows[sample]
    sums = np.zeros((len(classes), parts[0][0].shape[1]))
    for vectors, part_labels in parts:
        positions = np.searchsorted(classes, part_labels[:, 0]).clip(max=len(classes) - 1)
        positions[classes[positions] != part_labels[:, 0]] = -1
        sums += _sum_directions(vectors, positions, len(classes))
    return MeanEmbeddings(_normalised(sums), labels[rows], n_classes)


def _sum_directions(vectors: torch.Tensor, groups: Integers, n_groups: int) -> Floats:
    """Return the sum of the L2-normalised vectors of each group: float64, shape (n_groups, d).

    Args:
        vectors: float, shape (n, d).
        groups: int64, shape (n,); position of the group of each vector, -1 for vectors without a group.
    """
    sums = np.zeros((n_groups, vectors.shape[1]))
    selected = np.flatnonzero(groups >= 0)
    for start in range(0, len(selected), _VECTORS_PER_BLOCK):
        rows = selected[start : start + _VECTORS_PER_BLOCK]
        directions = _normalised(vectors[torch.from_numpy(rows)].double().numpy())
        np.add.at(sums, groups[rows], directions)
    return sums


def _normalised(vectors: Floats) -> Floats:
    """Return vectors divided by their length; vectors of zeros stay as they are."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths == 0, 1, lengths))


def neighbour_agreement(means: Floats, categories: LabelMatrix) -> float:
    """Return the mean share of a class's five nearest classes that have its category, from 0 to 1.

    Classes that are alone in their category do not count; NaN if all classes are alone.

    Args:
        means: float64, shape (n_classes, d), for two classes or more.
        categories: Category of each class, shape (n_classes,) or (n_classes, L).

    >>> neighbour_agreement(np.array([[1, 0.0], [0.9, 0.1], [0, 1]]), np.array([0, 0, 1]))  # two neighbours each
    0.5
    """
    metric = f"P@{min(N_NEIGHBOURS, len(means) - 1)}"
    return evaluate_retrieval(means, categories, metrics=[metric]).means[metric]

"""Re-ranking by embeddings or pairs of images, after which every item has a rank, so that all metrics are defined.

Methods of two kinds. Some sum embeddings with those of their neighbours, and rank as before: average query expansion
(``aqe``; Chum et al., ICCV 2007), alpha query expansion (``alpha-qe``; Radenović et al., TPAMI 2018), and
database augmentation (``dba``; Arandjelović and Zisserman, CVPR 2012), which sums those of the gallery. The others
score the first candidates of each query anew, from the similarities among them, and put them before all other items,
which keep their order: k-reciprocal encoding (Zhong et al., CVPR 2017), diffusion (Iscen et al., CVPR 2017) and
SuperGlobal (Shao et al., ICCV 2023, arXiv 2308.06954). Their graphs of neighbours are those among the query and its
candidates, and so do not depend on the size of the gallery. ``local-features`` scores each candidate alone, by a
:class:`PairScorer`, which knows the photographs.

A query that is in the gallery itself is no neighbour and no candidate, nor part of what ``dba`` makes of the images
that are ranked for it: its ranking is that of a gallery without it. Junk of a ground truth, which metrics leave out,
is part of the gallery, as methods cannot know it.

Scores are computed a block of queries at a time, once more than without re-ranking; ``dba`` also compares all pairs
of the gallery, and keeps a copy of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hgld.arrays import AnyFloats, Booleans, Integers
from hgld.compute.machine import parallel_map
from hgld.compute.nearest_neighbours import nearest_neighbours, search_block
from hgld.compute.scoring import Scorer, ScoringConfig, vector_lengths
from hgld.errors import ConfigurationError
from hgld.evaluation.settings import RerankSettings
from hgld.io.text_array import Ids
from hgld.ragged import RaggedIndices

#: Embeddings that are summed with their neighbours at once.
_ROWS = 256
#: Scores of gallery items, int64, shape (c,), for a query by its row; higher for what is ranked first.
PairScores = Callable[[int, Integers], npt.NDArray[Any]]


class PairScorer(Protocol):
    """Scores pairs of images by more than their embeddings, such as :class:`~hgld.search.LocalFeatures`."""

    def scores(self, query: Any, candidates: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the scores of candidates for a query, shape (c,), higher for what is ranked first.

        Args:
            query: Id of the query; threads may ask for several at the same time.
            candidates: Ids of the candidates, shape (c,).
        """


def pair_scores(scorer: PairScorer | None, query_ids: Ids | None, gallery_ids: Ids | None) -> PairScores | None:
    """Return the scores of pairs by their positions; None without a scorer, or without ids."""
    if scorer is None or query_ids is None or gallery_ids is None:
        return None
    return lambda row, positions: scorer.scores(query_ids[row], np.asarray(gallery_ids[positions]))


def unit(vectors: Tensor, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
    """Return vectors of length 1; those of zeros stay as they are."""
    vectors = vectors.to(device, dtype)
    lengths = vector_lengths(vectors, dtype)
    return vectors / torch.where(lengths > 0, lengths, 1)[..., None]


def expand(
    vectors: Tensor, gallery: Tensor, cosines: AnyFloats, positions: Integers, settings: RerankSettings, device: str
) -> Tensor:
    """Return the sums of vectors and their neighbours, with weights cos^alpha (1 for ``aqe``) and length 1.

    Args:
        vectors: float, shape (n, d).
        gallery: float, shape (n_gallery, d).
        cosines: float, shape (n, k); negative ones count as 0.
        positions: int64, shape (n, k), of the neighbours in the gallery; -1 for none.
    """
    alpha = 0 if settings.rerank == "aqe" else settings.rerank_alpha
    weights = torch.from_numpy(np.where(positions < 0, 0, cosines.clip(min=0) ** alpha)).to(device)
    near = torch.from_numpy(positions.clip(min=0))
    expanded = torch.empty(vectors.shape, dtype=weights.dtype, device=device)
    for start in range(0, len(vectors), _ROWS):
        rows = slice(start, start + _ROWS)
        sums = torch.einsum("nk,nkd->nd", weights[rows], unit(gallery[near[rows]], weights.dtype, device))
        expanded[rows] = unit(unit(vectors[rows], weights.dtype, device) + sums, weights.dtype, device)
    return expanded


def _highest(values: Tensor, k: int) -> Tensor:
    """Return which values are among the k highest of their row, bool, of the same shape (n, n)."""
    columns = values.topk(min(k, values.shape[1]), dim=1).indices
    return torch.zeros_like(values, dtype=torch.bool).scatter_(1, columns, True)


def k_reciprocal(query: Tensor, candidates: Tensor, settings: RerankSettings) -> Tensor:
    """Score candidates by (1 - lambda) d_J + lambda d of Zhong et al. (Eq. 12), with the distance d = 1 - cos.

    d_J is the Jaccard distance of k-reciprocal encodings (Eqs. 7, 10 and 11); k2 = 6 and lambda = 0.3, as published.

    Args:
        query: Unit vector, float, shape (d,).
        candidates: Unit vectors, shape (n, d), nearest first.
        settings: ``rerank_neighbours`` is k1.

    Returns:
        Scores, higher for what is ranked first, shape (n,).
    """
    points = torch.cat([query[None], candidates])
    distances = (1 - points @ points.T).fill_diagonal_(0)
    nearness = (-distances).fill_diagonal_(torch.inf)  # each is its own first neighbour, also among copies
    k1, k2, weight = settings.neighbours, 6, 0.3
    near, half = (_highest(nearness, k + 1) for k in (k1, round(k1 / 2)))
    reciprocal, half = near & near.T, (half & half.T).to(points.dtype)
    shared = reciprocal.to(points.dtype) @ half.T
    growing = reciprocal & (shared >= 2 / 3 * half.sum(1))
    members = reciprocal | (growing.to(points.dtype) @ half > 0)
    encodings = _highest(nearness, k2).to(points.dtype) @ (torch.exp(-distances) * members) / k2
    minima = torch.minimum(encodings[0], encodings[1:]).sum(1)
    jaccard = 1 - minima / (encodings[0].sum() + encodings[1:].sum(1) - minima)
    return -((1 - weight) * jaccard + weight * distances[0, 1:])


def diffusion(query: Tensor, candidates: Tensor, settings: RerankSettings) -> Tensor:
    """Score candidates by the steady state f of a diffusion on their graph: (I - 0.99 S) f = y (Iscen et al.).

    S is the normalised affinity of mutual neighbours, cos^alpha, and y that of the query with its ten nearest. The
    graph is truncated to the candidates, as the paper does for large galleries, and solved exactly. See
    :func:`k_reciprocal`; ``rerank_neighbours`` is k.
    """
    cosines = (candidates @ candidates.T).double().clamp(min=0).fill_diagonal_(0)
    near = _highest(cosines, settings.neighbours)
    affinity = cosines**settings.rerank_alpha * (near & near.T).fill_diagonal_(False)
    degrees = affinity.sum(1)
    scale = torch.where(degrees > 0, degrees.rsqrt(), 0)
    seeds = (candidates @ query).double().clamp(min=0) ** settings.rerank_alpha
    seeds[10:] = 0
    laplacian = torch.eye(len(seeds)).to(affinity) - 0.99 * scale[:, None] * affinity * scale
    steady: Tensor = torch.linalg.solve(laplacian, seeds)
    return steady


def superglobal(query: Tensor, candidates: Tensor, settings: RerankSettings) -> Tensor:
    """Score candidates by (S1 + S2) / 2 of SuperGlobal: products of refined with original embeddings.

    A candidate is refined by a mean over itself, with the weight 1, and its K nearest candidates, with 0.15 cos; S1
    is its product with the query. The query becomes the maximum, in each dimension, of the refined embeddings of the
    first K + 1 by S1; S2 is its product with the original candidate. (The published code takes the refined one.)
    Negative cosines have no weight. See :func:`k_reciprocal`; ``rerank_neighbours`` is K.
    """
    cosines = candidates @ candidates.T
    near = _highest(cosines.clone().fill_diagonal_(-torch.inf), settings.neighbours)
    weights = (0.15 * cosines.clamp(min=0) * near).fill_diagonal_(1)
    weights /= weights.sum(1, keepdim=True)
    first = weights @ (candidates @ query)
    best = first.topk(min(settings.neighbours + 1, len(first))).indices
    pooled = (weights[best] @ candidates).amax(0)
    return (first + candidates @ pooled) / 2


#: Methods that score candidates.
CANDIDATE_METHODS: Mapping[str | None, Callable[[Tensor, Tensor, RerankSettings], Tensor]] = {
    "k-reciprocal": k_reciprocal,
    "diffusion": diffusion,
    "superglobal": superglobal,
}


def candidate_ranks(
    queries: Tensor,
    gallery: Tensor,
    cosines: AnyFloats,
    positions: Integers,
    settings: RerankSettings,
    pairs: PairScores | None = None,
) -> Integers:
    """Return the ranks of the candidates of each query: int64, shape (n, c), from 0; those of no candidate are high.

    Of equal scores the candidate of the higher cosine comes first; if these are equal, too, so are the ranks.

    Args:
        queries: Unit vectors on the device that computes, float, shape (n, d).
        gallery: float, shape (n_gallery, d).
        cosines: float, shape (n, c), highest first.
        positions: int64, shape (n, c), of the candidates in the gallery; -1 after the last.

    Raises:
        ConfigurationError: There are no scores of pairs, but the method needs them.
    """
    ranks = np.full(positions.shape, positions.shape[1])
    method = CANDIDATE_METHODS.get(settings.rerank)
    if method is None and pairs is None:
        raise ConfigurationError(
            f"`rerank` {settings.rerank} compares photographs, which it finds by the ids of queries and gallery: "
            "give `images`, and embeddings with ids, of a protocol that ranks images"
        )

    def scores(row: int, known: Integers) -> npt.NDArray[Any]:
        if method is None:
            assert pairs is not None
            return pairs(row, known)
        near = unit(gallery[torch.from_numpy(known)], queries.dtype, queries.device)
        return method(queries[row], near, settings).cpu().numpy()

    def order(row: int) -> None:
        known = positions[row][positions[row] >= 0]
        keys = np.stack([-cosines[row, : len(known)], -scores(row, known)])
        by_rank = np.lexsort(keys)
        differ = (np.diff(keys[:, by_rank], axis=1) != 0).any(0)
        ranks[row, by_rank] = np.cumsum(np.concatenate([[0], differ]))

    parallel_map(order, [row for row in range(len(positions)) if positions[row, 0] >= 0], queries.device)
    return ranks


@dataclass(frozen=True, eq=False)
class AugmentedGallery:
    """A gallery after database augmentation.

    Args:
        vectors: Unit vectors, float, shape (n_gallery, d), of the type of the gallery.
        cosines: float, shape (n_gallery, k + m), of each item's neighbours, of which the first k are in its sum.
        positions: int64, shape (n_gallery, k + m); -1 for none.
    """

    vectors: Tensor
    cosines: AnyFloats
    positions: Integers


def augment_gallery(
    gallery: Tensor,
    settings: RerankSettings,
    config: ScoringConfig | None = None,
    gallery_mask: Booleans | None = None,
    n_more: int = 0,
) -> AugmentedGallery:
    """Sum each item with its k nearest neighbours; m = ``n_more`` further neighbours are only found."""
    k, itself = settings.neighbours, RaggedIndices.identity(len(gallery))
    cosines, positions = nearest_neighbours(
        gallery, gallery, k + n_more, excluded=itself, gallery_mask=gallery_mask, config=config
    )
    vectors = expand(gallery, gallery, cosines[:, :k], positions[:, :k], settings, "cpu")
    return AugmentedGallery(vectors.to(gallery.dtype), cosines, positions)


class RerankedScorer(Scorer):
    """Scores of queries with a gallery after re-ranking.

    Scores of candidates are between 1.5 and 2, by rank; all others are cosines of what the method makes of the
    embeddings.

    Args:
        queries: float, shape (n_query, d).
        gallery: float, shape (n_gallery, d).
        itself: Gallery items that are the query itself, or copies of it, for each query.
        gallery_mask: bool, shape (n_gallery,); False for items that do not belong to the gallery.

    Raises:
        InputError: See :class:`~hgld.compute.scoring.Scorer`.
    """

    def __init__(
        self,
        queries: Tensor,
        gallery: Tensor,
        config: ScoringConfig,
        settings: RerankSettings,
        itself: RaggedIndices | None = None,
        gallery_mask: Booleans | None = None,
        pairs: PairScores | None = None,
    ) -> None:
        self._settings, self._config, self._originals, self._pair_scores = settings, config, gallery, pairs
        self._itself = RaggedIndices.empty(len(queries)) if itself is None else itself
        mask = np.ones(len(gallery), np.bool_) if gallery_mask is None else gallery_mask
        self._masked = torch.from_numpy(~mask).to(config.device)
        self._augmented = None
        if settings.rerank == "dba":
            n_more = int(self._itself.counts().max(initial=0))
            self._augmented = augment_gallery(gallery, settings, config, gallery_mask, n_more)
            self._users = _users(self._augmented.positions[:, : settings.neighbours])
        super().__init__(queries, gallery if self._augmented is None else self._augmented.vectors, config)
        self._vectors: Tensor | None = None
        self._reset()

    def prepare(self, queries: slice) -> None:
        """Find the neighbours of these queries, and what follows for their scores."""
        self._reset()
        settings, vectors = self._settings, self.query_vectors(queries)
        if self._augmented is not None:
            self._set_scores(*self._scores_without_itself(self._augmented, queries, vectors))
            return
        k = min(settings.candidates or settings.neighbours, len(self._originals))
        cosines, positions = search_block(self, queries, k, self._itself, self._masked, self._config)
        if settings.candidates:
            pairs = self._pair_scores
            of_block = None if pairs is None else lambda row, items: pairs(queries.start + row, items)
            ranks = candidate_ranks(vectors, self._originals, cosines, positions, settings, of_block)
            rows, columns = np.nonzero(positions >= 0)
            values = 2 - (ranks[rows, columns] + 1) / (2 * k + 2)
            self._set_scores(rows, positions[rows, columns], torch.from_numpy(values))
        else:
            self._vectors = expand(vectors, self._originals, cosines, positions, settings, self._config.device)

    def query_vectors(self, queries: slice) -> Tensor:
        """Return the vectors of the prepared queries, or before that of any queries."""
        return super().query_vectors(queries) if self._vectors is None else self._vectors

    def scores(self, queries: slice, starts: range | None = None) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of the gallery and their scores with the prepared queries."""
        rows, columns, values = self._pairs
        for gallery, scores in super().scores(queries, starts):
            inside = slice(*np.searchsorted(columns, [gallery.start, gallery.stop]))
            if inside.stop > inside.start:
                scores[rows[inside], torch.from_numpy(columns[inside] - gallery.start)] = values[inside]
            yield gallery, scores

    def _reset(self) -> None:
        self._vectors = None
        self._set_scores(np.empty(0, np.int64), np.empty(0, np.int64), torch.empty(0))

    def _set_scores(self, rows: Integers, columns: Integers, values: Tensor) -> None:
        """Keep the scores of some pairs, in the order of the gallery."""
        order = np.argsort(columns, kind="stable")
        values = values.to(self._masked.device, self.dtype)[torch.from_numpy(order)]
        self._pairs = torch.from_numpy(rows[order]), columns[order], values

    def _scores_without_itself(
        self, augmented: AugmentedGallery, queries: slice, vectors: Tensor
    ) -> tuple[Integers, Integers, Tensor]:
        """Return rows, gallery items, and scores of those items that a query itself has been summed with."""
        rows, own = self._itself.block(queries)
        n_gallery, users = len(self._originals), self._users.take(own)
        pairs = RaggedIndices.from_pairs(rows[users.rows()], users.columns, len(vectors))
        rows_of, items = pairs.rows(), pairs.columns
        near = augmented.positions[items]
        gone = (near < 0) | np.isin(rows_of[:, None] * n_gallery + near, rows * n_gallery + own)
        first = np.argsort(gone, axis=1, kind="stable")[:, : self._settings.neighbours]
        near = np.take_along_axis(np.where(gone, -1, near), first, 1)
        cosines = np.take_along_axis(augmented.cosines[items], first, 1)
        others, device = self._originals[torch.from_numpy(items)], self._config.device
        sums = expand(others, self._originals, cosines, near, self._settings, device)
        return rows_of, items, (sums * vectors[torch.from_numpy(rows_of)]).sum(1)


def _users(positions: Integers) -> RaggedIndices:
    """Return the items that have each item among their neighbours, int64, shape (n, k)."""
    items, places = np.nonzero(positions >= 0)
    return RaggedIndices.from_pairs(positions[items, places], items, len(positions))


def reranked_search(
    search: Callable[[Tensor, int], tuple[AnyFloats, Integers]],
    queries: Tensor,
    gallery: Tensor,
    k: int,
    settings: RerankSettings,
    pairs: PairScores | None = None,
) -> tuple[AnyFloats, Integers]:
    """Return the cosines and positions of the first k items, as :func:`~hgld.compute.nearest_neighbours` does.

    Cosines of candidates are those with the query, and no longer in order. For ``dba``, ``search`` has to search an
    augmented gallery.

    Args:
        search: Finds the cosines and positions of a number of nearest items of vectors, float, shape (n, d).
        queries: float, shape (n, d).
        gallery: float, shape (n_gallery, d).
    """
    if settings.rerank in ("aqe", "alpha-qe"):
        near = search(queries, settings.neighbours)
        return search(expand(queries, gallery, *near, settings, "cpu"), k)
    if settings.candidates is None:
        return search(queries, k)
    n = min(settings.candidates, len(gallery))
    cosines, positions = search(queries, max(n, k))
    vectors = unit(queries, torch.float32)
    ranks = candidate_ranks(vectors, gallery, cosines[:, :n], positions[:, :n], settings, pairs)
    order = np.argsort(np.hstack([ranks, np.full((len(ranks), max(k - n, 0)), n)]), axis=1, kind="stable")[:, :k]
    return np.take_along_axis(cosines, order, 1), np.take_along_axis(positions, order, 1)


def first_items(
    queries: Tensor,
    gallery: Tensor,
    k: int,
    config: ScoringConfig,
    settings: RerankSettings,
    *,
    excluded: RaggedIndices | None = None,
    itself: RaggedIndices | None = None,
    gallery_mask: Booleans | None = None,
    pairs: PairScores | None = None,
) -> tuple[AnyFloats, Integers]:
    """Return the cosines and positions of the first k items of whole rankings, see :func:`reranked_search`."""
    scorer = None
    if settings.rerank is not None:
        scorer = RerankedScorer(queries, gallery, config, settings, itself, gallery_mask, pairs)
    scores, positions = nearest_neighbours(
        queries, gallery, k, excluded=excluded, gallery_mask=gallery_mask, config=config, scorer=scorer
    )
    if settings.candidates:
        for row, found in enumerate(positions):
            near = unit(gallery[torch.from_numpy(found[found >= 0])], torch.float64)
            scores[row, : len(near)] = near @ unit(queries[row], torch.float64)
    return scores, positions

"""Re-ranking by embeddings, after which every item has a rank, so that all metrics are defined.

Embeddings are added to the embeddings of their neighbours, and ranked again: the queries by average
query expansion (``aqe``; Chum et al., ICCV 2007) and alpha query expansion (``alpha-qe``; Radenović
et al., TPAMI 2018), the gallery by database augmentation (``dba``; Arandjelović and Zisserman, CVPR
2012).

If a query is in the gallery itself, it is not its own neighbour, and ``dba`` does not add it to the
images that are ranked for it: the ranking is the ranking of a gallery without the query. Junk of a
ground truth, which metrics exclude, is part of the gallery, since methods cannot know it.

Scores are computed a block of queries at a time. Query expansion computes them twice; ``dba``
compares all pairs of the gallery, and keeps a copy of the gallery.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hgld.arrays import AnyFloats, Booleans, Integers
from hgld.compute.nearest_neighbours import nearest_neighbours, search_block
from hgld.compute.scoring import Scorer, ScoringConfig
from hgld.evaluation.settings import RerankSettings
from hgld.ragged import RaggedIndices

#: Number of embeddings that are added to their neighbours at once.
_ROWS = 256


def unit(vectors: Tensor, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
    """Return vectors of length 1; vectors of zeros stay as they are."""
    return torch.nn.functional.normalize(vectors.to(device, dtype), dim=-1)


def expand(
    vectors: Tensor,
    gallery: Tensor,
    cosines: AnyFloats,
    positions: Integers,
    settings: RerankSettings,
    device: str,
) -> Tensor:
    """Return vectors plus their weighted neighbours, normalised to length 1.

    The weights are 1 for ``aqe`` and cos^alpha for the other methods.

    Args:
        vectors: float, shape (n, d).
        gallery: float, shape (n_gallery, d).
        cosines: float, shape (n, k); negative cosines count as 0.
        positions: int64, shape (n, k), of the neighbours in the gallery; -1 for no neighbour.
        settings: Method and exponent alpha.
        device: Device of the sums.
    """
    alpha = 0 if settings.rerank == "aqe" else settings.rerank_alpha
    neighbour_weights = np.where(positions < 0, 0, cosines.clip(min=0) ** alpha)
    weights = torch.from_numpy(neighbour_weights).to(device)
    neighbours = torch.from_numpy(positions.clip(min=0))
    expanded = torch.empty(vectors.shape, dtype=weights.dtype, device=device)
    for start in range(0, len(vectors), _ROWS):
        rows = slice(start, start + _ROWS)
        originals = unit(vectors[rows], weights.dtype, device)
        near = unit(gallery[neighbours[rows]], weights.dtype, device)
        sums = torch.einsum("nk,nkd->nd", weights[rows], near)
        expanded[rows] = unit(originals + sums, weights.dtype, device)
    return expanded


@dataclass(frozen=True, eq=False)
class AugmentedGallery:
    """A gallery after database augmentation.

    Args:
        vectors: Unit vectors, float, shape (n_gallery, d), in the dtype of the gallery.
        cosines: Cosines of each item and its neighbours, float, shape (n_gallery, k + m). The first k
            neighbours are in the item's sum.
        positions: Neighbours of each item, int64, shape (n_gallery, k + m); -1 for no neighbour.
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
    """Add the k nearest neighbours to each item, and find m = ``n_more`` further neighbours."""
    k = settings.rerank_neighbours
    itself = RaggedIndices.identity(len(gallery))
    cosines, positions = nearest_neighbours(
        gallery, gallery, k + n_more, excluded=itself, gallery_mask=gallery_mask, config=config
    )
    vectors = expand(gallery, gallery, cosines[:, :k], positions[:, :k], settings, "cpu")
    return AugmentedGallery(vectors.to(gallery.dtype), cosines, positions)


def reranked_scorer(
    queries: Tensor,
    gallery: Tensor,
    config: ScoringConfig,
    settings: RerankSettings,
    itself: RaggedIndices | None = None,
    gallery_mask: Booleans | None = None,
) -> Scorer:
    """Return a scorer of queries with a gallery, after re-ranking if ``settings`` name a method.

    Scores are cosines of the expanded queries, or cosines with the augmented gallery.

    Args:
        queries: float, shape (n_query, d).
        gallery: float, shape (n_gallery, d).
        config: Settings of scores.
        settings: Method of re-ranking.
        itself: Gallery items that are the query itself, or copies of it, for each query.
        gallery_mask: bool, shape (n_gallery,); False for items that do not belong to the gallery.

    Raises:
        InputError: See :class:`~hgld.compute.scoring.Scorer`.
    """
    if settings.rerank is None:
        return Scorer(queries, gallery, config)
    if itself is None:
        itself = RaggedIndices.empty(len(queries))
    if settings.rerank == "dba":
        n_copies = int(itself.counts().max(initial=0))
        augmented = augment_gallery(gallery, settings, config, gallery_mask, n_copies)
        return _AugmentedGalleryScorer(queries, gallery, augmented, config, settings, itself)
    if gallery_mask is None:
        gallery_mask = np.ones(len(gallery), np.bool_)
    return _QueryExpansionScorer(queries, gallery, config, settings, itself, gallery_mask)


class _QueryExpansionScorer(Scorer):
    """Scores of expanded queries; arguments are the arguments of :func:`reranked_scorer`."""

    def __init__(
        self,
        queries: Tensor,
        gallery: Tensor,
        config: ScoringConfig,
        settings: RerankSettings,
        itself: RaggedIndices,
        gallery_mask: Booleans,
    ) -> None:
        super().__init__(queries, gallery, config)
        self._originals = gallery
        self._config = config
        self._settings = settings
        self._itself = itself
        self._masked = torch.from_numpy(~gallery_mask).to(config.device)
        self._expanded: Tensor | None = None

    def prepare(self, queries: slice) -> None:
        """Expand these queries by their neighbours."""
        self._expanded = None
        vectors = self.query_vectors(queries)
        k = min(self._settings.rerank_neighbours, len(self._originals))
        cosines, positions = search_block(
            self, queries, k, self._itself, self._masked, self._config
        )
        self._expanded = expand(
            vectors, self._originals, cosines, positions, self._settings, self._config.device
        )

    def query_vectors(self, queries: slice) -> Tensor:
        """Return the vectors of the prepared queries; before ``prepare``, of any queries."""
        if self._expanded is not None:
            return self._expanded
        return super().query_vectors(queries)


class _AugmentedGalleryScorer(Scorer):
    """Scores with an augmented gallery, from whose items the query itself is removed.

    Args:
        queries: float, shape (n_query, d).
        gallery: The original gallery.
        augmented: The augmented gallery, with as many further neighbours as a query has copies.
        config: Settings of scores.
        settings: Method of re-ranking.
        itself: Gallery items that are the query itself, or copies of it, for each query.
    """

    def __init__(
        self,
        queries: Tensor,
        gallery: Tensor,
        augmented: AugmentedGallery,
        config: ScoringConfig,
        settings: RerankSettings,
        itself: RaggedIndices,
    ) -> None:
        super().__init__(queries, augmented.vectors, config)
        self._originals = gallery
        self._augmented = augmented
        self._itself = itself
        self._n_neighbours = settings.rerank_neighbours
        self._settings = settings
        self._summed_with = _items_summed_with(augmented.positions[:, : self._n_neighbours])
        # Pairs of the prepared queries whose scores are corrected, ordered by gallery item.
        self._rows = np.empty(0, np.int64)
        self._items = np.empty(0, np.int64)
        self._values = torch.empty(0, dtype=self.dtype, device=config.device)

    def prepare(self, queries: slice) -> None:
        """Score the items whose sums hold a query itself with its next neighbours instead."""
        vectors = self.query_vectors(queries)
        n_gallery = len(self._originals)
        query_rows, query_items = self._itself.block(queries)
        summed = self._summed_with.take(query_items)
        pairs = RaggedIndices.from_pairs(query_rows[summed.rows()], summed.columns, len(vectors))
        by_item = np.argsort(pairs.columns, kind="stable")
        self._rows = pairs.rows()[by_item]
        self._items = pairs.columns[by_item]

        neighbours = self._augmented.positions[self._items]
        neighbour_pairs = self._rows[:, None] * n_gallery + neighbours
        is_query = np.isin(neighbour_pairs, query_rows * n_gallery + query_items)
        is_removed = (neighbours < 0) | is_query
        neighbours = np.where(is_removed, -1, neighbours)
        first = np.argsort(is_removed, axis=1, kind="stable")[:, : self._n_neighbours]
        positions = np.take_along_axis(neighbours, first, 1)
        cosines = np.take_along_axis(self._augmented.cosines[self._items], first, 1)
        items = self._originals[torch.from_numpy(self._items)]
        device = str(vectors.device)
        sums = expand(items, self._originals, cosines, positions, self._settings, device)
        query_vectors = vectors[torch.from_numpy(self._rows)]
        self._values = (sums * query_vectors).sum(1).to(self.dtype)

    def scores(self, queries: slice, starts: range | None = None) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of the gallery and their scores with the prepared queries."""
        for gallery, scores in super().scores(queries, starts):
            start, stop = np.searchsorted(self._items, [gallery.start, gallery.stop])
            rows = torch.from_numpy(self._rows[start:stop])
            items = torch.from_numpy(self._items[start:stop])
            scores[rows, items - gallery.start] = self._values[start:stop]
            yield gallery, scores


def _items_summed_with(positions: Integers) -> RaggedIndices:
    """Return, for each item, the items among whose neighbours, int64, shape (n, k), it is."""
    items, places = np.nonzero(positions >= 0)
    return RaggedIndices.from_pairs(positions[items, places], items, len(positions))


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
) -> tuple[AnyFloats, Integers]:
    """Return the cosines and positions of the first k items, after re-ranking.

    Arguments and results are the same as in :func:`~hgld.compute.nearest_neighbours`, with the
    method of re-ranking and the gallery items that are the query itself.
    """
    scorer = reranked_scorer(queries, gallery, config, settings, itself, gallery_mask)
    return nearest_neighbours(
        queries,
        gallery,
        k,
        excluded=excluded,
        gallery_mask=gallery_mask,
        config=config,
        scorer=scorer,
    )

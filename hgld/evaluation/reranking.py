"""Re-ranking by embeddings, after which every item has a rank, so that all metrics are defined.

Embeddings are summed with those of their neighbours, and ranked as before: the queries by average query expansion
(``aqe``; Chum et al., ICCV 2007) and alpha query expansion (``alpha-qe``; Radenović et al., TPAMI 2018), the gallery
by database augmentation (``dba``; Arandjelović and Zisserman, CVPR 2012).

A query that is in the gallery itself is no neighbour of its own, and no part of what ``dba`` makes of the images that
are ranked for it: its ranking is that of a gallery without it. Junk of a ground truth, which metrics leave out, is
part of the gallery, as methods cannot know it.

Scores are computed a block of queries at a time, by query expansion once more than without re-ranking; ``dba``
compares all pairs of the gallery, and keeps a copy of it.
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

#: Embeddings that are summed with their neighbours at once.
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
        sums = torch.einsum(
            "nk,nkd->nd", weights[rows], unit(gallery[near[rows]], weights.dtype, device)
        )
        expanded[rows] = unit(
            unit(vectors[rows], weights.dtype, device) + sums, weights.dtype, device
        )
    return expanded


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
    k, itself = settings.rerank_neighbours, RaggedIndices.identity(len(gallery))
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

    Scores are cosines of the expanded queries, or with the augmented gallery.

    Args:
        queries: float, shape (n_query, d).
        gallery: float, shape (n_gallery, d).
        itself: Gallery items that are the query itself, or copies of it, for each query.
        gallery_mask: bool, shape (n_gallery,); False for items that do not belong to the gallery.

    Raises:
        InputError: See :class:`~hgld.compute.scoring.Scorer`.
    """
    if settings.rerank is None:
        return Scorer(queries, gallery, config)
    itself = RaggedIndices.empty(len(queries)) if itself is None else itself
    if settings.rerank == "dba":
        n_copies = int(itself.counts().max(initial=0))
        augmented = augment_gallery(gallery, settings, config, gallery_mask, n_copies)
        return _AugmentedGalleryScorer(queries, gallery, augmented, config, settings, itself)
    mask = np.ones(len(gallery), np.bool_) if gallery_mask is None else gallery_mask
    return _QueryExpansionScorer(queries, gallery, config, settings, itself, mask)


class _QueryExpansionScorer(Scorer):
    """Scores of expanded queries; arguments are those of :func:`reranked_scorer`."""

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
        self._settings, self._config, self._originals, self._itself = (
            settings,
            config,
            gallery,
            itself,
        )
        self._masked = torch.from_numpy(~gallery_mask).to(config.device)
        self._expanded: Tensor | None = None

    def prepare(self, queries: slice) -> None:
        """Expand these queries by their neighbours."""
        self._expanded = None
        vectors, k = (
            self.query_vectors(queries),
            min(self._settings.rerank_neighbours, len(self._originals)),
        )
        cosines, positions = search_block(
            self, queries, k, self._itself, self._masked, self._config
        )
        self._expanded = expand(
            vectors, self._originals, cosines, positions, self._settings, self._config.device
        )

    def query_vectors(self, queries: slice) -> Tensor:
        """Return the vectors of the prepared queries, or before that of any queries."""
        return super().query_vectors(queries) if self._expanded is None else self._expanded


class _AugmentedGalleryScorer(Scorer):
    """Scores with an augmented gallery, of which no item has been summed with the query itself.

    Args:
        gallery: The original gallery.
        augmented: The augmented gallery, with as many further neighbours as a query has copies.
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
        self._settings, self._originals, self._augmented, self._itself = (
            settings,
            gallery,
            augmented,
            itself,
        )
        self._summed_with = _items_summed_with(augmented.positions[:, : settings.rerank_neighbours])
        self._rows, self._items = np.empty(0, np.int64), np.empty(0, np.int64)
        self._values = torch.empty(0, dtype=self.dtype, device=config.device)

    def prepare(self, queries: slice) -> None:
        """Score the items that a query itself has been summed with, each summed with its other neighbours."""
        vectors = self.query_vectors(queries)
        rows, own = self._itself.block(queries)
        summed = self._summed_with.take(own)
        pairs = RaggedIndices.from_pairs(rows[summed.rows()], summed.columns, len(vectors))
        order = np.argsort(pairs.columns, kind="stable")  # that of the gallery
        self._rows, self._items = pairs.rows()[order], pairs.columns[order]
        near, n_gallery = self._augmented.positions[self._items], len(self._originals)
        gone = (near < 0) | np.isin(self._rows[:, None] * n_gallery + near, rows * n_gallery + own)
        first = np.argsort(gone, axis=1, kind="stable")[:, : self._settings.rerank_neighbours]
        near = np.take_along_axis(np.where(gone, -1, near), first, 1)
        cosines = np.take_along_axis(self._augmented.cosines[self._items], first, 1)
        items, device = self._originals[torch.from_numpy(self._items)], str(vectors.device)
        sums = expand(items, self._originals, cosines, near, self._settings, device)
        self._values = (sums * vectors[torch.from_numpy(self._rows)]).sum(1).to(self.dtype)

    def scores(self, queries: slice, starts: range | None = None) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of the gallery and their scores with the prepared queries."""
        for gallery, scores in super().scores(queries, starts):
            start, stop = np.searchsorted(self._items, [gallery.start, gallery.stop])
            rows, items = (
                torch.from_numpy(self._rows[start:stop]),
                torch.from_numpy(self._items[start:stop]),
            )
            scores[rows, items - gallery.start] = self._values[start:stop]
            yield gallery, scores


def _items_summed_with(positions: Integers) -> RaggedIndices:
    """Return the items that have each item among their neighbours, int64, shape (n, k)."""
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
    """Return the cosines and positions of the first k items, as :func:`~hgld.compute.nearest_neighbours` does."""
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

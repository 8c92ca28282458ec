"""Relevance judgements of images with several labels each (thesis, section 4.2.2).

:class:`MultiLabelJudgements` adds up what each label of the query finds in an image, as Algorithm 1 does; metrics
that weigh items by relevance use it. :class:`BestLevelJudgements` takes the finest level that any of the labels
share, as the losses do; metrics of semantic levels use it, such as R@1 or the AP of a level.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy

import numpy as np
import numpy.typing as npt
import torch

from hgld.errors import InputError
from hgld.evaluation.relevance_judgements import MAX_LEVELS, check_level_count
from hgld.hierarchy.label_sets import LabelSets


class LabelSetJudgements(ABC):
    """Levels that combine, over the labels of a query, the finest level that each shares with any label of an image.

    Takes 1 byte per pair of a block and per pair of a query and a distinct label of the gallery.

    Args:
        queries: Labels of the queries, at least one for each.
        gallery: Labels of the gallery items; level 0 for items without any.

    Raises:
        InputError: There are no queries or no gallery, a query has no label, or the numbers of levels differ.
    """

    def __init__(self, queries: LabelSets, gallery: LabelSets) -> None:
        if not len(queries) or not len(gallery):
            raise InputError(f"there are {len(queries)} queries and {len(gallery)} gallery items")
        if queries.n_levels != gallery.n_levels or not queries.n_levels:
            raise InputError(
                f"queries have labels of {queries.n_levels} levels and the gallery of {gallery.n_levels}; expected "
                "as many, at least one"
            )
        if not queries.counts().all():
            raise InputError(f"query {int(queries.counts().argmin())} has no label; exclude it")
        self._depth, self._n_labels = queries.n_levels, queries.counts()
        codes = [
            np.unique(np.concatenate(columns), return_inverse=True)[1]
            for columns in zip(queries.labels.T, gallery.labels.T, strict=True)
        ]
        table = torch.from_numpy(np.stack(codes).astype(np.int32))  # (L, labels of queries, then of the gallery)
        self._query_table, self._gallery_table = table[:, : len(queries.labels)], table[:, len(queries.labels) :]
        self._queries = torch.from_numpy(_padded(queries))
        self._gallery = torch.from_numpy(_padded(gallery))

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return self._queries.shape[1]

    @property
    def n_gallery(self) -> int:
        """Number of gallery items."""
        return self._gallery.shape[1]

    @property
    @abstractmethod
    def n_levels(self) -> int:
        """Largest level L."""

    @abstractmethod
    def relevance(self) -> npt.NDArray[np.float64] | None:
        """See :class:`~hgld.evaluation.relevance_judgements.RelevanceJudgements`."""

    @abstractmethod
    def _add(self, levels: torch.Tensor, shared: torch.Tensor) -> None:
        """Combine the levels so far with those that a further label shares, in place; both uint8, (n, n_gallery)."""

    def to(self, device: torch.device) -> LabelSetJudgements:
        """See :class:`~hgld.evaluation.relevance_judgements.RelevanceJudgements`."""
        moved = copy(self)
        for name in ("_query_table", "_gallery_table", "_queries", "_gallery"):
            setattr(moved, name, getattr(self, name).to(device))
        return moved

    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
        """See :class:`~hgld.evaluation.relevance_judgements.RelevanceJudgements`."""
        own, others = self._queries[:, queries], self._gallery[:, gallery]
        levels = torch.zeros(own.shape[1], others.shape[1], dtype=torch.uint8, device=own.device)
        for labels in own:
            rows = (labels >= 0).nonzero().view(-1)
            shared = self._shared_with_any(self._shared_levels(labels[rows]), others)
            combined = levels[rows]
            self._add(combined, shared)
            levels[rows] = combined
        return levels

    def _shared_levels(self, labels: torch.Tensor) -> torch.Tensor:
        """Return the finest level that labels of queries share with each label of the gallery: uint8, (n, labels)."""
        levels = torch.zeros(len(labels), self._gallery_table.shape[1], dtype=torch.uint8, device=labels.device)
        for column in reversed(range(self._depth)):  # finer levels overwrite coarser ones
            equal = self._query_table[column, labels].unsqueeze(1) == self._gallery_table[column]
            levels[equal] = self._depth - column
        return levels

    @staticmethod
    def _shared_with_any(levels: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        """Return the largest level over the labels of each image: uint8, (n, n_gallery).

        Args:
            levels: Levels of each label of the gallery, uint8, shape (n, labels).
            images: Labels of each image, int64, shape (K, n_gallery), -1 as padding.
        """
        best = torch.zeros(len(levels), images.shape[1], dtype=torch.uint8, device=levels.device)
        for labels in images:
            columns = (labels >= 0).nonzero().view(-1)
            best[:, columns] = torch.maximum(best[:, columns], levels[:, labels[columns]])
        return best


class MultiLabelJudgements(LabelSetJudgements):
    """Algorithm 1 of the thesis: the mean, over the labels of a query, of the level that each shares with an image.

    A query with the labels y^1, ..., y^n has with an image the relevance sum_i l*_i / (n L), where l*_i is the
    finest level that y^i shares with any label of the image. The level here is the sum of the l*_i, an integer
    from 0 to n L, and :meth:`relevance` divides it.

    Args:
        queries: Labels of the queries, at least one for each.
        gallery: Labels of the gallery items.

    Raises:
        InputError: See :class:`LabelSetJudgements`; or n L is above 254 for a query.

    >>> sun, star, fish = [0, 0, 0], [1, 1, 0], [2, 2, 1]  # sun and star are of one category
    >>> queries, gallery = LabelSets.from_lists([[sun, fish]]), LabelSets.from_lists([[star], [sun, fish]])
    >>> judgements = MultiLabelJudgements(queries, gallery)
    >>> judgements.levels(slice(0, 1), slice(0, 2)), judgements.relevance().round(2)[0, [1, 6]]
    (tensor([[1, 6]], dtype=torch.uint8), array([0.17, 1.  ]))
    """

    def __init__(self, queries: LabelSets, gallery: LabelSets) -> None:
        super().__init__(queries, gallery)
        if self.n_levels > MAX_LEVELS:
            raise InputError(
                f"query {self._n_labels.argmax()} has {self._n_labels.max()} labels of {self._depth} levels; "
                f"expected n times L of at most {MAX_LEVELS}"
            )

    @property
    def n_levels(self) -> int:
        """Largest n L of any query."""
        return int(self._n_labels.max()) * self._depth

    def relevance(self) -> npt.NDArray[np.float64]:
        """Return the relevance of each level for each query: float64, shape (n_query, n_levels + 1)."""
        shares: npt.NDArray[np.float64] = np.arange(self.n_levels + 1) / (self._n_labels[:, None] * self._depth)
        return shares.clip(max=1.0)  # levels above a query's own n L do not occur

    def _add(self, levels: torch.Tensor, shared: torch.Tensor) -> None:
        levels += shared


class BestLevelJudgements(LabelSetJudgements):
    """The finest level that any label of a query shares with any label of an image, 0 to L.

    Args:
        queries: Labels of the queries, at least one for each.
        gallery: Labels of the gallery items.

    Raises:
        InputError: See :class:`LabelSetJudgements`; or there are more than 254 levels.

    >>> sun, star, fish = [0, 0, 0], [1, 1, 0], [2, 2, 1]
    >>> queries, gallery = LabelSets.from_lists([[sun, fish]]), LabelSets.from_lists([[star], [star, fish]])
    >>> BestLevelJudgements(queries, gallery).levels(slice(0, 1), slice(0, 2))
    tensor([[1, 3]], dtype=torch.uint8)
    """

    def __init__(self, queries: LabelSets, gallery: LabelSets) -> None:
        super().__init__(queries, gallery)
        check_level_count(self._depth)

    @property
    def n_levels(self) -> int:
        """Number of levels L."""
        return self._depth

    def relevance(self) -> None:
        """Return None: these levels have no relevances of their own."""

    def _add(self, levels: torch.Tensor, shared: torch.Tensor) -> None:
        torch.maximum(levels, shared, out=levels)


def _padded(sets: LabelSets) -> npt.NDArray[np.int64]:
    """Return the labels of each image by their rows in ``sets.labels``: int64, shape (K, N), -1 as padding."""
    members = sets.members
    array = np.full((int(members.counts().max(initial=1)), len(members)), -1)
    rows = members.rows()
    array[np.arange(len(rows)) - members.offsets[rows], rows] = members.columns
    return array

"""Levels of gallery items for each query, their relevance (paper, Eq. 20 and Property 1), and the gain of NDCG.

Every metric of this package counts items by level and never compares relevances: two levels can have the same
relevance. For nested labels the level is that of the lowest common ancestor (1: coarsest, L: finest, 0: nothing
shared). Lists of positives have one level, images with several labels as many as Algorithm 1 of the thesis
distinguishes.

A relevance is a function of the number of items at each level. It maps counts, float64, shape (n_query, L + 1) with
level 0 first, to relevances of the same shape, 0 at level 0. None of them looks at single items, so all are cheap.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.compiled import compiled, is_compiled
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.settings import SeveralLabels
from hgld.hierarchy.label_matrix import LabelMatrix, LabelSets, nested_codes
from hgld.ragged import RaggedIndices

if TYPE_CHECKING:
    from hgld.evaluation.evaluate import EvaluationConfig

#: Function from the number of items at each level to the relevance of each level, both float64, (n_query, L + 1).
Relevance = Callable[[torch.Tensor], torch.Tensor]


def hierarchical_relevance(counts: torch.Tensor, alpha: float = 1.0, *, count_query: bool = False) -> torch.Tensor:
    """Relevance (l/L)^alpha / |Omega^(l)| of an item of level l (paper, Eq. 20).

    Args:
        counts: float64, shape (n_query, L + 1); |Omega^(l)|, the number of items of exactly level l.
        alpha: Exponent, 0 or more: 1 in H-AP; larger values favour fine levels.
        count_query: Whether to count the query itself in |Omega^(L)|, as the authors' published code does when
            queries are excluded from their own gallery. It lowers the weight of the finest level.

    Returns:
        float64, shape (n_query, L + 1); 0 for levels without items.

    Raises:
        ConfigurationError: ``alpha`` is negative.

    >>> hierarchical_relevance(torch.tensor([[5.0, 2.0, 1.0]]))
    tensor([[0.0000, 0.2500, 1.0000]], dtype=torch.float64)
    """
    if not alpha >= 0:
        raise ConfigurationError(f"alpha is {alpha}; expected 0 or more")
    n_levels = counts.shape[1] - 1
    levels = torch.arange(n_levels + 1, dtype=torch.float64, device=counts.device)
    weights = (levels / n_levels) ** alpha
    weights[0] = 0.0  # with alpha = 0 as well
    sizes = counts.to(torch.float64).clone()
    sizes[:, n_levels] += count_query
    return torch.where(counts > 0, weights / sizes.clamp(min=1), 0.0)


def weighted_ap_relevance(counts: torch.Tensor, weights: Sequence[float]) -> torch.Tensor:
    """Relevance for which H-AP is the weighted sum of the APs of all levels (paper, Property 1).

    The relevance of an item of level l is the sum over p <= l of w_p / |Omega^(+,p)|, where Omega^(+,p) are the items
    of level p or finer. The AP of a level without positives is undefined: it drops out of the sum, and the other
    weights are scaled to add up to 1, which :func:`hgld.evaluation.metrics.h_ap` does by itself.

    Args:
        counts: float64, shape (n_query, L + 1), as in :func:`hierarchical_relevance`.
        weights: w_1, ..., w_L, coarsest first, positive.

    Raises:
        ConfigurationError: The number of weights is not L, or one is not positive.

    >>> weighted_ap_relevance(torch.tensor([[5.0, 3.0, 1.0]]), [0.5, 0.5])
    tensor([[0.0000, 0.1250, 0.6250]], dtype=torch.float64)
    """
    n_levels = counts.shape[1] - 1
    check_level_weights(weights, n_levels)
    sizes = counts[:, 1:].to(torch.float64).flip(1).cumsum(1).flip(1)  # of level p or finer
    shares = torch.tensor(list(weights), dtype=torch.float64, device=counts.device) / sizes.clamp(min=1)
    shares = torch.where(sizes > 0, shares, 0.0)
    return torch.nn.functional.pad(shares.cumsum(1), (1, 0))


def check_level_weights(weights: Sequence[float], n_levels: int) -> None:
    """Check the weights of levels in a weighted sum of APs.

    Raises:
        ConfigurationError: Their number is not the number of levels, or one is not positive and finite.
    """
    if len(weights) != n_levels or not all(0 < weight < math.inf for weight in weights):
        raise ConfigurationError(
            f"`level_weights` are {', '.join(f'{weight:g}' for weight in weights) or 'empty'}; expected {n_levels} "
            "positive ones, coarsest first"
        )


def exponential_gain(counts: torch.Tensor) -> torch.Tensor:
    """Gain 2^l - 1 of an item of level l, whatever the counts, for NDCG (paper, section V-B).

    >>> exponential_gain(torch.tensor([[5.0, 3.0, 1.0]]))
    tensor([[0., 1., 3.]], dtype=torch.float64)
    """
    levels = torch.arange(counts.shape[1], dtype=torch.float64, device=counts.device)
    return (2**levels - 1).expand(len(counts), -1)


def by_level(table: npt.ArrayLike) -> Relevance:
    """Return a relevance with given values per level.

    Args:
        table: float, shape (L + 1,), the same for every query, or (n_query, L + 1); level 0 first, which is 0; none
            negative.

    Raises:
        ConfigurationError: The values are negative, infinite, or not 0 at level 0; or, when the relevance is called,
            their shape does not fit the counts.

    >>> by_level([0, 1, 2, 4])(torch.tensor([[5.0, 3.0, 1.0, 1.0]]))
    tensor([[0., 1., 2., 4.]], dtype=torch.float64)
    """
    values = torch.from_numpy(np.atleast_2d(np.asarray(table, np.float64)))
    _check_values(values)

    def relevance(counts: torch.Tensor) -> torch.Tensor:
        if values.shape[1] != counts.shape[1] or len(values) not in (1, len(counts)):
            raise ConfigurationError(
                f"the relevances have the shape {tuple(values.shape)}; expected {counts.shape[1]} levels (level 0 "
                f"first) for one or all of {len(counts)} queries"
            )
        return values.to(counts.device).expand(len(counts), -1)

    return relevance


def checked_relevance(relevance: Relevance) -> Relevance:
    """Return a relevance of one's own that checks its values each time.

    Raises:
        ConfigurationError: (when called) The values have another shape than the counts, are negative, NaN or
            infinite, or not 0 at level 0.
    """
    return partial(_checked_values, relevance)


def _checked_values(relevance: Relevance, counts: torch.Tensor) -> torch.Tensor:
    values = relevance(counts)
    if not isinstance(values, torch.Tensor) or values.shape != counts.shape:
        found = f"the shape {tuple(values.shape)}" if isinstance(values, torch.Tensor) else type(values).__name__
        raise ConfigurationError(
            f"the relevances have {found}; expected a tensor of the shape {tuple(counts.shape)}, as the counts of "
            "items have"
        )
    _check_values(values)
    return values


def _check_values(values: torch.Tensor) -> None:
    if values.ndim != 2:
        raise ConfigurationError(f"the relevances have the shape {tuple(values.shape)}; expected one per level")
    invalid = ~(values.isfinite() & (values >= 0))
    invalid[:, 0] |= values[:, 0] != 0
    if invalid.any():
        row, level = invalid.nonzero()[0].tolist()
        raise ConfigurationError(
            f"the relevance of level {level} is {float(values[row, level]):g} in row {row}; expected 0 at level 0, "
            "and finite numbers of 0 or more at all levels, also at those without items"
        )


class LevelWeights:
    """Weights of the levels for all queries of a task.

    Args:
        config: Relevance, its exponent, gain and weights.
        own_relevance: Relevances that come with the levels, where the settings have no others; None if there are
            none.
        shape: (n_query, L + 1).

    Attributes:
        settings: The choices in words, for :attr:`RetrievalResult.settings`.

    Raises:
        ConfigurationError: Values have another shape; those of functions are checked when they are called.
    """

    def __init__(
        self, config: EvaluationConfig, own_relevance: npt.NDArray[np.float64] | None, shape: tuple[int, int]
    ) -> None:
        alpha, level_weights = config.relevance_alpha, config.level_weights
        relevance = own_relevance if config.relevance is None else config.relevance
        gain = own_relevance if config.gain is None else config.gain
        equation_20 = partial(hierarchical_relevance, alpha=alpha)
        self._relevance = (
            (lambda queries: equation_20) if relevance is None else _by_block(relevance, shape, "relevance")
        )
        self._self_counting = partial(equation_20, count_query=True) if relevance is None else None
        self._gain = (lambda queries: exponential_gain) if gain is None else _by_block(gain, shape, "gain")
        self._level_weights = level_weights
        self.settings = {
            "relevance": f"(l/L)^{alpha:g} / |Omega^(l)|" if relevance is None else "own",
            "gain": "2^l - 1" if gain is None else "own",
            "level_weights": "equal" if level_weights is None else ", ".join(f"{w:g}" for w in level_weights),
        }

    def block(self, queries: slice) -> dict[str, Any]:
        """Return the weights of a block of queries by name.

        ``self_counting_relevance`` counts the query in |Omega^(L)|; None where the relevance is not that of Eq. 20.
        """
        return {
            "relevance": self._relevance(queries),
            "self_counting_relevance": self._self_counting,
            "gain": self._gain(queries),
            "level_weights": self._level_weights,
        }


def _by_block(weights: Relevance | npt.ArrayLike, shape: tuple[int, int], name: str) -> Callable[[slice], Relevance]:
    """Return the function from the queries of a block to their function of level counts."""
    if callable(weights):
        relevance = checked_relevance(weights)
        return lambda queries: relevance
    table = np.asarray(weights, np.float64)
    if table.shape not in (shape, shape[1:]):
        raise ConfigurationError(
            f"the {name} has the shape {table.shape}; expected {shape[1:]}, one value per level from level 0 on, or "
            f"{shape}, a row per query"
        )
    return lambda queries: by_level(table if table.ndim == 1 else table[queries])


Self = TypeVar("Self", bound="RelevanceJudgements")
#: Levels are uint8, and one value is reserved for items excluded from a ranking.
MAX_LEVELS = 254


def check_level_count(n_levels: int) -> None:
    """Raise an :class:`~hgld.errors.InputError` if labels have more levels than metrics and losses count exactly."""
    if n_levels > MAX_LEVELS:
        raise InputError(f"the labels have {n_levels} levels; expected at most {MAX_LEVELS}")


class RelevanceJudgements(ABC):
    """Interface of relevance judgements; levels are read block by block.

    Attributes:
        n_queries: Number of queries.
        n_gallery: Number of gallery items.
        n_levels: Largest level L.
        relevance: Relevances that come with the levels, float64, shape (L + 1,) or (n_query, L + 1); None if the
            levels have none of their own.
        device: Device on which levels are computed.
    """

    n_queries: int
    n_gallery: int
    n_levels: int
    relevance: npt.NDArray[np.float64] | None = None
    device: torch.device = torch.device("cpu")

    def to(self: Self, device: torch.device) -> Self:
        """Return judgements whose :meth:`levels` are computed on a device."""
        moved = copy(self)
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, torch.Tensor)}
        vars(moved).update({name: tensor.to(device) for name, tensor in tensors.items()}, device=device)
        return moved

    @abstractmethod
    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
        """Return the levels of a block of pairs: uint8, shape (n_query, n_gallery) of the slices."""


class LabelJudgements(RelevanceJudgements):
    """Levels from label matrices whose levels are nested (paper, section V).

    Args:
        query_labels: int64, shape (n_query, L), finest first.
        gallery_labels: int64, shape (n_gallery, L), finest first.

    Raises:
        InputError: The shapes do not fit, there are more than 254 levels, or the labels are not nested.

    >>> lake, pond, church = [0, 0, 0], [1, 0, 0], [2, 1, 1]
    >>> judgements = LabelJudgements(np.array([lake]), np.array([lake, pond, church]))
    >>> judgements.levels(slice(0, 1), slice(0, 3))
    tensor([[3, 2, 0]], dtype=torch.uint8)
    """

    def __init__(self, query_labels: LabelMatrix, gallery_labels: LabelMatrix) -> None:
        queries, gallery = nested_codes(query_labels, gallery_labels)
        check_level_count(queries.shape[1])
        self._queries = torch.from_numpy(np.ascontiguousarray(queries))
        self._gallery = torch.from_numpy(np.ascontiguousarray(gallery.T))
        (self.n_queries, self.n_levels), self.n_gallery = queries.shape, len(gallery)

    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
        """See :class:`RelevanceJudgements`; as labels are nested, the level is the number of equal columns."""
        query_codes, gallery_codes = self._queries[queries], self._gallery[:, gallery]
        shape = len(query_codes), gallery_codes.shape[1]
        if is_compiled(query_codes.device):
            compiled_levels = np.empty(shape, np.uint8)
            _count_equal(query_codes.numpy(), self._gallery.numpy(), gallery.start or 0, compiled_levels)
            return torch.from_numpy(compiled_levels)
        levels = torch.zeros(shape, dtype=torch.uint8, device=query_codes.device)
        equal = torch.empty(shape, dtype=torch.bool, device=query_codes.device)
        for column in range(self.n_levels):
            torch.eq(query_codes[:, column, None], gallery_codes[column], out=equal)
            levels += equal.view(torch.uint8)  # faster than to add bools
        return levels


class ListJudgements(RelevanceJudgements):
    """A single level: the items listed for a query are its positives.

    Args:
        positives: Positions of the positives in the gallery, for each query.
        n_gallery: Number of gallery items.

    Raises:
        InputError: A position is not in the gallery.
    """

    n_levels = 1

    def __init__(self, positives: RaggedIndices, n_gallery: int) -> None:
        positives.check(len(positives), n_gallery, "the list of positives")
        self._positives, self.n_queries, self.n_gallery = positives, len(positives), n_gallery

    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
        """See :class:`RelevanceJudgements`."""
        start, stop, _ = gallery.indices(self.n_gallery)
        rows, columns = map(torch.from_numpy, self._positives.block(queries))
        inside = (columns >= start) & (columns < stop)
        levels = torch.zeros(len(range(*queries.indices(self.n_queries))), stop - start, dtype=torch.uint8)
        levels[rows[inside], columns[inside] - start] = 1
        return levels.to(self.device)


class WithDistractors(RelevanceJudgements):
    """Judgements of a gallery, and after it distractors, which are of level 0 for every query.

    Args:
        judged: Judgements of the gallery without them.
        n_distractors: Number of distractors.
    """

    def __init__(self, judged: RelevanceJudgements, n_distractors: int) -> None:
        self.judged, self.n_gallery = judged, judged.n_gallery + n_distractors
        self.n_queries, self.n_levels, self.relevance = judged.n_queries, judged.n_levels, judged.relevance

    def to(self, device: torch.device) -> WithDistractors:
        """See :class:`RelevanceJudgements`."""
        return WithDistractors(self.judged.to(device), self.n_gallery - self.judged.n_gallery)

    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
        """See :class:`RelevanceJudgements`."""
        start, stop, _ = gallery.indices(self.n_gallery)
        if start >= self.judged.n_gallery:
            n_rows = len(range(*queries.indices(self.n_queries)))
            return torch.zeros(n_rows, stop - start, dtype=torch.uint8, device=self.judged.device)
        levels = self.judged.levels(queries, slice(start, min(stop, self.judged.n_gallery)))
        return torch.nn.functional.pad(levels, (0, stop - start - levels.shape[1]))


class LabelSetJudgements(RelevanceJudgements):
    """Levels of images with several labels each (thesis, section 4.2.2).

    Let l*_i be the finest level that the label y^i of a query with n labels shares with any label of an image. The
    level of the pair is either

    - ``mean``: the sum of the l*_i, an integer from 0 to n L, which ``relevance`` divides by n L as Algorithm 1 does;
      metrics that weigh items by relevance use it;
    - ``best``: the largest l*_i, 0 to L, as in the losses; metrics of semantic levels use it, such as R@1.

    Takes 1 byte per pair of a block and per pair of a query and a distinct label of the gallery.

    Args:
        queries: Labels of the queries, at least one for each.
        gallery: Labels of the gallery items; level 0 for items without any.
        several_labels: How the levels of the labels are combined.

    Raises:
        InputError: There are no queries or no gallery, a query has no label, the numbers of levels differ, or L, or
            n L for ``mean``, is above 254.

    >>> sun, star, fish = [0, 0, 0], [1, 1, 0], [2, 2, 1]  # sun and star are of one category
    >>> queries, gallery = LabelSets.from_lists([[sun, fish]]), LabelSets.from_lists([[star], [sun, fish]])
    >>> mean, best = (LabelSetJudgements(queries, gallery, how) for how in ("mean", "best"))
    >>> [judgements.levels(slice(0, 1), slice(0, 2)).tolist() for judgements in (mean, best)]
    [[[1, 6]], [[1, 3]]]
    >>> mean.relevance.round(2)[0, [1, 6]]
    array([0.17, 1.  ])
    """

    def __init__(self, queries: LabelSets, gallery: LabelSets, several_labels: SeveralLabels) -> None:
        if not len(queries) or not len(gallery):
            raise InputError(f"there are {len(queries)} queries and {len(gallery)} gallery items")
        if queries.n_levels != gallery.n_levels or not queries.n_levels:
            raise InputError(
                f"queries have labels of {queries.n_levels} levels and the gallery of {gallery.n_levels}; expected "
                "as many, at least one"
            )
        n_labels, depth = queries.counts(), queries.n_levels
        if not n_labels.all():
            raise InputError(f"query {int(n_labels.argmin())} has no label; exclude it")
        self.n_queries, self.n_gallery, self.n_levels = len(queries), len(gallery), depth
        if several_labels == "best":
            check_level_count(depth)
        else:
            self.n_levels = int(n_labels.max()) * depth
            if self.n_levels > MAX_LEVELS:
                raise InputError(
                    f"query {n_labels.argmax()} has {n_labels.max()} labels of {depth} levels; expected n times L of "
                    f"at most {MAX_LEVELS}"
                )
            # Levels above a query's own n L do not occur.
            self.relevance = (np.arange(self.n_levels + 1) / (n_labels[:, None] * depth)).clip(max=1.0)
        self._add = torch.maximum if several_labels == "best" else torch.add
        codes = [
            np.unique(np.concatenate(columns), return_inverse=True)[1]
            for columns in zip(queries.labels.T, gallery.labels.T, strict=True)
        ]
        table = torch.from_numpy(np.stack(codes).astype(np.int32))  # (L, labels of queries, then of the gallery)
        self._query_table, self._gallery_table = table[:, : len(queries.labels)], table[:, len(queries.labels) :]
        self._queries = torch.from_numpy(_padded(queries))
        self._gallery = torch.from_numpy(_padded(gallery))

    def levels(self, queries: slice, gallery: slice) -> torch.Tensor:
        """See :class:`RelevanceJudgements`."""
        own, others = self._queries[:, queries], self._gallery[:, gallery]
        levels = torch.zeros(own.shape[1], others.shape[1], dtype=torch.uint8, device=own.device)
        for labels in own:
            rows = (labels >= 0).nonzero().view(-1)
            shared = _shared_with_any(self._shared_levels(labels[rows]), others)
            levels[rows] = self._add(levels[rows], shared)
        return levels

    def _shared_levels(self, labels: torch.Tensor) -> torch.Tensor:
        """Return the finest level that labels of queries share with each label of the gallery: uint8, (n, labels)."""
        levels = torch.zeros(len(labels), self._gallery_table.shape[1], dtype=torch.uint8, device=labels.device)
        depth = len(self._query_table)
        for column in reversed(range(depth)):  # finer levels overwrite coarser ones
            equal = self._query_table[column, labels].unsqueeze(1) == self._gallery_table[column]
            levels[equal] = depth - column
        return levels


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


def _padded(sets: LabelSets) -> npt.NDArray[np.int64]:
    """Return the labels of each image by their rows in ``sets.labels``: int64, shape (K, N), -1 as padding."""
    members = sets.members
    array = np.full((int(members.counts().max(initial=1)), len(members)), -1)
    rows = members.rows()
    array[np.arange(len(rows)) - members.offsets[rows], rows] = members.columns
    return array


@compiled()
def _count_equal(
    query_codes: npt.NDArray[np.int32],
    gallery_codes: npt.NDArray[np.int32],
    start: int,
    levels: npt.NDArray[np.uint8],
) -> None:
    """Count the equal codes of queries, int32, (n_query, L), and gallery items, (L, n_gallery), from ``start`` on."""
    for query in range(len(query_codes)):
        own = levels[query]
        own[:] = 0
        for column in range(len(gallery_codes)):
            code, others = query_codes[query, column], gallery_codes[column, start : start + len(own)]
            for i in range(len(own)):
                own[i] += others[i] == code

"""Rank a gallery for each query, keeping only the level of each item.

All metrics need only the levels in ranked order, so the level is part of the sort key. A block of
queries is compared with the gallery a few thousand items at a time. Each score becomes the upper
bits of an integer that sorts like the scores, best first, and the level its lowest bits. After one
sort of these keys the levels are read from them. Besides the embeddings this takes 5 bytes per query
of a block and gallery item (9 with 64-bit keys).

Scores are cosines (paper, section III-A), or as :class:`~hgld.compute.scoring.ScoringConfig` says.

On a CPU a compiled loop sorts many keys; on other devices, and where loops are not compiled,
operations of torch and NumPy give the same levels.

Some metrics need only the first ranks: R@1 and mAP@R need a ranking of 20,000 items up to the number
of positives of the query, which may be 10. Then only the smallest keys of each query are selected;
their levels are the same as after a sort of all keys. The positives are counted with the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hgld.arrays import Booleans, Integers
from hgld.compute.compiled import compiled, is_compiled
from hgld.compute.machine import parallel_map, thread_count
from hgld.compute.scoring import Scorer, ScoringConfig, check_embeddings, float32_matmul
from hgld.errors import ConfigurationError, InputError, require_choice
from hgld.evaluation.metrics import NeededRanks
from hgld.evaluation.ranking_statistics import count_levels
from hgld.evaluation.reranking import reranked_scorer
from hgld.evaluation.retrieval_task import RelevanceJudgements, RetrievalTask
from hgld.evaluation.settings import RerankSettings
from hgld.progress import NoProgress, Progress
from hgld.ragged import RaggedIndices

Ties = Literal["pessimistic", "optimistic", "heaviside"]
KeyType = Literal["int32", "int64"]

#: Number of items from which the radix sort is faster than NumPy's sort.
_RADIX_SORT_FROM = 2**14
#: A heap selects at most one of this many items; NumPy's partition selects larger shares.
_LEAST_ITEMS_PER_SELECTED = 64
#: Number of keys whose minimum is compared with the heap, so that few keys are compared one by one.
_KEYS_AT_ONCE = 64


class ExcludedPairs:
    """Excluded pairs of a block of queries, looked up by gallery item.

    Args:
        masked: int64, ascending; gallery items excluded for all queries.
        excluded: Rows of the block, and gallery items excluded for these rows, both int64, in any
            order.
    """

    def __init__(self, masked: Integers, excluded: tuple[Integers, Integers]) -> None:
        rows, columns = excluded
        order = np.argsort(columns, kind="stable")
        self._masked = masked
        self._rows = rows[order]
        self._columns = columns[order]

    def fill(self, gallery: slice, block: Tensor, value: float) -> None:
        """Set excluded pairs of a block, shape (n_query, n_block), to a value."""
        bounds = [gallery.start, gallery.stop]
        start, stop = np.searchsorted(self._masked, bounds)
        if stop > start:
            masked = self._masked[start:stop] - gallery.start
            block[:, torch.from_numpy(masked)] = value
        start, stop = np.searchsorted(self._columns, bounds)
        if stop > start:
            rows = self._rows[start:stop]
            columns = self._columns[start:stop] - gallery.start
            block[torch.from_numpy(rows), torch.from_numpy(columns)] = value


@dataclass(frozen=True)
class KeyFormat:
    """Format of sort keys: the score in fixed point in the upper bits, the level in the lowest bits.

    Args:
        dtype: Integer type of keys.
        bits: Number of bits of a level.
        flip: Bits to flip in levels: 0, so that among equal scores the lower level sorts first, or
            all bits of a level, so that the higher level does.
        scale: Factor of scores; negative, so that the best score has the smallest key.
        last: Key that sorts last, with level 0.
    """

    dtype: torch.dtype
    bits: int
    flip: int
    scale: float
    last: int

    @classmethod
    def for_scores(cls, n_levels: int, largest: float, ties: Ties) -> KeyFormat:
        """Return the format of keys for a number of levels and an upper bound on the scores."""
        bits = n_levels.bit_length()
        flip = 0
        if ties == "optimistic":
            flip = (1 << bits) - 1
        dtype: torch.dtype = getattr(torch, key_type(n_levels, largest))
        key_range = torch.iinfo(dtype)
        # Scores up to 2, since rounding may carry them above 1, take the bits beside sign and level.
        scale = -(2.0 ** (key_range.bits - 2 - bits)) / largest
        last = key_range.max >> bits << bits | flip
        return cls(dtype, bits, flip, scale, last)

    def read_levels(self, keys: Tensor, levels: Tensor) -> Tensor:
        """Write the levels of keys to a tensor of the same shape, and return it."""
        return levels.copy_(keys).bitwise_and_((1 << self.bits) - 1).bitwise_xor_(self.flip)


class KeyRows:
    """Float32 scores and levels of a block of queries as sortable keys, see :class:`KeyFormat`.

    The keys of cosines have 32 bits if levels need 4 or fewer. With L = 3 a cosine has steps of
    2^-28, a sixteenth of the resolution of float32 just below 1; scores within the same step are
    ties. All other keys have 64 bits: scores are scaled by the largest possible score, which a
    single long embedding makes far larger than most scores.

    Args:
        n_rows: Largest number of queries in a block.
        n_items: Number of gallery items.
        key_format: Format of the keys.
        device: Device of the keys.
    """

    def __init__(
        self, n_rows: int, n_items: int, key_format: KeyFormat, device: torch.device
    ) -> None:
        self._format = key_format
        self._keys = torch.empty(n_rows, n_items, dtype=key_format.dtype, device=device)
        self._levels = torch.empty(n_rows, n_items, dtype=torch.uint8, device=device)

    def put(self, gallery: slice, scores: Tensor, levels: Tensor, excluded: ExcludedPairs) -> None:
        """Store the scores and levels of a block of the gallery; scores are overwritten.

        Args:
            gallery: Slice of the gallery items.
            scores: float32, shape (n_query, n_block).
            levels: uint8, the same shape.
            excluded: Pairs that are ranked last, with level 0.
        """
        keys = self._keys[: len(scores), gallery]
        keys.copy_(scores.mul_(self._format.scale))
        keys.bitwise_left_shift_(self._format.bits).bitwise_or_(levels ^ self._format.flip)
        excluded.fill(gallery, keys, self._format.last)

    def group_ends(self, n_rows: int) -> Tensor:
        """Return, at each rank, the last rank of the items that tie: int64, shape (n_rows, n_items)."""
        return _group_ends(self._keys[:n_rows].sort(dim=1).values >> self._format.bits)

    def ranked(self, n_rows: int, n_first: int | None = None) -> Tensor:
        """Return the levels in ranked order, uint8; the next block overwrites them.

        Args:
            n_rows: Number of queries in the block.
            n_first: Number of first ranks that are needed; None for all ranks.

        Returns:
            Shape (n_rows, n_items), or (n_rows, n_first).
        """
        keys = self._keys[:n_rows]
        levels = self._levels[:n_rows]
        if keys.device.type != "cpu":
            return self._format.read_levels(keys.sort(dim=1).values, levels)[:, :n_first]
        order: Callable[[slice], None]
        if n_first is not None:
            order = partial(self._order_first, n_first)
        elif (
            keys.dtype == torch.int32
            and keys.shape[1] >= _RADIX_SORT_FROM
            and is_compiled(keys.device)
        ):
            order = self._radix_sort
        else:
            order = self._sort
        shares = np.array_split(np.arange(n_rows), thread_count(keys.device))
        blocks = [slice(share[0], share[-1] + 1) for share in shares if len(share)]
        parallel_map(order, blocks, keys.device)
        return levels[:, :n_first]

    def _order_first(self, n_first: int, rows: slice) -> None:
        """Write the levels of the first ranks of some rows."""
        keys = self._keys[rows].numpy()
        if n_first * _LEAST_ITEMS_PER_SELECTED <= keys.shape[1]:
            _select_first(keys, n_first)
        else:
            keys.partition(n_first - 1, axis=1)
        keys[:, :n_first].sort(axis=1)
        self._format.read_levels(self._keys[rows, :n_first], self._levels[rows, :n_first])

    def _radix_sort(self, rows: slice) -> None:
        """Write the levels of some rows in ranked order by a compiled radix sort."""
        levels = self._levels[rows].numpy()
        _sort_levels(self._keys[rows].numpy(), self._format.bits, self._format.flip, levels)

    def _sort(self, rows: slice) -> None:
        """Write the levels of some rows in ranked order by NumPy's sort."""
        self._keys[rows].numpy().sort(axis=1)  # releases the interpreter lock while it sorts
        self._format.read_levels(self._keys[rows], self._levels[rows])


class ScoreRows:
    """Float64 scores and levels of a block of queries, which are sorted without keys.

    Args:
        n_rows: Largest number of queries in a block.
        n_items: Number of gallery items.
        device: Device of the scores.
        ties: Order of items with equal scores.
    """

    def __init__(self, n_rows: int, n_items: int, device: torch.device, ties: Ties) -> None:
        self._scores = torch.empty(n_rows, n_items, dtype=torch.float64, device=device)
        self._levels = torch.empty(n_rows, n_items, dtype=torch.uint8, device=device)
        self._higher_first = ties == "optimistic"

    def put(self, gallery: slice, scores: Tensor, levels: Tensor, excluded: ExcludedPairs) -> None:
        """Store the scores and levels of a block of the gallery, see :meth:`KeyRows.put`."""
        n_rows = len(scores)
        score_block = self._scores[:n_rows, gallery].copy_(scores)
        excluded.fill(gallery, score_block, -torch.inf)
        level_block = self._levels[:n_rows, gallery].copy_(levels)
        excluded.fill(gallery, level_block, 0)

    def group_ends(self, n_rows: int) -> Tensor:
        """See :meth:`KeyRows.group_ends`."""
        return _group_ends(-self._scores[:n_rows].sort(dim=1, descending=True).values)

    def ranked(self, n_rows: int, n_first: int | None = None) -> Tensor:
        """See :meth:`KeyRows.ranked`."""
        # Two stable sorts: by level, which orders ties, then by score.
        scores = self._scores[:n_rows]
        levels, by_level = self._levels[:n_rows].sort(
            dim=1, descending=self._higher_first, stable=True
        )
        scores_by_level = scores.gather(1, by_level)
        order = scores_by_level.sort(dim=1, descending=True, stable=True).indices
        return levels.gather(1, order)[:, :n_first]


def _group_ends(values: Tensor) -> Tensor:
    """Return, for each column of sorted rows, the last column with the same value."""
    columns = torch.arange(values.shape[1], device=values.device).expand(values.shape)
    is_last = torch.nn.functional.pad(values[:, 1:] != values[:, :-1], (0, 1), value=True)
    return columns.where(is_last, values.shape[1]).flip(1).cummin(1).values.flip(1)


def key_type(n_levels: int, largest: float) -> KeyType:
    """Return the type of keys: int32 for cosines with up to 15 levels, int64 otherwise."""
    return "int32" if n_levels < 16 and largest == 1 else "int64"


@compiled()
def _sort_levels(
    keys: npt.NDArray[np.int32], n_bits: int, flip: int, levels: npt.NDArray[np.uint8]
) -> None:
    """Write the levels of each row in the order of its keys, by a radix sort of two digits.

    NumPy's sort takes five times as long on processors of AMD that have AVX-512, and equally long on
    other processors.
    """
    half_sorted = np.empty(keys.shape[1], np.uint32)
    places = np.empty((2, 1 << 16), np.int32)  # place of the next key with each digit
    sign, level = np.uint32(1 << 31), np.uint32((1 << n_bits) - 1)
    for row in range(len(keys)):
        places[:] = 0
        for i in range(keys.shape[1]):
            key = np.uint32(keys[row, i]) ^ sign  # so that negative keys come first
            places[0, key & 0xFFFF] += 1
            places[1, key >> 16] += 1
        for digit in range(2):
            place = 0
            for value in range(1 << 16):
                count = places[digit, value]
                places[digit, value] = place
                place += count
        for i in range(keys.shape[1]):
            key = np.uint32(keys[row, i]) ^ sign
            half_sorted[places[0, key & 0xFFFF]] = key
            places[0, key & 0xFFFF] += 1
        for key in half_sorted:
            levels[row, places[1, key >> 16]] = (key & level) ^ flip
            places[1, key >> 16] += 1


@compiled()
def _select_first(keys: npt.NDArray[Any], n_first: int) -> None:
    """Move the smallest keys of each row to its first ``n_first`` places, in any order.

    The other places become invalid. NumPy's partition is faster on Intel's processors, but slow on
    AMD's Zen 4, whose AVX-512 stores selected numbers slowly
    (https://github.com/numpy/x86-simd-sort/issues/6). The heap needs no such instruction.
    """
    n_keys = keys.shape[1]
    for row in keys:
        heap = row[:n_first]  # the largest key comes first
        for place in range(n_first // 2 - 1, -1, -1):
            _sift(heap, place, heap[place])
        for start in range(n_first, n_keys, _KEYS_AT_ONCE):
            stop = min(start + _KEYS_AT_ONCE, n_keys)
            smallest = row[start]
            for i in range(start + 1, stop):
                smallest = min(smallest, row[i])
            if smallest < heap[0]:
                for i in range(start, stop):
                    if row[i] < heap[0]:
                        _sift(heap, 0, row[i])


@compiled()
def _sift(heap: npt.NDArray[Any], place: int, key: Any) -> None:
    """Replace the key at a place of a heap by another key, and move it below the larger keys."""
    child = 2 * place + 1
    while child < len(heap):
        if child + 1 < len(heap) and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= key:
            break
        heap[place] = heap[child]
        place = child
        child = 2 * place + 1
    heap[place] = key


#: A ranking is sorted completely if more than one of this many items is needed.
_LEAST_ITEMS_PER_RANK = 8


@dataclass(frozen=True)
class RankingConfig(ScoringConfig):
    """Settings of ranking.

    Args:
        block_size: Number of queries ranked at once, see
            :class:`~hgld.compute.scoring.ScoringConfig`.
        device: ``cpu``, ``cuda`` or ``cuda:1``.
        precision: Precision of scores.
        distance: Distance of embeddings.
        ties: Order of items with equal scores: ``pessimistic`` ranks the lower level first,
            ``optimistic`` the higher level. Metrics of any other order of ties lie between the two,
            except H-P@k, and H-AP and H-R@k where a finer level has less relevance than a coarser
            one (Eq. 20 allows it). ``heaviside`` gives all tied items the rank of the last one, as
            H(0) = 1 in Eq. 3. It holds for the sums over ranks of
            :class:`~hgld.evaluation.ranking_statistics.RankingStatistics` except ASI; where an order
            is needed, as for AHP, hF and H-P@k, the pessimistic one is used. Copies of one embedding
            need not have equal scores: their products may be rounded differently.
        reranking: Re-ranking of rankings by cosines.

    Raises:
        ConfigurationError: A value is not allowed, or the device does not exist.
    """

    allows_zeros: ClassVar[bool] = True

    ties: Ties = "pessimistic"
    reranking: RerankSettings = field(default_factory=RerankSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reranking.rerank is not None and self.distance != "cosine":
            raise ConfigurationError(
                f"`rerank` {self.reranking.rerank} is for cosines, but `distance` is {self.distance}; leave out one"
            )
        require_choice(Ties, ties=self.ties)


@dataclass(frozen=True, eq=False)
class Ranked:
    """Rankings of a block of queries.

    Args:
        queries: Slice of the queries, with a start and a stop.
        levels: uint8, shape (n_query, n_gallery), on the device; level of the item at each rank, best
            first. Excluded items come last, with level 0. Only the first ranks, if the others are
            not needed.
        n_ranked: int64, shape (n_query,), on the device; number of items that are not excluded.
        positives: int64, shape (n_query, L); number of items of level 1, ..., L or finer in the whole
            ranking, if ``levels`` holds the first ranks only; None otherwise.
        ends: int64, shape (n_query, n_gallery); the last rank, from 0, of the items that tie with the
            item at each rank, if ties are ``heaviside``; None otherwise.
    """

    queries: slice
    levels: Tensor
    n_ranked: Tensor
    positives: Tensor | None = None
    ends: Tensor | None = None


def ranked_items(
    judgements: RelevanceJudgements, excluded: RaggedIndices | None, gallery_mask: Booleans | None
) -> tuple[Booleans, RaggedIndices, Integers]:
    """Count the items of each ranking, see :func:`rank`; an item may be excluded in both ways.

    Returns:
        Mask of items that are not excluded from all rankings, bool, shape (n_gallery,); further
        items excluded from the ranking of each query, without repetition; and the number of items
        that are ranked, shape (n_query,).

    Raises:
        InputError: There is no query or no gallery item, the exclusions do not fit them, or a query
            has no items left.
    """
    n_queries = judgements.n_queries
    n_gallery = judgements.n_gallery
    for count, name in ((n_queries, "queries"), (n_gallery, "gallery items")):
        if not count:
            raise InputError(f"there are no {name}; expected one row per image")
    if gallery_mask is None:
        mask = np.ones(n_gallery, bool)
    else:
        mask = np.asarray(gallery_mask)
    if mask.shape != (n_gallery,) or mask.dtype != bool:
        raise InputError(
            f"`gallery_mask` has the shape {mask.shape} and the type {mask.dtype}; expected a bool for each of "
            f"{n_gallery:,} gallery items"
        )
    if excluded is None:
        excluded = RaggedIndices.empty(n_queries)
    excluded.check(n_queries, n_gallery, "`excluded`")
    unmasked = mask[excluded.columns]
    excluded = RaggedIndices.from_pairs(
        excluded.rows()[unmasked], excluded.columns[unmasked], n_queries
    )
    n_ranked = mask.sum() - excluded.counts()
    if not n_ranked.all():
        raise InputError(
            f"no gallery item is left to rank for query {np.argmin(n_ranked)}: all {n_gallery:,} items are excluded"
        )
    return mask, excluded, n_ranked


def rank(
    task: RetrievalTask,
    config: RankingConfig | None = None,
    *,
    needed: NeededRanks | None = None,
    part: tuple[int, int] = (0, 1),
    progress: Progress | None = None,
) -> Iterator[Ranked]:
    """Rank the gallery for every query of a task, a block of queries at a time.

    An embedding of zeros, which has no direction, has a score of 0 with all others, so that ties decide.

    Args:
        task: Embeddings, judgements and exclusions.
        config: Settings of the ranking.
        needed: Ranks that are needed, all ranks by default; further ranks may be left out of
            ``levels`` where that is faster, and the first ranks have the same levels.
        part: (i, n) to rank only the i-th of every n blocks. Blocks do not depend on n, so neither do
            results.
        progress: Progress bar over the queries.

    Yields:
        Rankings of a block; the next block overwrites them.

    Raises:
        InputError: The shapes do not fit, or an embedding has a value that is not finite.
    """
    config = config or RankingConfig()
    progress = progress or NoProgress()
    n_queries = task.judgements.n_queries
    n_gallery = task.judgements.n_gallery
    mask, excluded, n_ranked = ranked_items(task.judgements, task.excluded, task.gallery_mask)
    masked = np.flatnonzero(~mask)
    _check_sizes(task)
    device = torch.device(config.device)
    judgements = task.judgements.to(device)
    scorer = reranked_scorer(
        task.queries, task.gallery, config, config.reranking, task.itself, task.gallery_mask
    )
    shares = scorer.shares(n_gallery)
    step = config.queries_per_block(n_gallery, key_type(judgements.n_levels, scorer.largest))
    step = min(step, n_queries)
    part_number, n_parts = part
    starts = range(0, n_queries, step)[part_number::n_parts]
    progress.start(sum(min(step, n_queries - start) for start in starts))
    if config.precision == "float64" or config.ties == "heaviside" or not is_compiled(device):
        needed = None
    rows: KeyRows | ScoreRows
    if config.precision == "float64":
        rows = ScoreRows(step, n_gallery, device, config.ties)
    else:
        key_format = KeyFormat.for_scores(judgements.n_levels, scorer.largest, config.ties)
        rows = KeyRows(step, n_gallery, key_format, device)
    for start in starts:
        queries = slice(start, min(start + step, n_queries))
        n_rows = queries.stop - start
        excluded_pairs = ExcludedPairs(masked, excluded.block(queries))
        scorer.prepare(queries)
        counts_positives = needed is not None
        fill = partial(_fill, rows, scorer, judgements, queries, excluded_pairs, counts_positives)
        with float32_matmul(config.precision):
            counts = parallel_map(fill, shares, device)
        positives = None
        n_first = None
        if needed is not None:
            positives = torch.from_numpy(np.sum(counts, axis=0))
            n_first = needed.count(positives)
            if n_first * _LEAST_ITEMS_PER_RANK > n_gallery:
                positives = None
                n_first = None
        n_left = torch.from_numpy(n_ranked[queries]).to(device)
        ends = rows.group_ends(n_rows) if config.ties == "heaviside" else None
        levels = rows.ranked(n_rows, n_first)
        yield Ranked(queries, levels, n_left, positives, ends)
        progress.advance(n_rows)


def _check_sizes(task: RetrievalTask) -> None:
    """Check the embeddings of a task, and that they are as many as its judgements.

    Raises:
        InputError: The sizes differ, or an embedding has a value that is not finite.
    """
    check_embeddings(task.queries, task.gallery)
    sizes = [
        ("query", len(task.queries), task.judgements.n_queries),
        ("gallery", len(task.gallery), task.judgements.n_gallery),
    ]
    for role, n_embeddings, n_judged in sizes:
        if n_embeddings != n_judged:
            raise InputError(
                f"there are {n_embeddings:,} {role} embeddings, but labels for {n_judged:,}"
            )


def _fill(
    rows: KeyRows | ScoreRows,
    scorer: Scorer,
    judgements: RelevanceJudgements,
    queries: slice,
    excluded: ExcludedPairs,
    counts_positives: bool,
    starts: range,
) -> Integers:
    """Store the scores and levels of a share of the gallery.

    Returns:
        Number of ranked items of level 1, ..., L or finer, int64, shape (n_query, L), on a CPU; 0 if
        ``counts_positives`` is False.
    """
    counts = np.zeros((queries.stop - queries.start, judgements.n_levels), np.int64)
    for gallery, scores in scorer.scores(queries, starts):
        levels = judgements.levels(queries, gallery)
        if counts_positives:
            levels = levels.clone(memory_format=torch.contiguous_format)
            excluded.fill(gallery, levels, 0)
            count_levels(levels.numpy(), counts)
        rows.put(gallery, scores, levels, excluded)
    return counts

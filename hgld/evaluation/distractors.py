"""Rank the positives of queries among distractors, of which there may be a hundred million, without sorting these.

Metrics depend on the ranks of the positives alone. In a gallery that is mostly distractors these are few, so their
scores are taken first. Then every block of the gallery is scored, to count the negatives that come before each of
them. Counts of blocks add up, so several jobs may count the distractors of a part of the gallery each
(:class:`DistractorCounts`), and the sums are exact. Scores, their steps and the order of ties are those of
:func:`hgld.evaluation.ranking.rank`, and the statistics those of whole rankings to the last bit where the blocks of
queries are the same.

For each query, a compiled loop sets aside the scores that are not below all of its positives. When they are enough,
each is compared with the positives, beginning where a table by the upper bits of its key says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.compiled import compiled
from hgld.compute.executors import Part
from hgld.compute.machine import parallel_map
from hgld.compute.parted import PartedTensor
from hgld.compute.scoring import Scorer, float32_matmul
from hgld.errors import InputError
from hgld.evaluation.ranking import ExcludedPairs, KeyFormat, RankingConfig, count_positives, ranked_items
from hgld.evaluation.ranking_statistics import COMPILED_WIDTH, RankingStatistics, RankTables, ranking_statistics
from hgld.evaluation.relevance import WithDistractors
from hgld.evaluation.retrieval_task import RetrievalTask
from hgld.progress import NoProgress, Progress
from hgld.ragged import RaggedIndices

Integers = npt.NDArray[np.int64]
#: Number of entries of the table of a query.
_N_BINS = 2**12
#: Number of scores of a query that are set aside before they are compared, while its table is in the cache.
_N_NEAR = 2**14
#: Most queries of a block, bytes of its positives, and upper bound on those of a positive.
_MAX_QUERIES, _MEMORY, _BYTES = 512, 2**28, 64
_CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class RankedPositives:
    """Positives of a block of queries, best first.

    Args:
        queries: Slice of the queries.
        ranks: Ranks, from 0, of the positives of each query.
        keys: Their keys, see :class:`~hgld.evaluation.ranking.KeyFormat`, as long as ``ranks.columns``.
        levels: uint8; their levels, from 1 on.
    """

    queries: slice
    ranks: RaggedIndices
    keys: npt.NDArray[Any]
    levels: npt.NDArray[np.uint8]

    def after(self, counts: Integers) -> RankedPositives:
        """Return the positives with their ranks raised by the number of further items that come before each."""
        return replace(self, ranks=RaggedIndices(self.ranks.offsets, self.ranks.columns + counts))


@dataclass(frozen=True, eq=False)
class DistractorCounts:
    """Numbers of distractors before each positive of a task, best first.

    Args:
        queries: int64, ascending; query of each positive.
        counts: int64, the same shape.
    """

    queries: Integers
    counts: Integers

    def of(self, queries: slice) -> Integers:
        """Return the counts of some queries."""
        return self.counts[slice(*np.searchsorted(self.queries, [queries.start, queries.stop]))]


#: Counts of the distractors of each task, by its name.
CountsByTask = dict[str, DistractorCounts]


class PositiveRanking:
    """Ranking of the positives of a task, which are scored and counted with the gallery's first blocks.

    These blocks hold all judged items, and perhaps the first distractors; the others are counted in parts.

    Args:
        task: Task whose judgements are :class:`~hgld.evaluation.relevance.WithDistractors`.
        config: Settings of ranking: on a CPU, not by inner products, and not in float64.

    Attributes:
        n_ranked: int64, shape (n_query,); number of items that are ranked.
        n_positives: int64, shape (n_query, L); number of items of level 1, ..., L or finer.

    Raises:
        InputError: See :func:`~hgld.evaluation.ranking.rank`.
    """

    def __init__(self, task: RetrievalTask, config: RankingConfig) -> None:
        assert isinstance(task.judgements, WithDistractors)
        assert isinstance(task.gallery, PartedTensor)
        self._queries, self._gallery, self._judgements = task.queries, task.gallery, task.judgements
        self._config = config
        mask, self._excluded, self.n_ranked = ranked_items(task.judgements, task.excluded, task.gallery_mask)
        self._masked = np.flatnonzero(~mask)
        blocks = self._blocks(_MAX_QUERIES)
        counts = [count_positives(task.judgements.judged, block, self._pairs(block)) for block in blocks]
        self.n_positives: Integers = torch.cat(counts).numpy()
        self._width = config.items_per_block(len(task.gallery))
        self._n_first = min(-(-task.judgements.judged.n_gallery // self._width) * self._width, len(task.gallery))
        self._scorer = Scorer(self._queries, self._gallery.rows(0, self._n_first), config)
        # Distractors that are further away than this bound come after all positives.
        self._format = KeyFormat.of(task.judgements.n_levels, self._scorer.largest, config.ties)
        self._key_type = str(self._format.dtype).removeprefix("torch.")

    def _blocks(self, step: int) -> list[slice]:
        n_queries = self._judgements.n_queries
        return [slice(start, min(start + step, n_queries)) for start in range(0, n_queries, step)]

    def _pairs(self, queries: slice) -> ExcludedPairs:
        return ExcludedPairs(self._masked, self._excluded.block(queries))

    def blocks(self, part: tuple[int, int] = (0, 1), progress: Progress | None = None) -> Iterator[RankedPositives]:
        """Yield the positives of blocks of queries, with their ranks among the gallery's first blocks.

        Args:
            part: (i, n) for the i-th of every n blocks.
            progress: Progress bar over the queries.
        """
        most = max(1, int(self.n_positives[:, 0].max()))
        step = self._config.block_size or max(1, min(_MEMORY // (_BYTES * most), _MAX_QUERIES))
        blocks, progress = self._blocks(step)[part[0] :: part[1]], progress or NoProgress()
        progress.start(sum(block.stop - block.start for block in blocks))
        scorer = self._scorer
        for queries in blocks:
            pairs = self._pairs(queries)
            found = self._each_share(scorer, partial(self._positives, scorer, queries, pairs))
            rows, keys, levels = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
            order = np.lexsort((keys, rows))
            offsets = np.searchsorted(rows[order], np.arange(queries.stop - queries.start + 1))
            ranks = RaggedIndices(offsets, np.arange(len(order)) - np.repeat(offsets[:-1], np.diff(offsets)))
            positives = RankedPositives(queries, ranks, keys[order], levels[order])
            yield positives.after(self.count(scorer, positives, pairs))
            progress.advance(queries.stop - queries.start)

    def distractors(self, part: Part) -> Scorer | None:
        """Return the scorer of a part of the distractors; None if the part has none."""
        starts = part.of(range(self._n_first, len(self._gallery), self._width))
        if not starts:
            return None
        stop = min(starts[-1] + self._width, len(self._gallery))
        try:
            return Scorer(self._queries, self._gallery.rows(starts[0], stop), self._config)
        except InputError as error:
            first = starts[0] - self._judgements.judged.n_gallery
            raise InputError(f"distractors, of which row {first:,} is counted as row 0: {error}") from error

    def _each_share(self, scorer: Scorer, work: Any) -> list[Any]:
        with float32_matmul(self._config.precision):
            return parallel_map(work, scorer.shares(len(scorer.gallery)), _CPU)

    def _positives(self, scorer: Scorer, queries: slice, pairs: ExcludedPairs, starts: range) -> Any:
        """Return the rows, keys and levels of the positives in some blocks of the gallery."""
        form, found = self._format, [(np.empty(0, np.int64), np.empty(0, self._key_type), np.empty(0, np.uint8))]
        for gallery, scores in scorer.scores(queries, starts):
            levels = self._judgements.levels(queries, gallery).clone()
            pairs.fill(gallery, levels, 0)
            rows, columns = np.nonzero(levels.numpy())
            own = levels.numpy()[rows, columns]
            steps = (scores.numpy()[rows, columns] * np.float32(form.scale)).astype(self._key_type)
            found.append((rows, steps << form.bits | (own ^ form.flip), own))
        return [np.concatenate(arrays) for arrays in zip(*found, strict=True)]

    def count(
        self, scorer: Scorer | None, positives: RankedPositives, pairs: ExcludedPairs | None = None
    ) -> Integers:
        """Return the number of distractors before each positive, int64.

        Args:
            scorer: Scorer of the distractors, or of the gallery's first blocks; None for no distractors.
            positives: Positives of a block of queries.
            pairs: Excluded pairs, where there are items that are no distractors, of which the negatives are counted.
        """
        if scorer is None:
            return np.zeros(len(positives.keys), np.int64)
        form, offsets, keys = self._format, positives.ranks.offsets, positives.keys
        table = _place_table(keys >> form.bits, offsets)
        worst = np.append(keys >> form.bits, 0)[offsets[1:] - 1]
        # Fixed point cuts a fraction off.
        limits = np.where(np.diff(offsets) > 0, worst + 1.0, -np.inf).astype(np.float32)

        def count(starts: range) -> Integers:
            counts, n_near = np.zeros(len(keys), np.int64), np.zeros(len(limits), np.int64)
            near = np.empty((len(limits), _N_NEAR), np.float32)
            for gallery, scores in scorer.scores(positives.queries, starts):
                if pairs is not None:
                    scores[self._judgements.levels(positives.queries, gallery) > 0] = torch.nan
                    pairs.fill(gallery, scores, torch.nan)
                full = _N_NEAR - scores.shape[1]
                _count_before(near, n_near, full, form.bits, form.flip, offsets, keys, *table, counts)
                _set_aside(scores.numpy(), np.float32(form.scale), limits, near, n_near)
            _count_before(near, n_near, 1, form.bits, form.flip, offsets, keys, *table, counts)
            return counts

        totals = np.cumsum(np.sum(self._each_share(scorer, count), axis=0))
        before_row = np.append(0, totals)[offsets[:-1]]
        before: Integers = totals - np.repeat(before_row, np.diff(offsets))
        return before


def _place_table(steps: npt.NDArray[Any], offsets: Integers) -> tuple[npt.NDArray[np.int32], Integers]:
    """Return the table of each query: by the upper bits of a score's step, the first positive that may not be better.

    Args:
        steps: Scores of the positives in fixed point, ascending for each query.
        offsets: Positions of the positives of each query.

    Returns:
        int32, shape (n_query, _N_BINS); and the number of lower bits that are dropped, shape (n_query,).
    """
    counts = np.diff(offsets)
    if not len(steps):
        return np.zeros((len(counts), _N_BINS), np.int32), np.zeros(len(counts), np.int64)
    best, worst = (
        steps[np.minimum(ends, len(steps) - 1)].astype(np.int64) for ends in (offsets[:-1], offsets[1:] - 1)
    )
    n_bits = np.frexp((worst - best).clip(min=0).astype(np.float64))[1].astype(np.int64)
    shifts = (n_bits - _N_BINS.bit_length() + 1).clip(min=0)
    rows = np.repeat(np.arange(len(counts)), counts)
    bins = ((steps - best[rows]) >> shifts[rows]).clip(max=_N_BINS - 1)
    in_bin = np.bincount(rows * _N_BINS + bins, minlength=len(counts) * _N_BINS).reshape(-1, _N_BINS)
    return (in_bin.cumsum(axis=1) - in_bin).astype(np.int32), shifts


@compiled()
def _set_aside(
    scores: npt.NDArray[np.float32],
    scale: np.float32,
    limits: npt.NDArray[np.float32],
    near: npt.NDArray[np.float32],
    n_near: Integers,
) -> None:
    """Append the scaled scores of each row that are no higher than its limit to those of earlier blocks.

    Args:
        scores: float32, shape (n_query, n_block); NaN for items that are no negatives.
        scale: Factor of scores.
        limits: float32, shape (n_query,).
        near: float32, shape (n_query, n), with space for one more than all; updated.
        n_near: int64, shape (n_query,); numbers of scores there; updated.
    """
    for row in range(len(scores)):
        own, count, limit = near[row], n_near[row], limits[row]
        for i in range(scores.shape[1]):  # without a branch, which processors would often predict wrongly
            scaled = scores[row, i] * scale
            own[count] = scaled
            count += scaled <= limit
        n_near[row] = count


@compiled()
def _count_before(
    near: npt.NDArray[np.float32],
    n_near: Integers,
    least: int,
    n_bits: int,
    flip: int,
    offsets: Integers,
    keys: Any,
    first_places: npt.NDArray[np.int32],
    shifts: Integers,
    counts: Integers,
) -> None:
    """Count the negatives that come before each positive, and not before the one ahead of it.

    Args:
        near: Scaled scores of the negatives, see :func:`_set_aside`.
        n_near: Their numbers, set to 0.
        least: Number from which on they are counted; rows with fewer wait.
        n_bits: Number of bits of a level.
        flip: Bits that are flipped in levels, of which that of a negative is 0.
        offsets: int64, shape (n_query + 1,); positions of the positives of each query.
        keys: int32 or int64; keys of the positives, ascending for each query.
        first_places: int32, shape (n_query, n_bins); see :func:`_place_table`.
        shifts: int64, shape (n_query,); likewise.
        counts: int64, as long as ``keys``; updated.
    """
    for row in np.flatnonzero(n_near >= least):
        start, stop, places = offsets[row], offsets[row + 1], first_places[row]
        for i in range(n_near[row]):
            step = keys.dtype.type(near[row, i])
            place = start + places[min(max(step - (keys[start] >> n_bits), 0) >> shifts[row], len(places) - 1)]
            while place < stop and keys[place] < ((step << n_bits) | flip):
                place += 1
            if place < stop:
                counts[place] += 1
        n_near[row] = 0


def positive_statistics(
    positives: RankedPositives, n_gallery: int, n_ranked: Integers, n_levels: int, cutoffs: Sequence[int]
) -> tuple[torch.Tensor, RankingStatistics]:
    """Compute the statistics of rankings of which the positives are known.

    Sums are added up in blocks of ranks. Those without a positive add nothing, so they are left out of the ranking
    once its first ranks have passed, on which other sums depend.

    Args:
        positives: Positives of n queries.
        n_gallery: Number of gallery items.
        n_ranked: int64, shape (n,); number of items of each ranking.
        n_levels: Number of levels L.
        cutoffs: Ranks k of metrics "at k".

    Returns:
        Levels of the first ranks, up to the last cutoff, uint8, shape (n, k), and the statistics.
    """
    first = torch.zeros(len(positives.ranks), max([1, *cutoffs]), dtype=torch.uint8)
    tables = RankTables(max(1, int(positives.ranks.counts().max())))
    rows = []
    for row, n_items in enumerate(n_ranked.tolist()):
        own = slice(*positives.ranks.offsets[row : row + 2])
        ranks, levels = positives.ranks.columns[own], positives.levels[own]
        n_first = min(max([len(ranks), *cutoffs]), n_gallery)
        blocks = np.unique((ranks[ranks >= n_first] - n_first) // COMPILED_WIDTH)
        kept = (n_first + blocks[:, None] * COMPILED_WIDTH + np.arange(COMPILED_WIDTH)).reshape(-1)
        kept = np.concatenate([np.arange(n_first), kept[kept < n_gallery]])
        ranking = torch.zeros(1, len(kept), dtype=torch.uint8)
        ranking[0, np.searchsorted(kept, ranks)] = torch.from_numpy(levels)
        near = ranks < first.shape[1]
        first[row, ranks[near]] = torch.from_numpy(levels[near])
        at = tables.at(torch.from_numpy(kept + 1.0))
        rows.append(ranking_statistics(ranking, n_levels, cutoffs, n_ranked=torch.tensor([n_items]), tables=at))
    tensors = [field.name for field in fields(RankingStatistics) if field.name != "cutoffs"]
    joined = {name: torch.cat([getattr(statistics, name) for statistics in rows]) for name in tensors}
    return first, RankingStatistics(**joined, cutoffs=rows[0].cutoffs)

"""Rank the positives of queries among distractors, of which there may be a hundred million, without sorting these.

Metrics depend on the ranks of the positives alone. In a gallery that is mostly distractors these are few, so their
scores are taken first. Then every block of the gallery is scored, to count the negatives that come before each of
them. Counts of blocks add up, so several jobs may count the distractors of a part of the gallery each
(:class:`DistractorCounts`), and the sums are exact. Scores, their steps and the order of ties are those of
:func:`hgld.evaluation.ranking.rank`, and the statistics those of whole rankings to the last bit where the blocks of
queries are the same.

For each query, a compiled loop sets aside the scores that are not below all of its positives. When they are enough,
each is compared with the positives, beginning where a table of equal intervals of scores says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hgld.arrays import Integers
from hgld.compute.compiled import compiled
from hgld.compute.executors import Part
from hgld.compute.machine import parallel_map
from hgld.compute.parted import PartedTensor
from hgld.compute.scoring import Scorer, float32_matmul
from hgld.errors import InputError
from hgld.evaluation.ranking import ExcludedPairs, KeyFormat, RankingConfig, count_positives, ranked_items
from hgld.evaluation.ranking_statistics import COMPILED_WIDTH, RankingStatistics, RankTables, ranking_statistics
from hgld.evaluation.retrieval_task import RetrievalTask, WithDistractors
from hgld.progress import NoProgress, Progress
from hgld.ragged import RaggedIndices

#: Number of intervals of the table of a query.
_N_BINS = 2**13
#: Number of scores of a query that are set aside before they are compared, while its table is in the cache.
_N_NEAR = 2**14
#: Largest number of queries of a block, bytes for all its positives, and most bytes that a positive takes.
_MAX_QUERIES, _MEMORY, _BYTES = 512, 2**28, 64
_CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class RankedPositives:
    """Positives of a block of queries, best first.

    Args:
        queries: Slice of the queries.
        ranks: Ranks, from 0, of the positives of each query.
        steps: float32, ascending for each query, as long as ``ranks.columns``; their scores in fixed point, see
            :class:`~hgld.evaluation.ranking.KeyFormat`.
        levels: uint8; their levels, from 1 on.
    """

    queries: slice
    ranks: RaggedIndices
    steps: npt.NDArray[np.float32]
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
        task: Task whose judgements are :class:`~hgld.evaluation.retrieval_task.WithDistractors`.
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
            rows, steps, levels = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
            order = np.lexsort((levels ^ self._format.flip, steps, rows))
            offsets = np.searchsorted(rows[order], np.arange(queries.stop - queries.start + 1))
            ranks = RaggedIndices(offsets, np.arange(len(order)) - np.repeat(offsets[:-1], np.diff(offsets)))
            positives = RankedPositives(queries, ranks, steps[order], levels[order])
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
        """Return the rows, steps and levels of the positives in some blocks of the gallery."""
        found = [(np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.uint8))]
        for gallery, scores in scorer.scores(queries, starts):
            levels = self._judgements.levels(queries, gallery).clone()
            pairs.fill(gallery, levels, 0)
            rows, columns = np.nonzero(levels.numpy())
            steps = np.trunc(scores.numpy()[rows, columns] * np.float32(self._format.scale))
            found.append((rows, steps, levels.numpy()[rows, columns]))
        return [np.concatenate(arrays) for arrays in zip(*found, strict=True)]

    def count(
        self, scorer: Scorer | None, positives: RankedPositives, pairs: ExcludedPairs | None = None
    ) -> Integers:
        """Return the number of distractors before each positive, int64.

        Args:
            scorer: Scorer of the distractors, or of the gallery's first blocks; None for no distractors.
            positives: Positives of a block of queries.
            pairs: Excluded pairs, where there are items that are not distractors, of which the negatives are counted.
        """
        if scorer is None:
            return np.zeros(len(positives.steps), np.int64)
        offsets, scale = positives.ranks.offsets, np.float32(self._format.scale)
        # Of equal scores, negatives come first, unless ties are optimistic.
        steps = np.nextafter(positives.steps, np.float32(-np.inf)) if self._format.flip else positives.steps
        # Infinity follows the positives of each query, so that loops over them end.
        steps = np.insert(steps, offsets[1:], np.float32(np.inf))
        ends = offsets[1:] + np.arange(len(offsets) - 1)
        starts = np.append(0, ends[:-1] + 1)
        # Fixed point cuts a fraction off.
        limits = np.where(ends > starts, steps[ends - 1] + np.float32(1), np.float32(-np.inf))
        factors = (_N_BINS - 1) / np.maximum(limits - steps[starts], np.float32(1))
        places = _places(steps, starts, ends, factors)

        def count(blocks: range) -> npt.NDArray[np.uint32]:
            counts, n_near = np.zeros(len(steps), np.uint32), np.zeros(len(limits), np.int64)
            near = np.empty((len(limits), _N_NEAR), np.float32)
            for gallery, scores in scorer.scores(positives.queries, blocks):
                if pairs is not None:
                    scores[self._judgements.levels(positives.queries, gallery) > 0] = torch.nan
                    pairs.fill(gallery, scores, torch.nan)
                _count_before(near, n_near, _N_NEAR - scores.shape[1], steps, starts, factors, places, counts)
                _set_aside(scores.numpy(), scale, limits, near, n_near)
            _count_before(near, n_near, 1, steps, starts, factors, places, counts)
            return counts

        totals = np.delete(np.sum(self._each_share(scorer, count), axis=0, dtype=np.int64), ends).cumsum()
        before_row = np.append(0, totals)[offsets[:-1]]
        before: Integers = totals - np.repeat(before_row, np.diff(offsets))
        return before


def _places(
    steps: npt.NDArray[np.float32], starts: Integers, ends: Integers, factors: npt.NDArray[np.float32]
) -> npt.NDArray[Any]:
    """Return the number of positives of each query below each interval of scores, see :func:`_count_before`."""
    # Narrow numbers, so that a table stays in the cache.
    places = np.empty((len(starts), _N_BINS), np.uint16 if (ends - starts).max() < 2**16 else np.uint32)
    for own, start, end, factor in zip(places, starts, ends, factors, strict=True):
        bins = ((steps[start:end] - steps[start]) * factor).astype(np.int32)
        own[:] = np.searchsorted(bins, np.arange(_N_BINS))
    return places


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
        scores: float32, shape (n_query, n_block); NaN for items that are not negatives.
        scale: Factor of scores.
        limits: float32, shape (n_query,).
        near: float32, shape (n_query, n), with space for one more than all; updated.
        n_near: int64, shape (n_query,); numbers of scores there; updated.
    """
    for row in range(len(scores)):
        own, count, limit = near[row], np.uint64(n_near[row]), limits[row]
        for score in scores[row]:  # without a branch, which processors would often predict wrongly
            own[count] = score * scale
            count += np.uint64(score * scale <= limit)
        n_near[row] = count


@compiled()
def _count_before(
    near: npt.NDArray[np.float32],
    n_near: Integers,
    least: int,
    steps: npt.NDArray[np.float32],
    starts: Integers,
    factors: npt.NDArray[np.float32],
    places: npt.NDArray[Any],
    counts: npt.NDArray[np.uint32],
) -> None:
    """Count the negatives that come before each positive, and not before the one ahead of it.

    Args:
        near: Scaled scores of the negatives, see :func:`_set_aside`.
        n_near: Their numbers, set to 0.
        least: Number from which on they are counted; rows with fewer wait.
        steps: float32; the positives of each query, ascending, then infinity. Negatives above one come after it.
        starts: int64, shape (n_query,); position of the first positive of each query.
        factors: float32, shape (n_query,); number of intervals of scores per step.
        places: uint16 or uint32, shape (n_query, n_bins); number of positives below each interval.
        counts: uint32, as long as ``steps``; updated.
    """
    for row in np.flatnonzero(n_near >= least):
        own, own_counts = steps[starts[row] :], counts[starts[row] :]
        best, factor, own_places = own[0], factors[row], places[row]
        for score in near[row, : n_near[row]]:
            step = np.trunc(score)
            place = np.uint64(own_places[np.uint32(max((step - best) * factor, np.float32(0)))])
            while own[place] < step:
                place += np.uint64(1)
            own_counts[place] += np.uint32(1)
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

"""The first items of each ranking, for metrics that depend on no others: nothing beyond them is sorted.

Where R@1 and mAP@R are all that is asked for, a ranking of 20,000 items is needed up to rank R, which may be 10. So a
compiled loop keeps the smallest keys of each query (:mod:`hgld.evaluation.ranking_keys`). One comparison passes over
nearly all items; those that may be among the first are collected, and when there are twice as many as needed,
a selection halves them. The smallest keys of a row are the same whatever the order in which they come, so the first
levels are those that a sort of all keys gives. How many there are depends on the number of positives, which are
counted first.

Only on a CPU, where loops are compiled, and for keys: everywhere else whole rankings are sorted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.compiled import compiled
from hgld.compute.threads import parallel_map, thread_count
from hgld.evaluation.excluded_pairs import ExcludedPairs
from hgld.evaluation.level_sums import count_levels
from hgld.evaluation.ranking_keys import KeyFormat
from hgld.evaluation.relevance_judgements import RelevanceJudgements

#: A ranking is sorted as a whole where more than one of this many items is needed.
_LEAST_SHARE = 8
#: Gallery items of which positives are counted at once.
_WIDTH = 2**14


@dataclass(frozen=True)
class NeededRanks:
    """Ranks on which metrics depend.

    Args:
        first: Number of ranks that all rankings need.
        levels: Levels l for which the first R_l ranks are needed, R_l being the number of items of level l or finer.
    """

    first: int
    levels: tuple[int, ...] = ()

    def count(self, positives: torch.Tensor) -> int:
        """Return the number of ranks needed, 1 or more, for the number of positives, int64, shape (n_query, L)."""
        return max(self.first, 1, *(int(positives[:, level - 1].max()) for level in self.levels))


class FirstKeys:
    """The smallest keys of a block of queries, with the interface of :class:`~hgld.evaluation.ranking_keys.KeyRows`.

    Args:
        n_rows: Number of queries.
        n_first: Number of keys to keep for each.
        n_parts: Number of parts of the gallery that are scored at the same time.
        key_format: Form of keys.
        excluded: Pairs that are not ranked.
    """

    def __init__(
        self, n_rows: int, n_first: int, n_parts: int, key_format: KeyFormat, excluded: ExcludedPairs
    ) -> None:
        self._format, self._n_first, self._excluded = key_format, n_first, excluded
        dtype = np.dtype(str(key_format.dtype).removeprefix("torch."))
        # Keys that are not written yet sort last, as excluded items do, and have level 0.
        self._keys = np.full((n_parts, n_rows, 2 * n_first + 32), key_format.last, dtype)
        self._counts = np.zeros((n_parts, n_rows), np.int64)
        self._limits = np.full((n_parts, n_rows), np.inf, np.float32)

    def put(self, part: int, gallery: slice, scores: torch.Tensor, levels: torch.Tensor) -> None:
        """Collect the scores, float32, and levels of a block of the gallery; scores are overwritten."""
        self._excluded.fill(gallery, scores, torch.nan)  # which is below no limit
        form = self._format
        keys, counts, limits = self._keys[part], self._counts[part], self._limits[part]
        values = scores.numpy(), levels.contiguous().numpy()
        _collect(*values, np.float32(form.scale), form.bits, form.flip, self._n_first, keys, counts, limits)

    def ranked(self) -> torch.Tensor:
        """Return the levels of the first items in ranked order: uint8, shape (n_rows, n_first)."""
        _forget(self._keys, self._counts, self._format.last)
        keys = np.sort(np.concatenate(self._keys, axis=1), axis=1)[:, : self._n_first]
        first = torch.from_numpy(np.ascontiguousarray(keys))
        return self._format.read_levels(first, torch.empty(first.shape, dtype=torch.uint8))


def affordable(n_first: int, n_gallery: int, n_parts: int) -> bool:
    """Return whether to keep the first keys only: they are few, and take less memory than all keys of a block."""
    return n_first * _LEAST_SHARE <= n_gallery and n_parts * (2 * n_first + 32) <= n_gallery


def count_positives(judgements: RelevanceJudgements, queries: slice, excluded: ExcludedPairs) -> torch.Tensor:
    """Count the ranked items of level 1, ..., L or finer for a block of queries, on a CPU.

    Args:
        judgements: Levels of all pairs.
        queries: Slice of the queries.
        excluded: Pairs of the block that are not ranked.

    Returns:
        int64, shape (n_query, L).
    """
    n_gallery, n_threads = judgements.n_gallery, thread_count(torch.device("cpu"))
    bounds = [n_gallery * thread // n_threads for thread in range(n_threads + 1)]

    def count(thread: int) -> npt.NDArray[np.int64]:
        counts = np.zeros((queries.stop - queries.start, judgements.n_levels), np.int64)
        for start in range(bounds[thread], bounds[thread + 1], _WIDTH):
            gallery = slice(start, min(start + _WIDTH, bounds[thread + 1]))
            levels = judgements.levels(queries, gallery)
            if excluded.any(gallery):
                levels = levels.clone()
                excluded.fill(gallery, levels, 0)
            count_levels(levels.contiguous().numpy(), counts)
        return counts

    return torch.from_numpy(np.sum(parallel_map(count, range(n_threads), torch.device("cpu")), axis=0))


@compiled()
def _collect(
    scores: npt.NDArray[np.float32],
    levels: npt.NDArray[np.uint8],
    scale: np.float32,
    n_bits: int,
    flip: int,
    n_first: int,
    keys: Any,
    counts: npt.NDArray[np.int64],
    limits: npt.NDArray[np.float32],
) -> None:
    """Collect the keys that may be among the smallest.

    Args:
        scores: float32, shape (n_query, n_block); NaN for excluded items.
        levels: uint8, the same shape.
        scale: Factor of scores.
        n_bits: Number of bits of a level.
        flip: Bits that are flipped in levels.
        n_first: Number of smallest keys of each row to keep.
        keys: int32 or int64, shape (n_query, n), n > n_first; the collected keys come first.
        counts: int64, shape (n_query,); number of collected keys, which is updated.
        limits: float32, shape (n_query,); no scaled score above it is needed; updated.
    """
    for row in range(len(scores)):
        own, count, limit = keys[row], counts[row], limits[row]
        for i in range(scores.shape[1]):
            scaled = scores[row, i] * scale
            if scaled <= limit:
                own[count] = (keys.dtype.type(scaled) << n_bits) | (levels[row, i] ^ flip)
                count += 1
                if count == len(own):
                    # Fixed point cuts the fraction off; so a key no larger than the last one needed may belong to a
                    # score that is larger by less than a step.
                    limit = np.float32((_select(own, n_first) >> n_bits) + 1)
                    count = n_first
        counts[row], limits[row] = count, limit


@compiled()
def _select(values: Any, n: int) -> Any:
    """Move the n smallest values to the front, and return the largest of them (Hoare's quickselect)."""
    low, high, target = 0, len(values) - 1, n - 1
    while low < high:
        first, middle, last = values[low], values[(low + high) // 2], values[high]
        pivot = max(min(first, middle), min(max(first, middle), last))
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if target <= j:
            high = j
        elif target >= i:
            low = i
        else:
            break
    return values[target]


@compiled()
def _forget(keys: Any, counts: npt.NDArray[np.int64], last: int) -> None:
    """Overwrite the keys behind those that are collected."""
    for part in range(len(keys)):
        for row in range(keys.shape[1]):
            keys[part, row, counts[part, row] :] = last

"""Scores and levels of a block of queries, from which the levels of each ranking are read in order.

Keys are integers: the score in fixed point, then the level. On a CPU compiled loops write and sort them;
elsewhere, and where loops are not compiled, operations of torch and NumPy give the same levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.compiled import compiled, is_compiled
from hgld.compute.threads import parallel_map, thread_count

Ties = Literal["pessimistic", "optimistic"]
KeyType = Literal["int32", "int64"]

#: Number of items from which the counters of the radix sort pay.
_RADIX_SORT_FROM = 2**14


@dataclass(frozen=True)
class KeyFormat:
    """Form of keys.

    Args:
        dtype: torch.int32 or torch.int64.
        bits: Number of bits of a level.
        flip: Bits that are flipped in levels: keys ascend, so that lower levels come first, or last.
        scale: Factor of scores; negative, so that the best score has the smallest key.
        last: Key that sorts last, with level 0.
    """

    dtype: torch.dtype
    bits: int
    flip: int
    scale: float
    last: int

    @classmethod
    def of(cls, n_levels: int, largest: float, ties: Ties) -> KeyFormat:
        """Return the form of keys for a number of levels and an upper bound on the scores."""
        bits = n_levels.bit_length()
        flip = 0 if ties == "pessimistic" else (1 << bits) - 1
        dtype: torch.dtype = getattr(torch, key_type(n_levels, largest))
        # Scores up to 2, since rounding may carry them above 1, take the bits beside sign and level.
        scale = -(2.0 ** (torch.iinfo(dtype).bits - 2 - bits)) / largest
        return cls(dtype, bits, flip, scale, torch.iinfo(dtype).max >> bits << bits | flip)

    def read_levels(self, keys: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
        """Write the levels of keys to a tensor of the same shape, and return it."""
        return levels.copy_(keys).bitwise_and_((1 << self.bits) - 1).bitwise_xor_(self.flip)


class KeyRows:
    """Float32 scores and levels of a block of queries as sortable keys: the score in fixed point, then the level.

    The keys of cosines have 32 bits where levels need 4 or fewer. With L = 3 a cosine has steps of 2^-28, a sixteenth
    of the resolution of float32 just below 1; scores of the same step are ties. All other keys have 64 bits: a single
    long embedding makes the largest score, of which steps are a fraction, far larger than most.

    Args:
        n_rows: Number of queries in a block.
        n_items: Number of gallery items.
        n_levels: Largest level L.
        largest: Upper bound on the scores, up to rounding.
        device: Device of the scores.
        ties: See :class:`~hgld.evaluation.ranking.RankingConfig`.
    """

    def __init__(
        self, n_rows: int, n_items: int, n_levels: int, largest: float, device: torch.device, ties: Ties
    ) -> None:
        self._format = KeyFormat.of(n_levels, largest, ties)
        self._keys = torch.empty(n_rows, n_items, dtype=self._format.dtype, device=device)
        self._levels = torch.empty(n_rows, n_items, dtype=torch.uint8, device=device)

    def put(self, gallery: slice, scores: torch.Tensor, levels: torch.Tensor) -> None:
        """Store the scores, float32, and levels of a block of the gallery; scores are overwritten."""
        form = self._format
        if is_compiled(self._keys.device):
            keys = self._keys[: len(scores)].numpy()
            scale = np.float32(form.scale)
            _put(scores.numpy(), levels.contiguous().numpy(), scale, form.bits, form.flip, gallery.start, keys)
            return
        block = self._keys[: len(scores), gallery].copy_(scores.mul_(form.scale))
        block.bitwise_left_shift_(form.bits).bitwise_or_(levels ^ form.flip)

    def exclude(self, rows: torch.Tensor | slice, columns: torch.Tensor) -> None:
        """Rank some items last, with level 0."""
        self._keys[rows, columns] = self._format.last

    def ranked(self, n_rows: int) -> torch.Tensor:
        """Return the levels in ranked order, uint8, shape (n_rows, n_items); the next block overwrites them."""
        keys, levels = self._keys[:n_rows], self._levels[:n_rows]
        if keys.device.type != "cpu":
            return self._format.read_levels(keys.sort(dim=1).values, levels)
        shares = np.array_split(np.arange(n_rows), thread_count(keys.device))
        blocks = [slice(share[0], share[-1] + 1) for share in shares if len(share)]

        def order(rows: slice) -> None:
            if keys.dtype == torch.int32 and keys.shape[1] >= _RADIX_SORT_FROM and is_compiled(keys.device):
                _sort_levels(keys[rows].numpy(), self._format.bits, self._format.flip, levels[rows].numpy())
            else:
                keys[rows].numpy().sort(axis=1)  # NumPy releases the interpreter lock while it sorts
                self._format.read_levels(keys[rows], levels[rows])

        parallel_map(order, blocks, keys.device)
        return levels


class ScoreRows:
    """Float64 scores and levels of a block of queries, sorted without keys.

    Args:
        n_rows: Number of queries in a block.
        n_items: Number of gallery items.
        device: Device of the scores.
        ties: See :class:`~hgld.evaluation.ranking.RankingConfig`.
    """

    def __init__(self, n_rows: int, n_items: int, device: torch.device, ties: Ties) -> None:
        self._scores = torch.empty(n_rows, n_items, dtype=torch.float64, device=device)
        self._levels = torch.empty(n_rows, n_items, dtype=torch.uint8, device=device)
        self._higher_first = ties == "optimistic"

    def put(self, gallery: slice, scores: torch.Tensor, levels: torch.Tensor) -> None:
        """Store the scores and levels of a block of the gallery."""
        self._scores[: len(scores), gallery] = scores
        self._levels[: len(scores), gallery] = levels

    def exclude(self, rows: torch.Tensor | slice, columns: torch.Tensor) -> None:
        """Rank some items last, with level 0."""
        self._scores[rows, columns] = -torch.inf
        self._levels[rows, columns] = 0

    def ranked(self, n_rows: int) -> torch.Tensor:
        """Return the levels in ranked order, uint8, shape (n_rows, n_items)."""
        levels, order = self._levels[:n_rows].sort(dim=1, descending=self._higher_first, stable=True)
        order = self._scores[:n_rows].gather(1, order).sort(dim=1, descending=True, stable=True).indices
        return levels.gather(1, order)


def key_type(n_levels: int, largest: float) -> KeyType:
    """Return the type of keys: int32 for cosines with up to 15 levels, int64 otherwise."""
    return "int32" if n_levels < 16 and largest == 1 else "int64"


@compiled()
def _put(
    scores: npt.NDArray[np.float32],
    levels: npt.NDArray[np.uint8],
    scale: np.float32,
    n_bits: int,
    flip: int,
    start: int,
    keys: Any,
) -> None:
    """Write the keys of a block of the gallery.

    Args:
        scores: float32, shape (n_query, n_block).
        levels: uint8, the same shape.
        scale: Factor of scores.
        n_bits: Number of bits of a level.
        flip: Bits that are flipped in levels.
        start: First column to write.
        keys: int32 or int64, shape (n_query, n_gallery).
    """
    for row in range(len(scores)):
        block = keys[row, start : start + scores.shape[1]]
        for i in range(len(block)):
            block[i] = (keys.dtype.type(scores[row, i] * scale) << n_bits) | (levels[row, i] ^ flip)


@compiled()
def _sort_levels(keys: npt.NDArray[np.int32], n_bits: int, flip: int, levels: npt.NDArray[np.uint8]) -> None:
    """Write the levels of each row in the order of its keys, by a radix sort of two digits.

    NumPy's sort takes five times as long on processors of AMD that have AVX-512, and as long as this one on others.

    Args:
        keys: int32, shape (n_query, n_gallery).
        n_bits: Number of bits of a level.
        flip: Bits that are flipped in levels.
        levels: uint8, the same shape; overwritten.
    """
    half_sorted = np.empty(keys.shape[1], np.uint32)
    places = np.empty((2, 1 << 16), np.int32)  # of the next key with a digit
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

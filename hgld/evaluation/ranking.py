"""Rank a gallery for each query, keeping only the level of each item.

All metrics need the levels in ranked order and nothing else, so the level is part of the sort key. A block of queries
is compared with the gallery a few thousand items at a time; each score becomes the upper bits of an integer that
sorts as the scores do, best first, and the level its lowest bits. After one sort of these keys the levels are read
from them. Besides the embeddings that takes 5 bytes per query of a block and gallery item (9 with 64-bit keys).

Scores are inner products of L2-normalised embeddings (cosine similarity, paper section III-A).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.threads import parallel_map, thread_count
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.relevance_judgements import RelevanceJudgements
from hgld.progress import NoProgress, Progress
from hgld.ragged import RaggedIndices

Precision = Literal["float32", "tf32", "float64"]
Ties = Literal["pessimistic", "optimistic"]

_WIDTH = {"cpu": 2**11, "cuda": 2**17}  # gallery items scored at once
_MEMORY = {"cpu": 2**29, "cuda": 2**33}  # bytes of a block, unless its size is given
#: Upper bound on the bytes of a block per query and gallery item: keys (or scores) and levels, sorted in place by
#: NumPy; CUDA's sort needs two more copies, and positions.
_BYTES = {("cpu", "packed"): 9, ("cpu", "scores"): 42, ("cuda", "packed"): 48, ("cuda", "scores"): 64}
_MAX_QUERIES = 256  # of a block, so that several processes have blocks to share


@dataclass(frozen=True)
class RankingConfig:
    """Settings of ranking.

    Args:
        block_size: Number of queries ranked at once; by default as many as fit into half a gigabyte (on a GPU: 8),
            256 at most. It decides how much memory is used, and changes metrics only by the rounding of scores.
        device: ``cpu``, ``cuda`` or ``cuda:1``.
        precision: Precision of scores: ``float32``; ``tf32``, which on NVIDIA's tensor cores multiplies with 10 bits
            of mantissa and adds in float32 (exact products for float16 embeddings; the same as float32 on a CPU);
            ``float64``, which sorts the scores themselves, at several times the time and memory.
        ties: Which of two items with equal scores is ranked first: ``pessimistic``, the one of lower level, or
            ``optimistic``, the one of higher level. Metrics of any other order of ties lie between the two, except
            H-P@k, and H-AP and H-R@k where a finer level has less relevance than a coarser one (Eq. 20 allows it).
            Copies of one embedding need not have equal scores: their products may be rounded differently.
        normalize: Whether to scale embeddings to length 1; otherwise scores are plain inner products.

    Raises:
        ConfigurationError: A value is not one of these, or the device does not exist.
    """

    block_size: int | None = None
    device: str = "cpu"
    precision: Precision = "float32"
    ties: Ties = "pessimistic"
    normalize: bool = True

    def __post_init__(self) -> None:
        if self.block_size is not None and self.block_size < 1:
            raise ConfigurationError(f"the block size is {self.block_size}; expected 1 or more queries")
        if self.precision not in get_args(Precision):
            raise ConfigurationError(
                f"the precision is {self.precision!r}; expected one of {', '.join(get_args(Precision))}"
            )
        if self.ties not in get_args(Ties):
            raise ConfigurationError(f"ties are {self.ties!r}; expected one of {', '.join(get_args(Ties))}")
        try:
            device = torch.device(self.device)
        except RuntimeError as error:
            raise ConfigurationError(f"the device is {self.device!r}; expected cpu, cuda or cuda:N") from error
        if device.type not in _WIDTH:
            raise ConfigurationError(f"the device is {self.device!r}; expected cpu, cuda or cuda:N")
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise ConfigurationError(
                f"the device is {self.device!r}, but torch sees {torch.cuda.device_count()} CUDA devices; use cpu, "
                "or a machine and a build of torch with CUDA"
            )

    def queries_per_block(self, n_gallery: int) -> int:
        """Return the number of queries ranked at once against a gallery of this size."""
        kind, rows = torch.device(self.device).type, "scores" if self.precision == "float64" else "packed"
        return self.block_size or max(1, min(_MEMORY[kind] // (_BYTES[kind, rows] * max(n_gallery, 1)), _MAX_QUERIES))


@dataclass(frozen=True, eq=False)
class Ranked:
    """Rankings of a block of queries.

    Args:
        queries: Slice of the queries, with a start and a stop.
        levels: uint8, shape (n_query, n_gallery), on the device; level of the item at each rank, best first. Excluded
            items come last, with level 0.
        n_ranked: int64, shape (n_query,), on the device; number of items that are not excluded.
    """

    queries: slice
    levels: torch.Tensor
    n_ranked: torch.Tensor


@dataclass(frozen=True, eq=False)
class RankedItems:
    """Items of the gallery that are ranked.

    Args:
        gallery_mask: bool, shape (n_gallery,); False for items excluded from all rankings.
        excluded: Further items excluded from the ranking of each query, without repetition.
        n_ranked: int64, shape (n_query,); number of items that are ranked.
    """

    gallery_mask: npt.NDArray[np.bool_]
    excluded: RaggedIndices
    n_ranked: npt.NDArray[np.int64]


def ranked_items(
    judgements: RelevanceJudgements, excluded: RaggedIndices | None, gallery_mask: npt.NDArray[np.bool_] | None
) -> RankedItems:
    """Count the items of each ranking, see :func:`rank`; an item may be excluded in both ways.

    Raises:
        InputError: There is no query or no gallery item, the exclusions do not fit them, or a query has no items
            left.
    """
    n_queries, n_gallery = judgements.n_queries, judgements.n_gallery
    for count, name in ((n_queries, "queries"), (n_gallery, "gallery items")):
        if not count:
            raise InputError(f"there are no {name}; expected one row per image")
    mask = np.ones(n_gallery, bool) if gallery_mask is None else np.asarray(gallery_mask)
    if mask.shape != (n_gallery,) or mask.dtype != bool:
        raise InputError(
            f"`gallery_mask` has the shape {mask.shape} and the type {mask.dtype}; expected a bool for each of "
            f"{n_gallery:,} gallery items"
        )
    excluded = RaggedIndices.empty(n_queries) if excluded is None else excluded
    excluded.check(n_queries, n_gallery, "`excluded`")
    unmasked = mask[excluded.columns]
    excluded = RaggedIndices.from_pairs(excluded.rows()[unmasked], excluded.columns[unmasked], n_queries)
    n_ranked = mask.sum() - excluded.counts()
    if not n_ranked.all():
        raise InputError(
            f"no gallery item is left to rank for query {np.argmin(n_ranked)}: all {n_gallery:,} items are excluded"
        )
    return RankedItems(mask, excluded, n_ranked)


def rank(
    query_embeddings: torch.Tensor,
    gallery_embeddings: torch.Tensor,
    judgements: RelevanceJudgements,
    *,
    excluded: RaggedIndices | None = None,
    gallery_mask: npt.NDArray[np.bool_] | None = None,
    config: RankingConfig | None = None,
    part: tuple[int, int] = (0, 1),
    progress: Progress | None = None,
) -> Iterator[Ranked]:
    """Rank the gallery for every query, a block of queries at a time.

    Args:
        query_embeddings: float of any width, shape (n_query, d); may be memory-mapped, and is not modified.
        gallery_embeddings: The same for the gallery, shape (n_gallery, d).
        judgements: Levels of all pairs.
        excluded: Gallery items excluded from the ranking of each query: itself, copies of it, junk.
        gallery_mask: bool, shape (n_gallery,); True for the items that are ranked, False for those excluded from
            every ranking.
        config: Settings of ranking.
        part: (i, n) to rank only the i-th of every n blocks. Blocks do not depend on n, so neither do results.
        progress: Progress bar over the queries.

    Yields:
        Rankings of a block; the next block overwrites them.

    Raises:
        InputError: The shapes do not fit, or an embedding has a value that is not finite, or only zeros.
    """
    config, progress = config or RankingConfig(), progress or NoProgress()
    n_queries, n_gallery = judgements.n_queries, judgements.n_gallery
    items = ranked_items(judgements, excluded, gallery_mask)
    _check_embeddings(query_embeddings, gallery_embeddings)
    for embeddings, n_judged, role in (
        (query_embeddings, n_queries, "query"),
        (gallery_embeddings, n_gallery, "gallery"),
    ):
        if len(embeddings) != n_judged:
            raise InputError(f"there are {len(embeddings):,} {role} embeddings, but labels for {n_judged:,}")

    device = torch.device(config.device)
    judgements = judgements.to(device)
    masked = torch.from_numpy(np.flatnonzero(~items.gallery_mask)).to(device)
    scorer = Scorer(query_embeddings, gallery_embeddings, config)
    step = min(config.queries_per_block(n_gallery), n_queries)
    starts = range(0, n_queries, step)[part[0] :: part[1]]
    progress.start(sum(min(step, n_queries - start) for start in starts))
    rows: _KeyRows | _ScoreRows
    if config.precision == "float64":
        rows = _ScoreRows(step, n_gallery, device, config.ties)
    else:
        rows = _KeyRows(step, n_gallery, judgements.n_levels, scorer.largest, device, config.ties)
    for start in starts:
        queries = slice(start, min(start + step, n_queries))
        with float32_matmul(config.precision):
            parallel_map(partial(_fill, rows, scorer, judgements, queries), scorer.shares(n_gallery), device)
        rows.exclude(slice(None), masked)
        rows.exclude(*(torch.from_numpy(indexes).to(device) for indexes in items.excluded.block(queries)))
        levels = rows.ranked(queries.stop - start)
        yield Ranked(queries, levels, torch.from_numpy(items.n_ranked[queries]).to(device))
        progress.advance(queries.stop - start)


def _fill(
    rows: _KeyRows | _ScoreRows, scorer: Scorer, judgements: RelevanceJudgements, queries: slice, starts: range
) -> None:
    for gallery, scores in scorer.scores(queries, starts):
        rows.put(gallery, scores, judgements.levels(queries, gallery))


class Scorer:
    """Computes scores of queries with the gallery, a block of the gallery at a time.

    Args:
        queries: float, shape (n_query, d).
        gallery: float, shape (n_gallery, d).
        config: Device, precision and normalisation.

    Attributes:
        largest: Upper bound on the scores, up to rounding.

    Raises:
        InputError: The embeddings do not fit each other, or one has a value that is not finite, or only zeros.
    """

    def __init__(self, queries: torch.Tensor, gallery: torch.Tensor, config: RankingConfig) -> None:
        _check_embeddings(queries, gallery)
        self._device = torch.device(config.device)
        self._dtype = torch.float64 if config.precision == "float64" else torch.float32
        self._width = min(_WIDTH[self._device.type], len(gallery))
        query_lengths = self._lengths(queries, "query")
        gallery_lengths = query_lengths if queries is gallery else self._lengths(gallery, "gallery")
        self._queries, self._query_lengths = queries, query_lengths if config.normalize else None
        self._gallery, self._gallery_lengths = gallery, gallery_lengths if config.normalize else None
        self.largest = 1.0 if config.normalize else query_lengths.max().item() * gallery_lengths.max().item()
        if self._device.type == "cuda" and gallery.nbytes < torch.cuda.mem_get_info(self._device)[0] // 2:
            self._gallery = gallery.to(self._device)

    def shares(self, n_items: int) -> list[range]:
        """Return the starts of blocks of the gallery, divided among threads; blocks do not depend on threads."""
        n_threads, n_parts = thread_count(self._device), -(-n_items // self._width)
        bounds = (n_parts * thread // n_threads * self._width for thread in range(n_threads + 1))
        return [range(*pair, self._width) for pair in pairwise(bounds)]

    def scores(self, queries: slice, starts: range | None = None) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield blocks of the gallery and their scores, shape (n_query, n_block), which the next step overwrites.

        To be used within :func:`float32_matmul`, which holds for all threads.

        Args:
            queries: Slice of the queries.
            starts: One of the :meth:`shares`; all blocks by default.
        """
        own = self._queries[queries].to(self._device, self._dtype)
        if self._query_lengths is not None:
            own = own / self._query_lengths[queries, None]
        # Reused buffers: fresh pages cost more than the products.
        widened = torch.empty(self._width, own.shape[1], dtype=self._dtype, device=self._device)
        scores = torch.empty(len(own) * self._width, dtype=self._dtype, device=self._device)
        for start in range(0, len(self._gallery), self._width) if starts is None else starts:
            gallery = slice(start, min(start + self._width, len(self._gallery)))
            items = self._gallery[gallery]
            if items.dtype != self._dtype or items.device != widened.device:
                items = widened[: len(items)].copy_(items)
            block = scores[: len(own) * len(items)].view(len(own), len(items))
            torch.mm(own, items.T, out=block)
            if self._gallery_lengths is not None:
                block /= self._gallery_lengths[gallery]
            yield gallery, block

    def _lengths(self, embeddings: torch.Tensor, role: str) -> torch.Tensor:
        """Return L2 norms, after a check that they are finite and above 0: shape (n,), on the device."""
        lengths = torch.empty(len(embeddings), dtype=self._dtype)

        def measure(starts: range) -> None:
            for start in starts:
                block = slice(start, start + self._width)
                lengths[block] = torch.linalg.vector_norm(embeddings[block].to(self._dtype), dim=1)

        parallel_map(measure, self.shares(len(embeddings)), self._device)
        for invalid, reason in (
            (~lengths.isfinite(), "NaN, infinite or huge values"),
            (lengths == 0, "only zeros or tiny values"),
        ):
            if invalid.any():
                rows = invalid.nonzero()[:, 0].tolist()
                raise InputError(
                    f"{len(rows):,} of {len(embeddings):,} {role} embeddings have {reason}: rows "
                    f"{', '.join(map(str, rows[:10]))}{', …' if len(rows) > 10 else ''}; embed these images again or "
                    "leave them out"
                )
        return lengths.to(self._device)


class _KeyRows:
    """Float32 scores and levels of a block of queries as sortable keys: the score in fixed point, then the level.

    The keys of cosines have 32 bits where levels need 4 or fewer. With L = 3 a cosine has steps of 2^-28, a sixteenth
    of the resolution of float32 just below 1; scores of the same step are ties. All other keys have 64 bits: a single
    long embedding makes the largest score, of which steps are a fraction, far larger than most.
    """

    def __init__(
        self, n_rows: int, n_items: int, n_levels: int, largest: float, device: torch.device, ties: Ties
    ) -> None:
        self._bits = n_levels.bit_length()
        self._mask = (1 << self._bits) - 1
        self._flip = 0 if ties == "pessimistic" else self._mask  # keys ascend: lower levels first, or last
        dtype = torch.int32 if self._bits <= 4 and largest == 1 else torch.int64
        # Scores up to 2, since rounding may carry them above 1, take the bits beside sign and level.
        self._scale = (
            -(2.0 ** (torch.iinfo(dtype).bits - 2 - self._bits)) / largest
        )  # the best score has the smallest key
        self._last = torch.iinfo(dtype).max >> self._bits << self._bits | self._flip  # sorts last, with level 0
        self._keys = torch.empty(n_rows, n_items, dtype=dtype, device=device)
        self._levels = torch.empty(n_rows, n_items, dtype=torch.uint8, device=device)

    def put(self, gallery: slice, scores: torch.Tensor, levels: torch.Tensor) -> None:
        """Store the scores, float32, and levels of a block of the gallery; scores are overwritten."""
        keys = self._keys[: len(scores), gallery].copy_(scores.mul_(self._scale))
        keys.bitwise_left_shift_(self._bits).bitwise_or_(levels ^ self._flip)

    def exclude(self, rows: torch.Tensor | slice, columns: torch.Tensor) -> None:
        """Rank some items last, with level 0."""
        self._keys[rows, columns] = self._last

    def ranked(self, n_rows: int) -> torch.Tensor:
        """Return the levels in ranked order, uint8, shape (n_rows, n_items); the next block overwrites them."""
        keys, levels = self._keys[:n_rows], self._levels[:n_rows]
        if keys.device.type == "cpu":
            # NumPy releases the interpreter lock while it sorts.
            shares = np.array_split(keys.numpy(), thread_count(keys.device))
            parallel_map(lambda share: share.sort(axis=1), shares, keys.device)
        else:
            keys = keys.sort(dim=1).values
        return levels.copy_(keys).bitwise_and_(self._mask).bitwise_xor_(self._flip)


class _ScoreRows:
    """Float64 scores and levels of a block of queries, sorted without keys."""

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


@contextmanager
def float32_matmul(precision: Precision) -> Iterator[None]:
    """Set the precision of float32 matrix products in all threads, whatever is set elsewhere."""
    tf32 = precision == "tf32"
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):  # before torch 2.9
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
        return
    # The functions above fail once these attributes are set; the attributes work after calls of the functions, too.
    cuda, cpu = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    precisions = cuda.fp32_precision, cpu.fp32_precision
    cuda.fp32_precision, cpu.fp32_precision = "tf32" if tf32 else "ieee", "ieee"
    try:
        yield
    finally:
        cuda.fp32_precision, cpu.fp32_precision = precisions


def _check_embeddings(queries: torch.Tensor, gallery: torch.Tensor) -> None:
    for embeddings, role in ((queries, "query"), (gallery, "gallery")):
        if embeddings.ndim != 2 or not embeddings.is_floating_point():
            raise InputError(
                f"the {role} embeddings have the shape {tuple(embeddings.shape)} and the type {embeddings.dtype}; "
                "expected floating point numbers of the shape (n, d)"
            )
        if not len(embeddings):
            raise InputError(f"there are no {role} embeddings; expected one row per image")
    if queries.shape[1] != gallery.shape[1]:
        raise InputError(
            f"the query embeddings have {queries.shape[1]} dimensions and the gallery embeddings {gallery.shape[1]}; "
            "embed both with the same model"
        )

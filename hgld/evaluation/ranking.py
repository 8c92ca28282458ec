"""Rank a gallery for each query, and keep of every item only its level.

All metrics need the levels in ranked order and nothing else, so the level rides in the key that is sorted. A block of
queries is compared with the gallery a few thousand items at a time; each score becomes the upper bits of an integer
that sorts as the scores do, best first, and the level its lowest bits. One sort of these keys, and the levels are
read off. Besides the embeddings that takes 5 bytes per query of a block and gallery item (9 where keys are longer).

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

_WIDTH = {"cpu": 2**11, "cuda": 2**17}  # gallery items scored at a time
_MEMORY = {"cpu": 2**29, "cuda": 2**33}  # bytes for a block, unless its size is given
#: Bytes of a block per query and gallery item, at most: keys (or scores) and levels, sorted in place by NumPy; CUDA's
#: sort takes as much again twice, and positions.
_BYTES = {("cpu", "packed"): 9, ("cpu", "scores"): 42, ("cuda", "packed"): 48, ("cuda", "scores"): 64}
_MOST_QUERIES = 256  # in a block, so that there are blocks for several processes


@dataclass(frozen=True)
class RankingConfig:
    """How to rank.

    Args:
        block_size: queries ranked at a time; as many as fit into half a gigabyte (on a GPU: 8), 256 at most, unless
            given. It decides how much memory is used, and the metrics only as far as it changes the rounding of
            scores.
        device: ``cpu``, ``cuda`` or ``cuda:1``.
        precision: of scores. ``float32``; ``tf32``, which on NVIDIA's tensor cores multiplies with 10 bits of
            mantissa and adds in float32 (exact products for float16 embeddings; the same as float32 on a CPU);
            ``float64``, which sorts the scores themselves, at several times the time and memory.
        ties: which of two items with equal scores stands first: ``pessimistic``, the one of lower level, or
            ``optimistic``, the one of higher level. Metrics of any other order of ties lie between the two, except
            H-P@k, and H-AP and H-R@k where a finer level has less relevance than a coarser one (Eq. 20 allows it).
            Copies of one embedding need not have equal scores: their products may be rounded differently.
        normalize: scale embeddings to length 1. Without it scores are plain inner products.
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
        """How many queries are ranked at a time against a gallery of that size."""
        kind, rows = torch.device(self.device).type, "scores" if self.precision == "float64" else "packed"
        return self.block_size or max(
            1, min(_MEMORY[kind] // (_BYTES[kind, rows] * max(n_gallery, 1)), _MOST_QUERIES)
        )


@dataclass(frozen=True, eq=False)
class Ranked:
    """The rankings of a few queries.

    Args:
        queries: which ones; a slice with a start and a stop.
        levels: uint8, shape (n_query, n_gallery), on the device; the level of the item at each rank, best first.
            Items left out stand at the end with level 0.
        n_ranked: int64, shape (n_query,), on the device; how many items were not left out.
    """

    queries: slice
    levels: torch.Tensor
    n_ranked: torch.Tensor


@dataclass(frozen=True, eq=False)
class RankedItems:
    """What of the gallery is ranked.

    Args:
        gallery_mask: bool, shape (n_gallery,); False for the items that are in no ranking.
        excluded: those of the others that are left out of the ranking of a query, each once.
        n_ranked: int64, shape (n_query,); how many are left.
    """

    gallery_mask: npt.NDArray[np.bool_]
    excluded: RaggedIndices
    n_ranked: npt.NDArray[np.int64]


def ranked_items(
    judgements: RelevanceJudgements, excluded: RaggedIndices | None, gallery_mask: npt.NDArray[np.bool_] | None
) -> RankedItems:
    """Count the items of each ranking, see :func:`rank`. An item may be left out in several ways.

    Raises:
        InputError: there is no query or no gallery, what is to be left out does not fit them, or nothing is left.
    """
    n_queries, n_gallery = judgements.n_queries, judgements.n_gallery
    for count, what in ((n_queries, "queries"), (n_gallery, "gallery items")):
        if not count:
            raise InputError(f"there are no {what}; expected one row per image")
    mask = np.ones(n_gallery, bool) if gallery_mask is None else np.asarray(gallery_mask)
    if mask.shape != (n_gallery,) or mask.dtype != bool:
        raise InputError(
            f"`gallery_mask` has the shape {mask.shape} and the type {mask.dtype}; expected a bool for each of "
            f"{n_gallery:,} gallery items"
        )
    gone = RaggedIndices.from_lists([[]] * n_queries) if excluded is None else excluded
    gone.check(n_queries, n_gallery, "the list of items to leave out")
    here = mask[gone.columns]
    gone = RaggedIndices.from_pairs(gone.rows()[here], gone.columns[here], n_queries)
    n_ranked = mask.sum() - np.diff(gone.offsets)
    if not n_ranked.all():
        raise InputError(
            f"nothing of the gallery is left to rank for query {np.argmin(n_ranked)}: all {n_gallery:,} items are to "
            "be left out"
        )
    return RankedItems(mask, gone, n_ranked)


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
        query_embeddings: float of any width, shape (n_query, d); may be memory-mapped, and is not changed.
        gallery_embeddings: likewise, shape (n_gallery, d).
        judgements: the levels of all pairs.
        excluded: for each query the gallery items to leave out of its ranking: itself, copies of it, junk.
        gallery_mask: bool, shape (n_gallery,); False for the items that are excluded from every ranking.
        config: how.
        part: (i, n) to rank only the i-th of every n blocks. Blocks do not depend on n, so neither do results.
        progress: told of the queries.

    Raises:
        InputError: the shapes do not fit, or an embedding has a value that is not finite, or only zeros.
    """
    config, progress = config or RankingConfig(), progress or NoProgress()
    n_queries, n_gallery = judgements.n_queries, judgements.n_gallery
    items = ranked_items(judgements, excluded, gallery_mask)
    _check_embeddings(query_embeddings, gallery_embeddings)
    for embeddings, n_judged, what in (
        (query_embeddings, n_queries, "query"),
        (gallery_embeddings, n_gallery, "gallery"),
    ):
        if len(embeddings) != n_judged:
            raise InputError(f"there are {len(embeddings):,} {what} embeddings, but labels for {n_judged:,}")

    device = torch.device(config.device)
    judgements = judgements.to(device)
    never = torch.from_numpy(np.flatnonzero(~items.gallery_mask)).to(device)
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
        rows.exclude(slice(None), never)
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
    """Scores of queries with the gallery, a part of the gallery at a time.

    Raises:
        InputError: the embeddings do not fit each other, or one has a value that is not finite, or only zeros.
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
        #: No score is larger, but for rounding.
        self.largest = 1.0 if config.normalize else query_lengths.max().item() * gallery_lengths.max().item()
        if self._device.type == "cuda" and gallery.nbytes < torch.cuda.mem_get_info(self._device)[0] // 2:
            self._gallery = gallery.to(self._device)

    def shares(self, n_items: int) -> list[range]:
        """Where the parts of so many items begin, a share of them for each thread. Parts do not depend on threads."""
        n_threads, n_parts = thread_count(self._device), -(-n_items // self._width)
        bounds = (n_parts * thread // n_threads * self._width for thread in range(n_threads + 1))
        return [range(*pair, self._width) for pair in pairwise(bounds)]

    def scores(self, queries: slice, starts: range | None = None) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield parts of the gallery and the scores, shape (n_query, n_part), which the next step overwrites.

        To be used within :func:`float32_matmul`, which holds for all threads. ``starts`` is one of the
        :meth:`shares`; all parts unless given.
        """
        own = self._queries[queries].to(self._device, self._dtype)
        if self._query_lengths is not None:
            own = own / self._query_lengths[queries, None]
        # Memory that is used again and again: fresh pages cost more than the products.
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

    def _lengths(self, embeddings: torch.Tensor, what: str) -> torch.Tensor:
        """L2 norms, after a check that they are numbers above 0: shape (n,), on the device."""
        lengths = torch.empty(len(embeddings), dtype=self._dtype)

        def measure(starts: range) -> None:
            for start in starts:
                block = slice(start, start + self._width)
                lengths[block] = torch.linalg.vector_norm(embeddings[block].to(self._dtype), dim=1)

        parallel_map(measure, self.shares(len(embeddings)), self._device)
        for wrong, found in (
            (~lengths.isfinite(), "NaN, infinite or huge values"),
            (lengths == 0, "only zeros or tiny values"),
        ):
            if wrong.any():
                rows = wrong.nonzero()[:, 0].tolist()
                raise InputError(
                    f"{len(rows):,} of {len(embeddings):,} {what} embeddings have {found}: rows "
                    f"{', '.join(map(str, rows[:10]))}{', …' if len(rows) > 10 else ''}; embed these images again or "
                    "leave them out"
                )
        return lengths.to(self._device)


class _KeyRows:
    """Float32 scores and levels of a few queries as sortable keys: the score in fixed point, then the level.

    The keys of cosines have 32 bits where levels need 4 or fewer. With L = 3 a cosine has steps of 2^-28, a sixteenth
    of what float32 tells apart just below 1; equal steps are ties. All other keys have 64 bits: one long embedding
    makes the largest score, of which steps are a part, far larger than most.
    """

    def __init__(
        self, n_rows: int, n_items: int, n_levels: int, largest: float, device: torch.device, ties: Ties
    ) -> None:
        self._bits = n_levels.bit_length()
        self._mask = (1 << self._bits) - 1
        self._flip = 0 if ties == "pessimistic" else self._mask  # keys ascend: the lower level first, or last
        dtype = torch.int32 if self._bits <= 4 and largest == 1 else torch.int64
        # Scores up to 2, for rounding may carry them above 1, take what the sign and the level leave.
        self._scale = -(2.0 ** (torch.iinfo(dtype).bits - 2 - self._bits)) / largest  # the best is the least
        self._last = torch.iinfo(dtype).max >> self._bits << self._bits | self._flip  # after all others, of level 0
        self._keys = torch.empty(n_rows, n_items, dtype=dtype, device=device)
        self._levels = torch.empty(n_rows, n_items, dtype=torch.uint8, device=device)

    def put(self, gallery: slice, scores: torch.Tensor, levels: torch.Tensor) -> None:
        """Take the scores, float32, and levels of a part of the gallery; scores are overwritten."""
        keys = self._keys[: len(scores), gallery].copy_(scores.mul_(self._scale))
        keys.bitwise_left_shift_(self._bits).bitwise_or_(levels ^ self._flip)

    def exclude(self, rows: torch.Tensor | slice, columns: torch.Tensor) -> None:
        """Put some items behind all others."""
        self._keys[rows, columns] = self._last

    def ranked(self, n_rows: int) -> torch.Tensor:
        """The levels in ranked order, uint8, shape (n_rows, n_items); the next block overwrites them."""
        keys, levels = self._keys[:n_rows], self._levels[:n_rows]
        if keys.device.type == "cpu":
            # NumPy sorts without the interpreter's lock.
            shares = np.array_split(keys.numpy(), thread_count(keys.device))
            parallel_map(lambda share: share.sort(axis=1), shares, keys.device)
        else:
            keys = keys.sort(dim=1).values
        return levels.copy_(keys).bitwise_and_(self._mask).bitwise_xor_(self._flip)


class _ScoreRows:
    """Float64 scores and levels of a few queries, sorted as they are."""

    def __init__(self, n_rows: int, n_items: int, device: torch.device, ties: Ties) -> None:
        self._scores = torch.empty(n_rows, n_items, dtype=torch.float64, device=device)
        self._levels = torch.empty(n_rows, n_items, dtype=torch.uint8, device=device)
        self._higher_first = ties == "optimistic"

    def put(self, gallery: slice, scores: torch.Tensor, levels: torch.Tensor) -> None:
        """Take the scores and levels of a part of the gallery."""
        self._scores[: len(scores), gallery] = scores
        self._levels[: len(scores), gallery] = levels

    def exclude(self, rows: torch.Tensor | slice, columns: torch.Tensor) -> None:
        """Put some items behind all others."""
        self._scores[rows, columns] = -torch.inf
        self._levels[rows, columns] = 0

    def ranked(self, n_rows: int) -> torch.Tensor:
        """The levels in ranked order, uint8, shape (n_rows, n_items)."""
        levels, order = self._levels[:n_rows].sort(dim=1, descending=self._higher_first, stable=True)
        order = self._scores[:n_rows].gather(1, order).sort(dim=1, descending=True, stable=True).indices
        return levels.gather(1, order)


@contextmanager
def float32_matmul(precision: Precision) -> Iterator[None]:
    """Multiply float32 matrices with this precision, whatever is set elsewhere; for all threads."""
    tf32 = precision == "tf32"
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):  # before torch 2.9
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
        return
    # The functions above fail where these have been set; these work where the functions have been called.
    cuda, cpu = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    precisions = cuda.fp32_precision, cpu.fp32_precision
    cuda.fp32_precision, cpu.fp32_precision = "tf32" if tf32 else "ieee", "ieee"
    try:
        yield
    finally:
        cuda.fp32_precision, cpu.fp32_precision = precisions


def _check_embeddings(queries: torch.Tensor, gallery: torch.Tensor) -> None:
    for embeddings, what in ((queries, "query"), (gallery, "gallery")):
        if embeddings.ndim != 2 or not embeddings.is_floating_point():
            raise InputError(
                f"the {what} embeddings have the shape {tuple(embeddings.shape)} and the type {embeddings.dtype}; "
                "expected floating point numbers of the shape (n, d)"
            )
        if not len(embeddings):
            raise InputError(f"there are no {what} embeddings; expected one row per image")
    if queries.shape[1] != gallery.shape[1]:
        raise InputError(
            f"the query embeddings have {queries.shape[1]} dimensions and the gallery embeddings {gallery.shape[1]}; "
            "embed both with the same model"
        )

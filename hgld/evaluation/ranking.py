"""Rank a gallery for each query, keeping only the level of each item.

All metrics need the levels in ranked order and nothing else, so the level is part of the sort key. A block of queries
is compared with the gallery a few thousand items at a time; each score becomes the upper bits of an integer that
sorts as the scores do, best first, and the level its lowest bits (:mod:`hgld.evaluation.ranking_keys`). After one
sort of these keys the levels are read from them. Besides the embeddings that takes 5 bytes per query of a block and
gallery item (9 with 64-bit keys). Where only the first ranks are needed, nothing else is sorted.

Scores are inner products of L2-normalised embeddings (cosine similarity, paper section III-A).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, get_args

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.compiled import is_compiled
from hgld.compute.nearest_neighbours import Floats, Integers, RunningTopK, joined_top_k
from hgld.compute.scoring import Scorer, ScoringConfig, check_embeddings, float32_matmul
from hgld.compute.threads import parallel_map
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.ranking_keys import (
    ExcludedPairs,
    FirstKeys,
    KeyFormat,
    KeyRows,
    NeededRanks,
    ScoreRows,
    Ties,
    count_positives,
    key_type,
)
from hgld.evaluation.relevance_judgements import RelevanceJudgements
from hgld.progress import NoProgress, Progress
from hgld.ragged import RaggedIndices

#: A ranking is sorted as a whole where more than one of this many items is needed.
_LEAST_SHARE = 8


@dataclass(frozen=True)
class RankingConfig(ScoringConfig):
    """Settings of ranking.

    Args:
        block_size: See :class:`~hgld.compute.scoring.ScoringConfig`, as for the next three.
        device: ``cpu``, ``cuda`` or ``cuda:1``.
        precision: Precision of scores.
        normalize: Whether to scale embeddings to length 1.
        ties: Which of two items with equal scores is ranked first: ``pessimistic``, the one of lower level, or
            ``optimistic``, the one of higher level. Metrics of any other order of ties lie between the two, except
            H-P@k, and H-AP and H-R@k where a finer level has less relevance than a coarser one (Eq. 20 allows it).
            Copies of one embedding need not have equal scores: their products may be rounded differently.

    Raises:
        ConfigurationError: A value is not one of these, or the device does not exist.
    """

    allows_zeros: ClassVar[bool] = True

    ties: Ties = "pessimistic"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ties not in get_args(Ties):
            raise ConfigurationError(f"ties are {self.ties!r}; expected one of {', '.join(get_args(Ties))}")


@dataclass(frozen=True, eq=False)
class Ranked:
    """Rankings of a block of queries.

    Args:
        queries: Slice of the queries, with a start and a stop.
        levels: uint8, shape (n_query, n_gallery), on the device; level of the item at each rank, best first. Excluded
            items come last, with level 0. Only the first ranks, where no more are needed.
        n_ranked: int64, shape (n_query,), on the device; number of items that are not excluded.
        neighbours: Scores and positions of the first items, as
            :func:`hgld.compute.nearest_neighbours.nearest_neighbours` returns them; None unless asked for.
        positives: int64, shape (n_query, L); number of items of level 1, ..., L or finer in the whole ranking, where
            ``levels`` are those of the first ranks only; None otherwise.
    """

    queries: slice
    levels: torch.Tensor
    n_ranked: torch.Tensor
    neighbours: tuple[Floats, Integers] | None = None
    positives: torch.Tensor | None = None


def ranked_items(
    judgements: RelevanceJudgements, excluded: RaggedIndices | None, gallery_mask: npt.NDArray[np.bool_] | None
) -> tuple[npt.NDArray[np.bool_], RaggedIndices, npt.NDArray[np.int64]]:
    """Count the items of each ranking, see :func:`rank`; an item may be excluded in both ways.

    Returns:
        Items that are not excluded from all rankings, bool, shape (n_gallery,); further items excluded from the
        ranking of each query, without repetition; and the number of items that are ranked, shape (n_query,).

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
    return mask, excluded, n_ranked


def rank(
    query_embeddings: torch.Tensor,
    gallery_embeddings: torch.Tensor,
    judgements: RelevanceJudgements,
    *,
    excluded: RaggedIndices | None = None,
    gallery_mask: npt.NDArray[np.bool_] | None = None,
    config: RankingConfig | None = None,
    n_neighbours: int = 0,
    needed: NeededRanks | None = None,
    part: tuple[int, int] = (0, 1),
    progress: Progress | None = None,
) -> Iterator[Ranked]:
    """Rank the gallery for every query, a block of queries at a time.

    An embedding of zeros, which has no direction, has a score of 0 with all others, so that ties decide.

    Neighbours are kept from the same scores. They do not depend on levels: of equal scores, that of the first item of
    the gallery comes first.

    Args:
        query_embeddings: float of any width, shape (n_query, d); may be memory-mapped, and is not modified.
        gallery_embeddings: The same for the gallery, shape (n_gallery, d).
        judgements: Levels of all pairs.
        excluded: Gallery items excluded from the ranking of each query: itself, copies of it, junk.
        gallery_mask: bool, shape (n_gallery,); True for the items that are ranked, False for those excluded from
            every ranking.
        config: Settings of ranking.
        n_neighbours: Number of nearest items to keep for each query; may exceed the gallery.
        needed: Ranks that are needed, all of them by default; further ones may be left out of ``levels`` where that
            is faster, and the first have the same levels.
        part: (i, n) to rank only the i-th of every n blocks. Blocks do not depend on n, so neither do results.
        progress: Progress bar over the queries.

    Yields:
        Rankings of a block; the next block overwrites them.

    Raises:
        InputError: The shapes do not fit, or an embedding has a value that is not finite.
    """
    config, progress = config or RankingConfig(), progress or NoProgress()
    n_queries, n_gallery = judgements.n_queries, judgements.n_gallery
    mask, excluded, n_ranked = ranked_items(judgements, excluded, gallery_mask)
    check_embeddings(query_embeddings, gallery_embeddings)
    for embeddings, n_judged, role in (
        (query_embeddings, n_queries, "query"),
        (gallery_embeddings, n_gallery, "gallery"),
    ):
        if len(embeddings) != n_judged:
            raise InputError(f"there are {len(embeddings):,} {role} embeddings, but labels for {n_judged:,}")

    device = torch.device(config.device)
    judgements = judgements.to(device)
    masked = np.flatnonzero(~mask)
    scorer = Scorer(query_embeddings, gallery_embeddings, config)
    shares = list(enumerate(scorer.shares(n_gallery)))
    step = min(config.queries_per_block(n_gallery, key_type(judgements.n_levels, scorer.largest)), n_queries)
    starts = range(0, n_queries, step)[part[0] :: part[1]]
    progress.start(sum(min(step, n_queries - start) for start in starts))
    if config.precision == "float64" or not is_compiled(device):
        needed = None
    key_format = KeyFormat.of(judgements.n_levels, scorer.largest, config.ties)
    whole: KeyRows | ScoreRows | None = None  # in which whole rankings are sorted
    for start in starts:
        queries = slice(start, min(start + step, n_queries))
        n_rows, pairs = queries.stop - start, ExcludedPairs(masked, excluded.block(queries))
        nearest = [RunningTopK(n_rows, n_neighbours, scorer.dtype, device) for _ in shares] if n_neighbours else None
        rows: KeyRows | ScoreRows | FirstKeys | None = None
        positives = None
        if needed is not None:
            positives = count_positives(judgements, queries, pairs)
            n_first = needed.count(positives)
            # The first keys are few, and take less memory than all keys of a block.
            if n_first * _LEAST_SHARE <= n_gallery and len(shares) * (2 * n_first + 32) <= n_gallery:
                rows = FirstKeys(n_rows, n_first, len(shares), key_format)
        if rows is None:
            if whole is None and config.precision == "float64":
                whole = ScoreRows(step, n_gallery, device, config.ties)
            elif whole is None:
                whole = KeyRows(step, n_gallery, key_format, device)
            rows, positives = whole, None
        with float32_matmul(config.precision):
            parallel_map(partial(_fill, rows, scorer, judgements, queries, pairs, nearest), shares, device)
        found = None if nearest is None else joined_top_k(nearest)
        n_left = torch.from_numpy(n_ranked[queries]).to(device)
        yield Ranked(queries, rows.ranked(n_rows), n_left, found, positives)
        progress.advance(n_rows)


def _fill(
    rows: KeyRows | ScoreRows | FirstKeys,
    scorer: Scorer,
    judgements: RelevanceJudgements,
    queries: slice,
    excluded: ExcludedPairs,
    nearest: Sequence[RunningTopK] | None,
    share: tuple[int, range],
) -> None:
    """Store the scores and levels of a share of the gallery."""
    part, starts = share
    for gallery, scores in scorer.scores(queries, starts):
        if nearest is not None:
            excluded.fill(gallery, scores, -torch.inf)
            nearest[part].add(scores, gallery.start)
        rows.put(part, gallery, scores, judgements.levels(queries, gallery), excluded)

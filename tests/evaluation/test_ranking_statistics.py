"""Compiled sums are those of torch, and the first ranks alone give the levels and metrics of whole rankings."""

from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from hgld.compute import compiled, scoring
from hgld.compute.compiled import is_compiled
from hgld.compute.scoring import Distance
from hgld.evaluation import evaluate, ranking
from hgld.evaluation import ranking_statistics as module
from hgld.evaluation.evaluate import evaluate_retrieval
from hgld.evaluation.metrics import Metric, NeededRanks, needed_ranks
from hgld.evaluation.ranking import Ranked, RankingConfig
from hgld.evaluation.ranking_statistics import ranking_statistics
from hgld.ragged import RaggedIndices
from tests.evaluation.helpers import Given, rank

FIELDS = (
    *("positives", "precision", "precision_at_r", "discount", "ideal_discount", "overlap"),
    *("hits_at", "precision_at", "discount_at", "ideal_discount_at", "level_at"),
)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[int, torch.Tensor]:
    """A number of levels and a few rankings, some with few levels, few positives, none, or nothing else."""
    n_levels = draw(st.sampled_from([1, 2, 3, 9]))
    n_rows, n_items = draw(st.integers(0, 4)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    share = rng.choice([0.0, 0.1, 0.5, 1.0], size=(n_rows, 1))
    lowest = rng.integers(1, n_levels, endpoint=True, size=(n_rows, 1))
    levels = np.where(rng.random((n_rows, n_items)) < share, rng.integers(lowest, n_levels + 1, (n_rows, n_items)), 0)
    perfect = rng.random(n_rows) < 0.2
    levels[perfect] = np.sort(levels[perfect], axis=1)[:, ::-1]
    return n_levels, torch.from_numpy(levels.astype(np.uint8))


@given(blocks(), st.lists(st.integers(1, 45), max_size=4), st.sampled_from([1, 3, 8, 512]))
@example((2, torch.zeros(0, 5, dtype=torch.uint8)), [1], 512)
@example((2, torch.zeros(3, 5, dtype=torch.uint8)), [], 512)
@example((254, torch.tensor([[254, 0, 3]], dtype=torch.uint8)), [2], 512)
def test_compiled_sums_are_those_of_torch(block: tuple[int, torch.Tensor], cutoffs: list[int], width: int) -> None:
    n_levels, levels = block
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "COMPILED_WIDTH", width)
        patch.setattr(module, "_BLOCK", {"cpu": width * n_levels})
        patch.setattr(module, "is_compiled", lambda device: True)
        ours = ranking_statistics(levels, n_levels, cutoffs)
        patch.setattr(module, "is_compiled", lambda device: False)
        theirs = ranking_statistics(levels, n_levels, cutoffs)
    for name in FIELDS:
        value, expected = getattr(ours, name), getattr(theirs, name)
        assert value.dtype == expected.dtype
        torch.testing.assert_close(value, expected, rtol=1e-13, atol=0.0, msg=name)


@pytest.mark.skipif(not compiled.is_compiled(), reason="compiled loops are switched off, or numba is missing")
def test_sums_of_a_long_ranking_do_not_depend_on_threads() -> None:
    rng = np.random.default_rng(0)
    levels = torch.from_numpy(rng.choice(4, p=[0.6, 0.3, 0.09, 0.01], size=(5, 3_000)).astype(np.uint8))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = ranking_statistics(levels, 3, [1, 2_000])
        torch.set_num_threads(3)
        together = ranking_statistics(levels, 3, [1, 2_000])
    finally:
        torch.set_num_threads(before)
    for name in FIELDS:
        assert torch.equal(getattr(alone, name), getattr(together, name)), name


COMPILED = pytest.mark.skipif(not is_compiled(), reason="compiled loops are switched off, or numba is missing")
FIRST = ["mAP@R", "mAP@R_l1", "R@1", "mAP@5", "H-P@3", "H-R@5", "NDCG@5", "HP@5", "AHP@5", "hF", "mistake_severity"]


def ranked_blocks(*arguments: Any, **settings: Any) -> list[Ranked]:
    """Rankings, copied: the next block overwrites them."""
    return [
        Ranked(block.queries, block.levels.clone(), block.n_ranked, block.positives)
        for block in rank(*arguments, **settings)
    ]


@COMPILED
@given(
    st.integers(0, 2**32),
    st.sampled_from([1, 3, 20]),
    st.sampled_from(get_args(Distance)[:3]),
    st.sampled_from([1, 3]),
)
def test_first_ranks_are_those_of_whole_rankings(
    seed: int, n_levels: int, distance: Distance, n_threads: int
) -> None:
    """Coarse scores, so that most of them tie; masked items, excluded pairs, keys of 32 and of 64 bits."""
    rng = np.random.default_rng(seed)
    n_queries, n_gallery, n_first = 5, int(rng.integers(1, 400)), int(rng.integers(1, 6))
    queries, gallery = (
        torch.from_numpy(rng.integers(-2, 3, (n, 3)).astype(np.float32) + 0.125) for n in (n_queries, n_gallery)
    )
    relevances = rng.integers(0, n_levels, (n_queries, n_gallery), endpoint=True)
    relevances[0] = np.arange(n_gallery) % (n_levels + 1)
    relevances[0, 0] = n_levels
    judgements = Given(relevances, n_levels)
    mask = rng.random(n_gallery) < 0.8
    mask[0] = True
    drawn = [rng.choice(n_gallery, min(n_gallery, 2), replace=False).tolist() for _ in range(n_queries)]
    excluded = RaggedIndices.from_lists([[item for item in row if item] for row in drawn])
    settings: dict[str, Any] = {"excluded": excluded, "gallery_mask": mask}
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(scoring._WIDTH, "cpu", 64)
        patch.setattr(ranking, "_LEAST_ITEMS_PER_RANK", 1)
        torch.set_num_threads(n_threads)
        try:
            for ties in ("pessimistic", "optimistic"):
                settings["config"] = RankingConfig(block_size=2, distance=distance, ties=ties)
                whole = ranked_blocks(queries, gallery, judgements, **settings)
                short = ranked_blocks(queries, gallery, judgements, needed=NeededRanks(n_first), **settings)
                for expected, ours in zip(whole, short, strict=True):
                    assert torch.equal(ours.levels[:, :n_first], expected.levels[:, :n_first])
                    if ours.positives is not None:
                        assert ours.levels.shape[1] == n_first
                        at_least = torch.arange(1, judgements.n_levels + 1)[:, None]
                        assert torch.equal(ours.positives, (expected.levels[:, None] >= at_least).sum(2))
        finally:
            torch.set_num_threads(before)


@pytest.mark.parametrize("leave_one_out", [True, False])
def test_metrics_are_the_same_to_the_last_bit(monkeypatch: pytest.MonkeyPatch, leave_one_out: bool) -> None:
    rng = np.random.default_rng(1)
    embeddings = rng.normal(size=(400, 8)).astype(np.float32)
    embeddings[100:200] = embeddings[:100]  # ties
    finest = rng.integers(0, 80, 400)
    labels = np.stack([finest, finest // 10, finest // 40], axis=1)
    arrays = (embeddings, labels) if leave_one_out else (embeddings[:50], labels[:50], embeddings[50:], labels[50:])
    seen: list[bool] = []

    def spy(*arguments: Any, positives: Any = None, **settings: Any) -> Any:
        seen.append(positives is not None)
        return ranking_statistics(*arguments, positives=positives, **settings)

    monkeypatch.setattr(evaluate, "ranking_statistics", spy)
    metrics = [name for name in FIRST if name != "mAP@R_l1"]
    ours = evaluate_retrieval(*arrays, metrics=metrics)
    assert any(seen) == is_compiled()
    monkeypatch.setattr(evaluate, "needed_ranks", lambda metrics: None)
    theirs = evaluate_retrieval(*arrays, metrics=metrics)
    pd.testing.assert_frame_equal(ours.per_query, theirs.per_query, check_exact=True)


def test_needed_ranks_are_those_of_the_metrics() -> None:
    def needed(*names: str) -> NeededRanks | None:
        return needed_ranks([Metric.from_name(name, 3) for name in names])

    assert needed("R@1", "mAP@100", "hF") == NeededRanks(100)
    assert needed("mAP@R", "R@1") == NeededRanks(1, (3,))
    assert needed("mAP@R_l2", "mAP@R") == NeededRanks(0, (2, 3))
    assert needed(*FIRST) == NeededRanks(5, (1, 3))
    for name in ("AP", "H-AP", "NDCG", "ASI", "AHP", "wAP"):
        assert needed("R@1", name) is None, name
    positives = torch.tensor([[9, 4, 0], [7, 2, 1]])
    assert NeededRanks(0, (3,)).count(positives) == 1
    assert NeededRanks(3, (2,)).count(positives) == 4
    assert NeededRanks(5, (2,)).count(positives) == 5
    assert NeededRanks(0, (3,)).count(positives * 0) == 1


def test_statistics_of_the_first_ranks_are_nan_where_more_are_needed() -> None:
    levels = torch.tensor([[2, 1, 0, 2, 0, 1], [0, 2, 0, 0, 0, 0]], dtype=torch.uint8)
    whole = ranking_statistics(levels, 2, [1, 3])
    numbers: dict[str, Any] = {"positives": whole.positives.long(), "n_ranked": whole.n_ranked.long()}
    first = ranking_statistics(levels[:, :3], 2, [1, 3], **numbers)
    for name in ("positives", "n_ranked", "hits_at", "precision_at", "discount_at", "ideal_discount_at", "level_at"):
        assert torch.equal(getattr(first, name), getattr(whole, name)), name
    expected = whole.precision_at_r.clone()
    expected[0, 0] = torch.nan  # R is 4
    torch.testing.assert_close(first.precision_at_r, expected, rtol=0, atol=0, equal_nan=True)
    assert first.precision.isnan().all()

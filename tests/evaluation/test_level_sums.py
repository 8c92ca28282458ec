"""The compiled sums over ranked levels agree with the operations of torch, their oracle."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from hgld.compute import compiled
from hgld.evaluation import ranking_statistics as module
from hgld.evaluation.ranking_statistics import RankTables, ranking_statistics

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
    tables = RankTables(50)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_COMPILED_WIDTH", width)
        patch.setattr(module, "is_compiled", lambda device: True)
        ours = ranking_statistics(levels, n_levels, cutoffs, tables=tables)
        patch.setattr(module, "is_compiled", lambda device: False)
        theirs = ranking_statistics(levels, n_levels, cutoffs, tables=tables)
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

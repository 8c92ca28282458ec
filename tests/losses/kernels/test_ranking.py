"""Order and counts of a ranking."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from hgld.losses.kernels import ranking as module
from hgld.losses.kernels.ranking import Ranking, heaviside_sums
from tests.losses.kernels.test_step_sums import random_queries


@given(
    seed=st.integers(0, 10**6),
    n_query=st.integers(0, 4),
    n_items=st.integers(1, 30),
    n_levels=st.integers(1, 4),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
@example(seed=0, n_query=1, n_items=1, n_levels=1, dtype=torch.float32)
def test_compiled_counts_are_those_of_torch(
    seed: int, n_query: int, n_items: int, n_levels: int, dtype: torch.dtype
) -> None:
    scores, levels, weights = random_queries(seed, max(n_query, 1), n_items, n_levels, dtype)
    scores, levels = scores[:n_query], levels[:n_query]
    ranking = Ranking(scores, levels, n_levels)
    assert torch.equal(ranking.ascending, scores.sort(1).values)
    assert torch.equal(ranking.order.sort(1).values, torch.arange(n_items).expand(n_query, -1))
    assert torch.equal(ranking.counts, torch.stack([(levels == level).sum(1) for level in range(n_levels + 1)], 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "is_compiled", lambda device: False)
        expected = heaviside_sums(ranking, weights)
        counts = heaviside_sums(ranking, weights.sign())
    sums = heaviside_sums(ranking, weights)
    assert sums.dtype == expected.dtype
    torch.testing.assert_close(sums, expected)
    assert torch.equal(heaviside_sums(ranking, weights.sign()), counts)  # whole numbers are exact

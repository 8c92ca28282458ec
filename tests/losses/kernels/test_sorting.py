from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.losses.kernels import sorting
from hgld.losses.kernels.sorting import sort_scores


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_items", [1, 5, 50_000])
def test_order_agrees_with_torch_and_scores_stay(
    monkeypatch: pytest.MonkeyPatch, n_items: int, dtype: torch.dtype, compiled: bool
) -> None:
    if not compiled:
        monkeypatch.setattr(sorting, "is_compiled", lambda: False)
    scores = torch.randn(2, n_items, dtype=dtype, generator=torch.Generator().manual_seed(0))
    scores[:, ::5] = torch.tensor([0.0, -0.0])[:, None].to(dtype)
    before = scores.clone()
    ascending, order = sort_scores(scores)
    assert torch.equal(ascending, scores.sort(1).values)
    assert torch.equal(scores.gather(1, order), ascending)
    assert torch.equal(order.sort(1).values, torch.arange(n_items).expand(2, -1))
    assert torch.equal(scores, before)


@given(
    st.lists(st.lists(st.floats(width=32, allow_nan=False), min_size=3, max_size=3), min_size=0, max_size=6),
    st.booleans(),
)
def test_any_scores_are_sorted(columns: list[list[float]], is_transposed: bool) -> None:
    scores = torch.tensor(columns, dtype=torch.float32).view(-1, 3)
    scores = scores.T if is_transposed else scores
    ascending, order = sort_scores(scores)
    assert torch.equal(ascending, scores.sort(1).values)
    assert torch.equal(scores.gather(1, order), ascending)

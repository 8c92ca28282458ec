from __future__ import annotations

import pytest
import torch

from hgld.losses.kernels.sorting import sort_scores


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_items", [1, 5, 50_000])
def test_order_agrees_with_torch_and_scores_stay(n_items: int, dtype: torch.dtype) -> None:
    scores = torch.randn(2, n_items, dtype=dtype, generator=torch.Generator().manual_seed(0))
    scores[:, ::5] = torch.tensor([0.0, -0.0])[:, None].to(dtype)
    before = scores.clone()
    ascending, order = sort_scores(scores)
    assert torch.equal(ascending, scores.sort(1).values)
    assert torch.equal(scores.gather(1, order), ascending)
    assert torch.equal(order.sort(1).values, torch.arange(n_items).expand(2, -1))
    assert torch.equal(scores, before)

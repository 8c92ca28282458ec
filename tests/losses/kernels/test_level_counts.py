from __future__ import annotations

import pytest
import torch

from hgld.losses.kernels import level_counts
from hgld.losses.kernels.level_counts import count_levels


@pytest.mark.parametrize("n_items", [1, 2, 7, 400])
def test_compiled_counts_are_those_of_torch(monkeypatch: pytest.MonkeyPatch, n_items: int) -> None:
    levels = torch.randint(-1, 4, (3, 2 * n_items), generator=torch.Generator().manual_seed(n_items))[:, ::2]
    counts = count_levels(levels, 5)
    monkeypatch.setattr(level_counts, "is_compiled", lambda device: False)
    assert torch.equal(counts, count_levels(levels, 5))
    assert counts[:, 4:].sum() == 0
    assert torch.equal(counts.sum(1).long(), (levels >= 0).sum(1))

"""The relevance of H-AP losses: that of Eq. 20, and that of Property 1, a weighted sum of the APs of all levels."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.losses import Heaviside, LabelSpace, SmoothAP, SmoothHAP, SupAP, SupHAP
from hgld.losses.registry import build_loss, loss_settings
from tests.losses.batches import hierarchical_batch

WEIGHTS = (0.2, 0.3, 0.5)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 99), weights=st.one_of(st.none(), st.tuples(*[st.floats(0.1, 3)] * 3)), include=st.booleans()
)
def test_smooth_h_ap_is_the_weighted_sum_of_the_smooth_ap_of_all_levels(
    seed: int, weights: tuple[float, ...] | None, include: bool
) -> None:
    """Property 1 also holds for the surrogates, as one step compares all levels."""
    x, labels = hierarchical_batch(seed)
    loss = SmoothHAP(relevance="weighted_ap", level_weights=weights, include_query=include)
    shares = weights or (1, 1, 1)
    expected = sum(
        share / sum(shares) * SmoothAP(level=level, include_query=include)(x, labels)
        for level, share in enumerate(shares, start=1)
    )
    torch.testing.assert_close(loss(x, labels), torch.as_tensor(expected), rtol=0, atol=1e-9)


def test_sup_h_ap_with_exact_ranks_is_the_weighted_sum_of_the_ap_of_all_levels() -> None:
    x, labels = hierarchical_batch()
    value = SupHAP(relevance="weighted_ap", level_weights=WEIGHTS, step=Heaviside())(x, labels)
    terms = [SupAP(level=level, step=Heaviside())(x, labels) for level in (1, 2, 3)]
    expected = sum(weight * term for weight, term in zip(WEIGHTS, terms, strict=True))
    torch.testing.assert_close(value, torch.as_tensor(expected), rtol=0, atol=1e-12)
    assert SupHAP(relevance="weighted_ap", level_weights=WEIGHTS)(x, labels) >= value  # an upper bound


@pytest.mark.parametrize("name", ["sup_hap", "smooth_hap", "happier", "happier_f"])
def test_settings_choose_the_relevance(name: str) -> None:
    settings_type = loss_settings(name)
    x, labels = hierarchical_batch(dtype=torch.float32)
    space = LabelSpace.from_labels(6, labels.numpy())

    def value(**options: Any) -> torch.Tensor:
        torch.manual_seed(0)
        result: torch.Tensor = build_loss(settings_type.model_validate({"name": name, **options}), space)(x, labels)
        return result

    assert value() == value(relevance="hierarchical") != value(relevance="weighted_ap")
    assert value(relevance="weighted_ap") == value(relevance="weighted_ap", level_weights=[1 / 3] * 3)
    assert value(relevance="weighted_ap") == value(relevance="weighted_ap", alpha=2.0)
    assert value(relevance="weighted_ap") != value(relevance="weighted_ap", level_weights=[0.2, 0.3, 0.5])

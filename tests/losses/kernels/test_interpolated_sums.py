"""Sums by interpolation against all pairs at once, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.losses.kernels import interpolated_sums as module
from hgld.losses.kernels.interpolated_sums import interpolated_sums
from hgld.losses.kernels.pair_sums import pair_sums
from hgld.losses.kernels.sorting import sort_scores
from hgld.losses.kernels.steps import Sigmoid, SupRankStep, suprank_step

STEPS = {
    "eq4": suprank_step("eq4"),
    "cfg144": suprank_step("cfg144"),
    "cfginat": suprank_step("cfginat"),
    "sigmoid": Sigmoid(),
    "sigmoid, wide": Sigmoid(0.1),
    "line from 0": SupRankStep(delta=0.0),
    "early line": SupRankStep(rho=50.0, delta=0.0131),
    "late line": SupRankStep(tau=0.05, rho=10.0, delta=0.413, start=0.2, offset=1.3),
    "no slope": SupRankStep(rho=0.0),
}


def dense(
    scores: torch.Tensor,
    levels: torch.Tensor,
    weights: torch.Tensor,
    step: Sigmoid | SupRankStep,
    upstream: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The sums, their gradient, and the sum of what each gradient adds up, without signs; for each query."""
    sums, gradient, size = (torch.zeros(scores.shape, dtype=torch.float64) for _ in range(3))
    for query in range(len(scores)):
        s, level = scores[query].double(), levels[query]
        t = s[None, :] - s[:, None]  # of k, a row, and j
        pair_weights = weights.double().expand(len(scores), -1, -1)[query][level[:, None], level[None, :]]
        pair_weights = pair_weights * (level > 0)[:, None] * (level >= 0)[None, :]
        pair_weights.fill_diagonal_(0)
        sums[query] = (pair_weights * step.value(t)).sum(1)
        of_pairs = pair_weights * step.slope(t) * upstream[query].double()[:, None]
        gradient[query] = of_pairs.sum(0) - of_pairs.sum(1)
        size[query] = of_pairs.abs().sum(0) + of_pairs.abs().sum(1)
    return sums, gradient, size


def compare(
    scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, step: Sigmoid | SupRankStep, tolerance: float
) -> None:
    """Ranks and gradients agree with all pairs, relative to what they add up."""
    upstream = torch.randn(scores.shape, dtype=scores.dtype, generator=torch.Generator().manual_seed(1))
    sums, gradient, size = dense(scores, levels, weights, step, upstream)
    leaf = scores.clone().requires_grad_()
    found = interpolated_sums(leaf, levels, weights, step)
    found.backward(upstream)
    assert leaf.grad is not None
    assert found.dtype == leaf.grad.dtype == scores.dtype
    rank = 1 + sums.abs()
    assert ((found.detach() - sums).abs() / rank).max() < tolerance
    assert ((leaf.grad - gradient).abs() / (1 / step.tau + size)).max() < tolerance
    assert (found.detach()[levels < 1] == 0).all()
    assert (leaf.grad[levels < 0] == 0).all()


def random_case(n_queries: int, n_items: int, spread: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores with ties, and levels from -1 to 3 of which the higher ones score higher."""
    chance = torch.Generator().manual_seed(seed)
    levels = torch.randint(-1, 4, (n_queries, n_items), generator=chance)
    scores = spread * (torch.randn(n_queries, n_items, dtype=torch.float64, generator=chance) + levels / 2)
    again = torch.randint(0, n_items, (n_queries, n_items // 4), generator=chance)
    scores[:, : n_items // 4] = scores.gather(1, again)
    return scores, levels


@pytest.mark.parametrize("n_items", [1, 2, 60, 400])
@pytest.mark.parametrize("name", STEPS)
def test_sums_and_gradients_are_those_of_all_pairs(name: str, n_items: int) -> None:
    scores, levels = random_case(3, n_items, 0.2, seed=n_items)
    weights = torch.rand(3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    compare(scores, levels, weights, STEPS[name], 1e-5)


@pytest.mark.parametrize("name", ["eq4", "cfg144", "cfginat", "sigmoid"])
def test_with_the_usual_settings_a_rank_is_right_to_a_millionth(name: str) -> None:
    scores, levels = random_case(1, 1000, 0.15, seed=0)
    weights = torch.ones(1, 4, 4, dtype=torch.float64).tril(-1)
    sums, _, _ = dense(scores, levels, weights, STEPS[name], scores)
    found = interpolated_sums(scores, levels, weights, STEPS[name])
    assert ((found - sums).abs() / (1 + sums)).max() < 1e-6


@settings(max_examples=20)
@given(
    n_queries=st.integers(1, 4),
    n_items=st.integers(1, 40),
    spread=st.sampled_from([1e-9, 1e-3, 0.05, 0.3, 20.0]),
    seed=st.integers(0, 2**31),
    step=st.builds(
        SupRankStep,
        tau=st.floats(0.005, 0.2),
        rho=st.floats(0, 200),
        delta=st.floats(0, 0.3),
        start=st.floats(-1, 1),
        offset=st.none() | st.floats(0, 3),
    ),
)
def test_any_parameters_and_any_range_of_scores(
    n_queries: int, n_items: int, spread: float, seed: int, step: SupRankStep
) -> None:
    scores, levels = random_case(n_queries, n_items, spread, seed)
    weights = torch.rand(1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    compare(scores, levels, weights, step, 1e-4)


@pytest.mark.parametrize("name", ["eq4", "sigmoid"])
def test_pairs_give_the_same(name: str) -> None:
    scores, levels = random_case(3, 500, 0.1, seed=5)
    weights = torch.rand(3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    upstream = torch.randn(scores.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = []
    for sums in (pair_sums, interpolated_sums):
        leaf = scores.clone().requires_grad_()
        of_all = sums(leaf, levels, weights, STEPS[name])
        of_all.backward(upstream)
        assert leaf.grad is not None
        found.append((of_all.detach(), leaf.grad))
    torch.testing.assert_close(found[1][0], found[0][0], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found[1][1], found[0][1], rtol=0, atol=1e-6 * float(found[0][1].abs().max()))


def test_float32_is_as_exact_as_its_scores() -> None:
    scores, levels = random_case(2, 500, 0.2, seed=3)
    compare(scores.float(), levels, torch.ones(1, 4, 4).tril(-1), suprank_step(), 2e-5)


def test_one_score_for_all() -> None:
    """Everything ties, and the range has no width."""
    levels = torch.tensor([[3, 2, 1, 0, 0, -1]])
    weights = torch.ones(1, 4, 4).tril(-1)
    found = interpolated_sums(torch.full((1, 6), 0.25), levels, weights, suprank_step())
    torch.testing.assert_close(found, torch.tensor([[4.0, 3.0, 2.0, 0.0, 0.0, 0.0]]))


def test_blocks_of_queries_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, levels = random_case(7, 50, 0.2, seed=4)
    weights = torch.rand(7, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = interpolated_sums(scores, levels, weights, suprank_step())
    monkeypatch.setitem(module._BLOCK, "cpu", 1)
    torch.testing.assert_close(
        interpolated_sums(scores, levels, weights, suprank_step()), whole, rtol=1e-9, atol=1e-9
    )
    compare(scores, levels, weights, suprank_step(), 1e-5)


def test_a_score_that_is_no_number_gives_no_number() -> None:
    scores = torch.tensor([[0.1, math.nan, 0.3]], requires_grad=True)
    found = interpolated_sums(scores, torch.tensor([[1, 0, 0]]), torch.ones(1, 2, 2), Sigmoid())
    assert found[0, 0].isnan()
    assert found[0, 1:].tolist() == [0.0, 0.0]


def test_a_range_without_end_is_refused() -> None:
    scores = torch.tensor([[0.0, 1e6]])
    with pytest.raises(InputError, match=r"from 0 to 1e\+06 span too many temperatures of 0.01"):
        interpolated_sums(scores, torch.tensor([[1, 0]]), torch.ones(1, 2, 2), Sigmoid())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_items", [1, 5, 50_000])
def test_sorted_scores(n_items: int, dtype: torch.dtype) -> None:
    scores = torch.randn(2, n_items, dtype=dtype, generator=torch.Generator().manual_seed(0))
    scores[:, ::5] = torch.tensor([0.0, -0.0])[:, None].to(dtype)
    before = scores.clone()
    ascending, order = sort_scores(scores)
    assert torch.equal(ascending, scores.sort(1).values)
    assert torch.equal(scores.gather(1, order), ascending)
    assert torch.equal(order.sort(1).values, torch.arange(n_items).expand(2, -1))
    assert torch.equal(scores, before)

"""Sums by interpolation against all pairs at once, in float64."""

import math
from typing import NamedTuple

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hgld.losses.kernels import interpolation
from hgld.losses.kernels.interpolation import CELLS_PER_TAU, grid_over, interpolated_sums
from hgld.losses.kernels.pair_sums import pair_sums
from hgld.losses.kernels.ranking import Ranking
from hgld.losses.kernels.steps import Sigmoid, SupRankStep, suprank_step


def smooth(step: SupRankStep) -> SupRankStep:
    """Return a step without its jump at 0, which is not summed by interpolation."""
    _, rest = step.split()
    assert isinstance(rest, SupRankStep)
    return rest


STEPS: dict[str, Sigmoid | SupRankStep] = {
    "eq4": smooth(suprank_step("eq4")),
    "cfg144": smooth(suprank_step("cfg144")),
    "cfginat": suprank_step("cfginat"),
    "sigmoid": Sigmoid(),
    "sigmoid, wide": Sigmoid(0.1),
    "line from 0": SupRankStep(delta=0.0, start=0.0),
    "early line": SupRankStep(rho=50.0, delta=0.0131, start=0.0),
    "late line": SupRankStep(tau=0.05, rho=10.0, delta=0.413, start=0.0, offset=1.1),
    "no slope": SupRankStep(rho=0.0, start=0.0),
}


def sums_of(
    scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, step: Sigmoid | SupRankStep
) -> torch.Tensor:
    grid = grid_over(scores, step)
    assert grid is not None
    return interpolated_sums(Ranking(scores, levels, weights.shape[1] - 1), weights, step, grid)


class Dense(NamedTuple):
    """Sums over all pairs and their gradient, with the sizes that bound the errors of interpolation.

    All are float64 tensors of shape (n_queries, n_items).
    """

    sums: torch.Tensor
    gradient: torch.Tensor
    #: Sum of the absolute values of the terms of the gradient.
    gradient_size: torch.Tensor
    #: Sum over j of w_kj, k included.
    weight: torch.Tensor
    #: Sum over k of |u_k w_kj| + |u_j| sum over k of w_jk, j included.
    gradient_weight: torch.Tensor


def dense(
    scores: torch.Tensor,
    levels: torch.Tensor,
    weights: torch.Tensor,
    step: Sigmoid | SupRankStep,
    upstream: torch.Tensor,
) -> Dense:
    """Evaluate all pairs of each query."""
    result = Dense(*(torch.zeros(scores.shape, dtype=torch.float64) for _ in Dense._fields))
    for query in range(len(scores)):
        s, level = scores[query].double(), levels[query]
        t = s[None, :] - s[:, None]  # k in rows, j in columns
        pair_weights = weights.double().expand(len(scores), -1, -1)[query][level[:, None], level[None, :]]
        pair_weights = pair_weights * (level > 0)[:, None] * (level >= 0)[None, :]
        result.weight[query] = pair_weights.sum(1)
        upstream_weights = (pair_weights * upstream[query].double()[:, None]).abs()
        result.gradient_weight[query] = upstream_weights.sum(0) + upstream_weights.sum(1)
        pair_weights.fill_diagonal_(0)
        result.sums[query] = (pair_weights * step.value(t)).sum(1)
        terms = pair_weights * step.slope(t) * upstream[query].double()[:, None]
        result.gradient[query] = terms.sum(0) - terms.sum(1)
        result.gradient_size[query] = terms.abs().sum(0) + terms.abs().sum(1)
    return result


def error_bounds(step: Sigmoid | SupRankStep) -> tuple[float, float]:
    """Return e_value and e_slope of the module's docstring."""
    r = 1 / CELLS_PER_TAU
    smooth = (1 + 5 / 4) * 3 / 128 * r**4
    value, slope = smooth * 0.1277, smooth * 0.25  # times the maxima of |sigma''''| and |sigma'''''|
    if isinstance(step, SupRankStep):
        p = 1 / (1 + math.exp(-step.delta / step.tau))
        q = p * (1 - p)
        second, third, fourth = q * (1 - 2 * p), q * (1 - 6 * q), q * (1 - 2 * p) * (1 - 12 * q)
        value += 0.0467 * r**2 * abs(second) + 0.0353 * r**3 * abs(third)
        slope += 0.0467 * r**2 * abs(third) + 0.0353 * r**3 * abs(fourth)
    return value, slope


def compare(
    scores: torch.Tensor,
    levels: torch.Tensor,
    weights: torch.Tensor,
    step: Sigmoid | SupRankStep,
    tolerance: float | None = None,
) -> None:
    """Check sums and gradients against all pairs.

    The tolerance is relative to 1 + |S_k| and to the terms of the gradient; without one, errors must stay below the
    documented bounds, but for rounding.
    """
    upstream = torch.randn(scores.shape, dtype=scores.dtype, generator=torch.Generator().manual_seed(1))
    expected = dense(scores, levels, weights, step, upstream)
    leaf = scores.clone().requires_grad_()
    sums = sums_of(leaf, levels, weights, step)
    (gradient,) = torch.autograd.grad(sums, leaf, upstream)
    assert sums.dtype == gradient.dtype == scores.dtype
    sum_errors = (sums.detach() - expected.sums).abs()
    gradient_errors = (gradient - expected.gradient).abs()
    sum_scale, gradient_scale = 1 + expected.sums.abs(), 1 / step.tau + expected.gradient_size
    if tolerance is None:
        e_value, e_slope = error_bounds(step)
        assert (sum_errors <= e_value * expected.weight + 1e-9 * sum_scale).all()
        assert (gradient_errors <= e_slope / step.tau * expected.gradient_weight + 1e-9 * gradient_scale).all()
    else:
        assert (sum_errors / sum_scale).max() < tolerance
        assert (gradient_errors / gradient_scale).max() < tolerance
    assert (sums.detach()[levels < 1] == 0).all()
    assert (gradient[levels < 0] == 0).all()


def random_case(n_queries: int, n_items: int, spread: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scores with ties, and levels from -1 to 3 of which the higher ones score higher."""
    generator = torch.Generator().manual_seed(seed)
    levels = torch.randint(-1, 4, (n_queries, n_items), generator=generator)
    scores = spread * (torch.randn(n_queries, n_items, dtype=torch.float64, generator=generator) + levels / 2)
    tied = torch.randint(0, n_items, (n_queries, n_items // 4), generator=generator)
    scores[:, : n_items // 4] = scores.gather(1, tied)
    return scores, levels


@pytest.mark.parametrize("n_items", [1, 2, 60, 400])
@pytest.mark.parametrize("name", STEPS)
def test_sums_and_gradients_are_those_of_all_pairs(name: str, n_items: int) -> None:
    scores, levels = random_case(3, n_items, 0.2, seed=n_items)
    weights = torch.rand(3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    compare(scores, levels, weights, STEPS[name], 1e-5)
    compare(scores, levels, weights, STEPS[name])


@pytest.mark.parametrize("name", ["eq4", "cfg144", "cfginat", "sigmoid"])
def test_ranks_have_errors_below_1e6_with_the_published_settings(name: str) -> None:
    scores, levels = random_case(1, 1000, 0.15, seed=0)
    weights = torch.ones(1, 4, 4, dtype=torch.float64).tril(-1)
    expected = dense(scores, levels, weights, STEPS[name], scores).sums
    sums = sums_of(scores, levels, weights, STEPS[name])
    assert ((sums - expected).abs() / (1 + expected)).max() < 1e-6


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
        start=st.just(0.0),
        offset=st.none() | st.floats(0, 3),
    ),
)
# A kink at 0, where most pairs are: the gradient has an error of 1.2e-4 relative to its terms.
@example(n_queries=1, n_items=14, spread=1e-3, seed=0, step=SupRankStep(0.0625, 0.0, 0.0, 0.0))
@example(n_queries=4, n_items=14, spread=1e-3, seed=0, step=SupRankStep(0.0625, 0.0, 0.0, 0.0, 0.0))
def test_errors_stay_below_their_bounds(
    n_queries: int, n_items: int, spread: float, seed: int, step: SupRankStep
) -> None:
    scores, levels = random_case(n_queries, n_items, spread, seed)
    weights = torch.rand(1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    compare(scores, levels, weights, step)


@pytest.mark.parametrize("delta", [0.0, 0.7, 1.24, 5.0])
def test_errors_stay_below_their_bounds_at_the_kink(delta: float) -> None:
    """All negatives are at one distance from the positive, around the kink: errors do not cancel."""
    step = SupRankStep(tau=1.0, rho=0.0, delta=delta, start=0.0)
    levels = torch.tensor([[1] + [0] * 50 + [-1]])
    weights = torch.ones(1, 2, 2, dtype=torch.float64).tril(-1)
    largest = 0.0
    for offset in torch.linspace(-0.15, 0.15, 61).tolist():
        scores = torch.full((1, 52), delta + offset, dtype=torch.float64)
        scores[0, 0] = 0.037
        scores[0, -1] = -30.0  # excluded; where scores span few cells, these are narrower
        compare(scores, levels, weights, step)
        error = sums_of(scores, levels, weights, step) - dense(scores, levels, weights, step, scores).sums
        largest = max(largest, float(error[0, 0].abs()) / 50)
    assert largest > 0.2 * error_bounds(step)[0]  # the bounds are not loose


def test_documented_error_bounds() -> None:
    assert error_bounds(Sigmoid()) == pytest.approx((6.8e-7, 1.4e-6), rel=0.1)
    assert error_bounds(suprank_step()) == pytest.approx((4.0e-6, 4.6e-6), rel=0.1)
    assert error_bounds(SupRankStep(delta=0.0)) == pytest.approx((5.1e-6, 6.0e-5), rel=0.1)
    deltas = [SupRankStep(tau=1.0, delta=0.01 * i) for i in range(1000)]
    value_bounds, slope_bounds = zip(*map(error_bounds, deltas), strict=True)
    assert max(value_bounds) < 4.6e-5
    assert max(slope_bounds) < 6.1e-5


@pytest.mark.parametrize("name", ["eq4", "sigmoid"])
def test_interpolation_and_pairs_agree(name: str) -> None:
    scores, levels = random_case(3, 500, 0.1, seed=5)
    weights = torch.rand(3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    upstream = torch.randn(scores.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    results = []
    for is_by_pair in (True, False):
        leaf = scores.clone().requires_grad_()
        if is_by_pair:
            sums = pair_sums(Ranking(leaf, levels, 3), weights, STEPS[name])
        else:
            sums = sums_of(leaf, levels, weights, STEPS[name])
        results.append((sums.detach(), *torch.autograd.grad(sums, leaf, upstream)))
    torch.testing.assert_close(results[1][0], results[0][0], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(results[1][1], results[0][1], rtol=0, atol=1e-6 * float(results[0][1].abs().max()))


def test_float32_is_as_exact_as_its_scores() -> None:
    scores, levels = random_case(2, 500, 0.2, seed=3)
    compare(scores.float(), levels, torch.ones(1, 4, 4).tril(-1), STEPS["eq4"], 2e-5)


@pytest.mark.parametrize("spread", [1e-7, 1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize("name", ["eq4", "sigmoid", "line from 0"])
def test_errors_are_those_of_rounding_where_scores_are_narrow(name: str, spread: float) -> None:
    """Errors of pairs do not cancel there, and the terms of a gradient add up to 10^4."""
    scores, levels = random_case(1, 500, spread, seed=3)
    scores, weights, upstream = (0.3 + scores).float(), torch.ones(1, 4, 4).tril(-1), torch.ones(1, 500)
    expected = dense(scores, levels, weights, STEPS[name], upstream)
    leaf = scores.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(sums_of(leaf, levels, weights, STEPS[name]), leaf, upstream)
    assert expected.gradient_size.max() > 5e3
    assert (gradient - expected.gradient).abs().max() < 3e-7 * expected.gradient_size.max()


def test_equal_scores() -> None:
    """All items tie, and the range has no width."""
    levels = torch.tensor([[3, 2, 1, 0, 0, -1]])
    weights = torch.ones(1, 4, 4).tril(-1)
    sums = sums_of(torch.full((1, 6), 0.25), levels, weights, STEPS["eq4"])
    torch.testing.assert_close(sums, torch.tensor([[2.0, 1.5, 1.0, 0.0, 0.0, 0.0]]))


def test_block_size_does_not_change_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, levels = random_case(7, 50, 0.2, seed=4)
    weights = torch.rand(7, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = sums_of(scores, levels, weights, STEPS["eq4"])
    monkeypatch.setitem(interpolation._BLOCK, "cpu", 1)
    parts = sums_of(scores, levels, weights, STEPS["eq4"])
    torch.testing.assert_close(parts, whole, rtol=1e-9, atol=1e-9)
    compare(scores, levels, weights, STEPS["eq4"], 1e-5)


def test_scores_that_are_not_finite_or_span_too_many_cells_have_no_grid() -> None:
    for value in (math.nan, math.inf, 1e4):
        assert grid_over(torch.tensor([[0.0, value]]), Sigmoid(0.01)) is None

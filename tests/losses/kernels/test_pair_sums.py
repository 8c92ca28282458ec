"""Sums over pairs: compiled, in blocks, and on a GPU."""

import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.compute.compiled import SWITCH, is_compiled
from hgld.losses.kernels import pair_sums as loops
from hgld.losses.kernels.pair_sums import has_loop, pair_sums
from hgld.losses.kernels.ranking import Ranking
from hgld.losses.kernels.steps import Heaviside, LeakyStep, Sigmoid, Step, SupRankStep, suprank_step
from tests.losses.kernels.test_step_sums import STEPS, random_queries

needs_loops = pytest.mark.skipif(not is_compiled(), reason="compiled loops are switched off, or numba is missing")

any_step = st.one_of(
    st.builds(Sigmoid, tau=st.floats(0.005, 2)),
    st.builds(
        SupRankStep,
        tau=st.floats(0.005, 0.2),
        rho=st.floats(0, 200),
        delta=st.sampled_from([0.0, 0.05, 0.1]) | st.floats(0, 0.3),
        start=st.floats(-1, 1),
        offset=st.none() | st.floats(0, 3),
    ),
)


def both_ways(
    scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, step: Step
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the sums and a gradient, first by torch and then compiled."""
    upstream = torch.randn(scores.shape, generator=torch.Generator().manual_seed(1)).to(scores.dtype)
    results = []
    for switch in ("0", "1"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(SWITCH, switch)
            leaf = scores.clone().requires_grad_()
            sums = pair_sums(Ranking(leaf, levels, weights.shape[1] - 1), weights, step)
            results.append((sums.detach(), torch.autograd.grad(sums, leaf, upstream)[0]))
    return results


@needs_loops
@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    n_query=st.integers(1, 3),
    n_items=st.integers(1, 30),
    n_levels=st.integers(1, 3),
    spread=st.sampled_from([1e-9, 1e-3, 0.05, 0.3, 3.0]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    step=any_step,
)
def test_sums_and_gradients_agree_with_torch(
    seed: int, n_query: int, n_items: int, n_levels: int, spread: float, dtype: torch.dtype, step: Step
) -> None:
    scores, levels, weights = random_queries(seed, n_query, n_items, n_levels, dtype, spread)
    expected, actual = both_ways(scores, levels, weights, step)
    for one, other in zip(expected, actual, strict=True):
        assert one.dtype == other.dtype == dtype
        # sigmoids of torch have the rounding of t / tau, which is up to 1e3 here
        tolerance = {torch.float32: 2e-5, torch.float64: 1e-12}[dtype] * max(1.0, float(one.abs().max()))
        torch.testing.assert_close(other, one, rtol=0, atol=tolerance)


@needs_loops
@pytest.mark.parametrize("step", [Sigmoid(), suprank_step(), suprank_step("cfg144")], ids=str)
@pytest.mark.parametrize("items_at_once", [1, 3, 16])
def test_number_of_items_at_once_does_not_change_the_sums(
    step: Step, items_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_queries(4, 6, 20, 3)
    _, whole = both_ways(*case, step)
    monkeypatch.setattr(loops, "ITEMS_AT_ONCE", items_at_once)
    _, parts = both_ways(*case, step)
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-12)


@needs_loops
@pytest.mark.parametrize("step", [Sigmoid(), suprank_step()], ids=str)
def test_float32_sums_of_many_items_are_those_of_float64(step: Step) -> None:
    scores, levels, weights = random_queries(1, 1, 20_000, 1, torch.float32)
    levels[:, 50:].clamp_(max=0)
    exact, _ = both_ways(scores.double(), levels, weights.double(), step)
    _, actual = both_ways(scores, levels, weights, step)
    torch.testing.assert_close(actual[0].double(), exact[0], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(actual[1].double(), exact[1], rtol=0, atol=1e-5 * float(exact[1].abs().max()))


@needs_loops
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sigmoids_of_far_scores_are_0_and_1(dtype: torch.dtype) -> None:
    scores = torch.tensor([[0.0, 300.0, -130.0, 5.0]], dtype=dtype)
    levels = torch.tensor([[1, 0, 0, 0]])
    for item, value in ((1, 1.0), (2, 0.0), (3, 1.0)):
        weights = torch.ones(1, 2, 2, dtype=dtype).tril(-1)
        chosen = torch.where(torch.arange(4) == item, 0, -1).unsqueeze(0)
        chosen[0, 0] = 1
        _, (sums, gradient) = both_ways(scores, chosen, weights, Sigmoid())
        assert sums[0, 0].item() == pytest.approx(value, abs=1e-25)
        assert gradient.abs().max() < 1e-25
    _, (sums, _) = both_ways(scores, levels, weights, suprank_step())
    assert sums[0, 0].item() == pytest.approx(2 * 1.5 + 100 * (300 + 5 - 0.1) - 2 * math.exp(-5), rel=1e-4)


@needs_loops
def test_scores_and_steps_without_a_loop_are_summed_by_torch() -> None:
    scores = torch.tensor([[0.1, 0.2, 0.3]])
    assert has_loop(scores, Sigmoid())
    assert has_loop(scores, suprank_step())
    assert not has_loop(scores, Heaviside())
    assert not has_loop(scores, LeakyStep())
    assert not has_loop(scores[:0], Sigmoid())
    for bad in (math.nan, math.inf, 1e9):
        scores[0, 1] = bad
        assert not has_loop(scores, Sigmoid())


@needs_loops
def test_nan_scores_give_nan_sums() -> None:
    scores = torch.tensor([[0.1, math.nan, 0.3]], requires_grad=True)
    sums = pair_sums(Ranking(scores, torch.tensor([[1, 0, 0]]), 1), torch.ones(1, 2, 2), Sigmoid())
    assert sums[0, 0].isnan()
    assert sums[0, 1:].tolist() == [0.0, 0.0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("step", STEPS[1:], ids=str)
def test_sums_on_a_gpu_are_those_on_a_cpu(step: Step) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 50, dtype=torch.float64, generator=generator).mul(0.1)
    levels, weights = torch.randint(-1, 4, (3, 50), generator=generator), torch.rand(3, 4, 4, dtype=torch.float64)
    results = []
    for device in ("cpu", "cuda"):
        leaf = scores.to(device).requires_grad_()
        sums = pair_sums(Ranking(leaf, levels.to(device), 3), weights.to(device), step)
        results.append((sums.detach().cpu(), torch.autograd.grad(sums.sum(), leaf)[0].cpu()))
    torch.testing.assert_close(results[1], results[0])


FIRST_CALL = """
import torch
from hgld.losses import SmoothAP
embeddings, labels = torch.nn.functional.normalize(torch.randn(12, 8), dim=1), torch.arange(12) // 3
values, gradients = [], []
for loss in (torch.compile(SmoothAP(), backend="eager"), SmoothAP()):
    leaf = embeddings.clone().requires_grad_()
    value = loss(leaf, labels)
    value.backward()
    values.append(value)
    gradients.append(leaf.grad)
assert torch.equal(*values), values
assert torch.equal(*gradients)
"""


@pytest.mark.slow
def test_a_compiled_loss_may_be_the_first_call_of_a_process() -> None:
    subprocess.run([sys.executable, "-c", FIRST_CALL], check=True)

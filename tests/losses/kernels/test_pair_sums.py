"""Blocks of pairs as torch.compile sees them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hgld.losses.kernels.pair_sums import block_slopes, block_sums, pair_sums
from hgld.losses.kernels.ranking import Ranking
from hgld.losses.kernels.steps import Heaviside, LeakyStep, Sigmoid, Step, SupRankStep, suprank_step

STEPS: list[Step] = [Heaviside(), Sigmoid(), SupRankStep(), suprank_step("cfg144"), LeakyStep()]


def random_block(device: str = "cpu") -> list[torch.Tensor]:
    """Return scores of 5 items k and 7 items j, weights of the j and upstream gradients of the k, for 2 queries."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, n, generator=generator).mul(0.1).to(device) for n in (5, 7, 7, 5)]


def check_compiled(compile_: Callable[[Any], Any], step: Step, device: str = "cpu") -> None:
    """Check that compiled functions of a block return the same as the functions themselves."""
    k, j, weights, upstream = random_block(device)
    sums = compile_(block_sums)(k, j, weights, step)
    torch.testing.assert_close(sums, block_sums(k, j, weights, step))
    slopes = compile_(block_slopes)(k, j, weights, upstream, step)
    torch.testing.assert_close(slopes, block_slopes(k, j, weights, upstream, step))


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_blocks_are_traced_as_a_whole(step: Step) -> None:
    """There is no break in the graph: no control flow that depends on data, and no value read by Python."""
    torch.compiler.reset()
    check_compiled(lambda function: torch.compile(function, fullgraph=True, backend="eager"), step)


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="Triton compiles for a GPU, and there is none")
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_blocks_are_compiled_by_triton(step: Step) -> None:
    torch.compiler.reset()
    check_compiled(lambda function: torch.compile(function, fullgraph=True), step, "cuda")


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

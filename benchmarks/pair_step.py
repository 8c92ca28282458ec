"""Processor time of one pair of items in the sums of a step, by ways to compute them.

Each of 8 queries has 250 positives and 1,000 negatives, with scores of standard deviation 0.1. All ways take turns in
one process with one thread; the table holds their least times, forward and backward, in nanoseconds a pair::

    python benchmarks/pair_step.py

- *torch*: blocks of the pairs of a query, as computed without compiled loops;
- *torch, factors*: the same with sigma(t / tau) = 1 / (1 + exp(s_k / tau) exp(-s_j / tau)), so that no pair has an
  exponential. It overflows where scores span 88 tau; the compiled loops take them relative to an item k;
- *torch.compile*: the blocks of *torch*, compiled by Inductor; it needs a C++ compiler;
- *numba*: the compiled loops of hgld, with all that is around them; LeakyStep has none.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Callable

import torch
from report import table

from hgld.compute.compiled import SWITCH, is_compiled
from hgld.losses.kernels.pair_sums import block_slopes, block_sums, pair_sums
from hgld.losses.kernels.ranking import Ranking
from hgld.losses.kernels.steps import LeakyStep, Sigmoid, Step, SupRankStep

N_QUERIES, N_POSITIVES, N_NEGATIVES = 8, 250, 1000
#: The part of H^- that is not a jump at 0, as the losses sum it, and the other steps.
STEPS: dict[str, Step] = {"H^-": SupRankStep(start=0.0), "sigmoid": Sigmoid(), "LeakyStep": LeakyStep()}
N_PAIRS = N_QUERIES * N_POSITIVES * N_NEGATIVES
Seconds = tuple[float, float]


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, step in STEPS.items():
        for dtype in (torch.float32, torch.float64):
            ways = _ways(step, dtype)
            for way in ways.values():
                way()  # compiles
            times = [[way() for way in ways.values()] for _ in range(options.repeats)]
            for way_name, runs in zip(ways, zip(*times, strict=True), strict=True):
                forward, backward = (1e9 / N_PAIRS * min(t) for t in zip(*runs, strict=True))
                cells = (f"{ns:.2f}" for ns in (forward, backward, forward + backward))
                rows.append([name, str(dtype).removeprefix("torch."), way_name, *cells])
    print(table(["step", "precision", "by", "forward, ns", "backward, ns", "both, ns"], rows))


def _ways(step: Step, dtype: torch.dtype) -> dict[str, Callable[[], Seconds]]:
    """Return functions that compute sums and gradients once, and return the seconds of both."""
    shape = (N_QUERIES, N_POSITIVES + N_NEGATIVES)
    scores = 0.1 * torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    queries = [row.split([N_POSITIVES, N_NEGATIVES], 1) for row in scores.split(1)]
    weights, upstream = (torch.ones(1, n, dtype=dtype) for n in (N_NEGATIVES, N_POSITIVES))

    def blocks(sums: Callable[..., object], slopes: Callable[..., object]) -> Callable[[], Seconds]:
        def way() -> Seconds:
            with torch.no_grad():
                started = time.process_time()
                for k, j in queries:
                    sums(k, j, weights, step)
                between = time.process_time()
                for k, j in queries:
                    slopes(k, j, weights, upstream, step)
            return between - started, time.process_time() - between

        return way

    levels = torch.tensor([[1] * N_POSITIVES + [0] * N_NEGATIVES] * N_QUERIES)
    level_weights = torch.ones(1, 2, 2, dtype=dtype).tril(-1)

    def loops() -> Seconds:
        leaf = scores.clone().requires_grad_()
        started = time.process_time()
        result = pair_sums(Ranking(leaf, levels, 1), level_weights, step)
        between = time.process_time()
        result.backward(torch.ones_like(result))
        return between - started, time.process_time() - between

    ways = {"torch": blocks(block_sums, block_slopes)}
    if not isinstance(step, LeakyStep):
        ways["torch, factors"] = blocks(_factored_sums, _factored_slopes)
    if shutil.which(os.environ.get("CXX", "g++")):
        torch.compiler.reset()
        ways["torch.compile"] = blocks(
            torch.compile(block_sums, fullgraph=True), torch.compile(block_slopes, fullgraph=True)
        )
    if is_compiled() and not isinstance(step, LeakyStep):
        ways["numba"] = loops
    elif not is_compiled():
        print(f"compiled loops are not measured: {SWITCH} is 0, or numba is missing")
    return ways


def _near(k: torch.Tensor, j: torch.Tensor, tau: float) -> torch.Tensor:
    """Return the sigmoids of all pairs."""
    product = torch.exp(k / tau).unsqueeze(2) * torch.exp(-j / tau).unsqueeze(1)
    return product.add_(1).reciprocal_()


def _factored_sums(
    k: torch.Tensor, j: torch.Tensor, _weights: torch.Tensor, step: Sigmoid | SupRankStep
) -> torch.Tensor:
    near = _near(k, j, step.tau)
    if isinstance(step, SupRankStep):
        above = (j.unsqueeze(1) - k.unsqueeze(2)).sub_(step.delta).clamp_(min=0)
        near = near.clamp_(max=step.sigmoid_at_delta).add_(above, alpha=step.rho)
    return near.sum(2)


def _factored_slopes(
    k: torch.Tensor,
    j: torch.Tensor,
    _weights: torch.Tensor,
    upstream: torch.Tensor,
    step: Sigmoid | SupRankStep,
) -> tuple[torch.Tensor, torch.Tensor]:
    near = _near(k, j, step.tau)
    slopes = near.addcmul_(near, near, value=-1).div_(step.tau)
    if isinstance(step, SupRankStep):
        slopes.masked_fill_(j.unsqueeze(1) - k.unsqueeze(2) > step.delta, step.rho)
    return slopes.sum(2), (upstream.unsqueeze(1) @ slopes).squeeze(1)


if __name__ == "__main__":
    main()

"""Sums over all pairs by compiled loops, of the steps that have one.

The grouped items of the forward pass take 16 bytes a score in float32, and 28 in float64, until the backward pass.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hgld.losses.kernels.derivatives import first_derivative_only
from hgld.losses.kernels.pair_loops import group_items, sum_pairs
from hgld.losses.kernels.steps import LeakyStep, Sigmoid, Step, SupRankStep

Floats = NDArray[np.floating[Any]]

#: Items j that are paired with all items k before the next ones are: their arrays fit into the smallest cache.
ITEMS_AT_ONCE = 1024
#: Exponents that scores may span: a range of 454 with a tau of 0.01. A table by exponents is of this size.
MAX_EXPONENTS = 2**16


class PairKernel(NamedTuple):
    """A step as the compiled loops evaluate it."""

    is_leaky: bool  #: whether it is a :class:`~hgld.losses.LeakyStep`; else it is a sigmoid and a line
    per_score: float  #: exponents of 2 per unit of score
    lowest: float  #: least score, of exponent 0
    highest: float  #: greatest score
    at_0: float  #: h(0)
    scale: float  #: factor of the slopes that the loops compute
    numbers: Floats  #: constants of the loops, in the precision of the scores


def pair_kernel(scores: torch.Tensor, step: Step) -> PairKernel | None:
    """Return the kernel of a step, or None where no loop is compiled for it.

    Args:
        scores: float32 or float64 tensor of shape (n_query, n_items). There is no kernel for scores that span more
            than ``MAX_EXPONENTS``, or that are not finite.
        step: Step of the sums. There is no kernel for subclasses, which may redefine it.
    """
    if type(step) not in (Sigmoid, SupRankStep, LeakyStep) or not scores.numel():
        return None
    lowest, highest = (bound.item() for bound in torch.aminmax(scores.detach()))
    if isinstance(step, LeakyStep):
        per_score, at_0, scale = 0.0, 0.0, 1.0
        numbers = [step.beta, step.gamma, step.leak, 1.0, 0.0]
    else:
        assert isinstance(step, (Sigmoid, SupRankStep))
        numbers = _sigmoid_numbers(step)
        start = numbers[2]
        per_score, at_0, scale = 1 / (step.tau * math.log(2)), 0.5 + start, 1 / step.tau
    if not (math.isfinite(highest - lowest) and (highest - lowest) * per_score < MAX_EXPONENTS):
        return None
    dtype = np.float32 if scores.dtype == torch.float32 else np.float64
    constants = np.array(numbers, dtype)
    return PairKernel(isinstance(step, LeakyStep), per_score, lowest, highest, at_0, scale, constants)


def _sigmoid_numbers(step: Sigmoid | SupRankStep) -> list[float]:
    """Return the numbers of :func:`_sigmoid_values`. A sigmoid is a step whose line never begins."""
    if isinstance(step, Sigmoid):
        return [math.inf, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    limit = math.exp(-step.delta / step.tau)
    return [step.delta, limit, step.start, step.rho, step.jump, step.rho * step.tau, 1.0, 0.0]


class CompiledPairSums(torch.autograd.Function):
    """The sums of :func:`~hgld.losses.kernels.pair_sums.pair_sums`; the backward pass evaluates the pairs again."""

    @staticmethod
    def forward(
        ctx: Any, scores: torch.Tensor, levels: torch.Tensor, weights: torch.Tensor, kernel: PairKernel
    ) -> torch.Tensor:
        """Return the sums.

        Args:
            ctx: Context of autograd.
            scores: See :func:`~hgld.losses.kernels.step_sums.step_sums`.
            levels: See there.
            weights: See there.
            kernel: Kernel for these scores.
        """
        items = _grouped_items(scores, levels, weights.shape[1] - 1, kernel)
        if ctx.needs_input_grad[0]:
            ctx.items, ctx.weights, ctx.kernel = items, weights, kernel
        return _evaluate(items, weights, np.empty_like(items.scores[:0]), kernel)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradient by the scores."""
        return _evaluate(ctx.items, ctx.weights, _array(upstream), ctx.kernel), None, None, None


class _GroupedItems(NamedTuple):
    """Items of each query by level, and those of a level by groups of exponents, arrays of shape (n_query, n_items).

    Only the items of a retrieval set are in them, and the ends of rows are undefined.
    """

    order: NDArray[np.int32]  #: index of each item in its query
    scores: Floats
    exponents: Floats  #: floor((s - lowest) / (tau ln 2))
    mantissas: Floats  #: exp(-(s - lowest) / tau) is mantissa / 2^exponent
    starts: NDArray[np.int64]  #: place of the first item of each level, and the number of all: (n_query, L + 2)


def _grouped_items(scores: torch.Tensor, levels: torch.Tensor, n_levels: int, kernel: PairKernel) -> _GroupedItems:
    scores_array = _array(scores)
    shape, dtype = scores_array.shape, scores_array.dtype
    items = _GroupedItems(
        np.empty(shape, np.int32),
        np.empty(shape, dtype),
        np.empty(shape, dtype),
        np.empty(shape, dtype),
        np.empty((len(scores), n_levels + 2), np.int64),
    )
    group_items(scores_array, _array(levels), kernel.per_score, kernel.lowest, kernel.highest, *items)
    return items


def _evaluate(items: _GroupedItems, weights: torch.Tensor, upstream: Floats, kernel: PairKernel) -> torch.Tensor:
    """Return the sums, or the gradient where ``upstream`` has rows."""
    result = np.zeros(items.scores.shape, items.scores.dtype)
    bits = np.empty(ITEMS_AT_ONCE, np.int32 if result.dtype == np.float32 else np.int64)
    sum_pairs(
        *items,
        _array(weights),
        upstream,
        kernel.is_leaky,
        kernel.at_0,
        kernel.scale,
        kernel.numbers,
        bits,
        bits.view(result.dtype),
        result,
    )
    return torch.from_numpy(result)


def _array(tensor: torch.Tensor) -> Any:
    return tensor.detach().contiguous().numpy()

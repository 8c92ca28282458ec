"""Interpolated sums by compiled loops, on a CPU; see :mod:`~hgld.losses.kernels.interpolated_sums`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from hgld.compute.threads import parallel_map, thread_count
from hgld.losses.kernels.interpolation_grid import CUBIC, Grid, kernels_of
from hgld.losses.kernels.interpolation_loops import (
    FAR,
    FAR_TERMS,
    REACH,
    GridKernels,
    backward_rows,
    forward_rows,
)
from hgld.losses.kernels.sorting import Ranking
from hgld.losses.kernels.steps import Sigmoid, SupRankStep


class CompiledInterpolation(torch.autograd.Function):
    """The sums by compiled loops, in threads that each take as many queries."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: torch.Tensor,
        ranking: Ranking,
        weights: torch.Tensor,
        step: Sigmoid | SupRankStep,
        grid: Grid,
    ) -> torch.Tensor:
        """Return the sums.

        Args:
            ctx: Context of autograd.
            scores: float32 or float64 tensor of shape (n_query, n_items).
            ranking: Ranking of these scores and their levels.
            weights: See :func:`~hgld.losses.kernels.step_sums.step_sums`.
            step: Step of the sums.
            grid: Grid over the range of the scores.
        """
        values = torch.zeros(scores.shape, dtype=scores.dtype)
        slopes = torch.zeros(scores.shape, dtype=torch.float64)
        ctx.kernels = _grid_kernels(step, grid)
        ctx.saved = ranking.ascending, ranking.order, ranking.levels, weights.to(torch.float64)

        def work(block: slice) -> None:
            ascending, order, levels, row_weights = _rows(ctx.saved, block)
            results = values[block].numpy(), slopes[block].numpy()
            forward_rows(ascending, order, levels, row_weights, ctx.kernels, *results)

        parallel_map(work, _thread_blocks(scores), scores.device)
        ctx.slopes = slopes
        return values

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradient by the scores."""
        upstream, slopes = upstream.contiguous(), ctx.slopes
        gradient = torch.empty_like(upstream)

        def work(block: slice) -> None:
            ascending, order, levels, row_weights = _rows(ctx.saved, block)
            arrays = upstream[block].numpy(), slopes[block].numpy(), gradient[block].numpy()
            backward_rows(ascending, order, levels, row_weights, ctx.kernels, *arrays)

        parallel_map(work, _thread_blocks(upstream), upstream.device)
        return gradient, None, None, None, None


def _rows(tensors: tuple[torch.Tensor, ...], block: slice) -> list[Any]:
    """Return contiguous arrays of some queries: sorted scores, their order, levels and weights."""
    return [(tensor[block] if len(tensor) > 1 else tensor).contiguous().numpy() for tensor in tensors]


def _thread_blocks(scores: torch.Tensor) -> list[slice]:
    size = max(1, -(-len(scores) // thread_count(scores.device)))
    return [slice(begin, begin + size) for begin in range(0, len(scores), size)]


def _grid_kernels(step: Sigmoid | SupRankStep, grid: Grid) -> GridKernels:
    """Return the kernels of a step and of its derivative for the compiled loops."""
    kernels = kernels_of(step)
    cut, reach, far = kernels[0].cut / grid.width, REACH * step.tau / grid.width, FAR * step.tau / grid.width
    # Beyond the taps, g is a line, or as good as constant where the line begins later.
    first, last = -min(int(far), grid.n_points), min(int(min(cut, reach)) + 1, grid.n_points)
    differences = torch.arange(first, last + 1, dtype=torch.float64) * grid.width
    values = torch.stack([kernel.smooth(differences) for kernel in kernels])
    increments = [kernel.smooth_slope * grid.width if cut < reach else 0.0 for kernel in kernels]
    terms = np.arange(1, FAR_TERMS + 1)
    per_cell, signs = terms * (grid.width / step.tau), (-1.0) ** (terms + 1)
    return GridKernels(
        grid.lowest,
        grid.width,
        grid.n_points,
        first,
        values[:, :-1].contiguous().numpy(),
        np.stack([values[:, -1].numpy(), increments], 1),
        np.stack([np.exp(-per_cell), np.exp(per_cell * (first - 1)), signs, signs * terms / step.tau]),
        cut,
        np.array([[kernel.own, kernel.start, kernel.height, kernel.slope] for kernel in kernels]),
        np.array(CUBIC),
    )

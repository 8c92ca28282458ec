"""Grids of points, and steps as kernels on them, for :mod:`~hgld.losses.kernels.interpolated_sums`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from hgld.losses.kernels.steps import Sigmoid, SupRankStep


@dataclass(frozen=True, eq=False)
class Kernel:
    """h or h', and the contribution of an item k to its own sum.

    For the form of both see :mod:`~hgld.losses.kernels.interpolated_sums`.
    """

    smooth: Callable[[torch.Tensor], torch.Tensor]  #: g, a function of score differences
    own: float
    cut: float
    height: float
    slope: float


def kernels_of(step: Sigmoid | SupRankStep) -> tuple[Kernel, Kernel]:
    """Return the kernels of a step and of its derivative. A sigmoid is a step whose line never begins."""
    if isinstance(step, Sigmoid):
        step = SupRankStep(step.tau, rho=0.0, delta=math.inf, start=0.0)
    near, cut = Sigmoid(step.tau), step.delta
    at_cut = torch.tensor(cut, dtype=torch.float64)
    value, slope = near.value(at_cut).item(), near.slope(at_cut).item()
    bend = slope * (1 - 2 * value) / step.tau  # the second derivative
    height = step.line_start - value

    def smooth_value(t: torch.Tensor) -> torch.Tensor:
        return near.value(t.clamp(max=cut)) + slope * (t - cut).clamp(min=0)

    def smooth_slope(t: torch.Tensor) -> torch.Tensor:
        return near.slope(t.clamp(max=cut)) + bend * (t - cut).clamp(min=0)

    return (
        Kernel(smooth_value, 0.5, cut, height, step.rho - slope),
        # The own contribution of k to the derivative cancels: s_k is both the source and the target.
        Kernel(smooth_slope, 0.0, cut, step.rho - slope, -bend),
    )


class Grid:
    """Equally spaced points over the range of the scores, one before it and two after it.

    Args:
        lowest: Least score.
        highest: Greatest score.
        width: Width of a cell, the distance of two points.
        device: Device of the values at points.
    """

    def __init__(self, lowest: float, highest: float, width: float, device: torch.device) -> None:
        self.lowest, self.width, self._device = lowest, width, device
        # Rounding may move the greatest score to the next cell.
        self.n_points = int((highest - lowest) / width) + 5
        # The least length whose convolution does not wrap around, rounded up to one with a fast FFT.
        least = 2 * self.n_points - 1
        self._length = min(factor << (-(-least // factor) - 1).bit_length() for factor in (1, 3, 5))

    def spectrum(self, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Return the spectrum of a function of score differences, for :meth:`convolve`."""
        differences = torch.fft.fftfreq(self._length, 1 / self._length, dtype=torch.float64, device=self._device)
        spectrum: torch.Tensor = torch.fft.rfft(function(differences * self.width))
        return spectrum

    def convolve(self, points: torch.Tensor, spectra: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return at each point x the sum over points y of f(x - y) times their values; f(y - x) if conjugate."""
        points_spectrum = torch.fft.rfft(points, n=self._length)
        products = (points_spectrum * spectrum for spectrum in spectra)
        return [torch.fft.irfft(product, n=self._length)[..., : self.n_points] for product in products]

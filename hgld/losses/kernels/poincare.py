"""The Poincare ball: points of embeddings, and their hyperbolic distances."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch.nn import functional

from hgld.errors import ConfigurationError

#: The written formulas, or the numbers of the published code.
HyperbolicVariant = Literal["exact", "code"]
#: What the published code adds to lengths and denominators, and keeps tanh^-1 away from 1 by.
EPSILON = 1e-5
#: Points are kept this share of the radius away from the boundary.
MARGIN = 1e-3
#: Least squared length or distance that has a gradient; its power -3/2, of second derivatives, is finite in float32.
LEAST = 1e-25


@dataclass(frozen=True)
class PoincareBall:
    """The ball of radius 1 / sqrt(c) with constant curvature -c.

    A factor s of the embeddings has the effect of a curvature c s^2 and distances that are s times as large.

    Args:
        curvature: Curvature c, 0 or more; 0 is the unit sphere with the negative cosine as distance.
        clip: Length to which longer embeddings are shortened (Guo et al., CVPR 2022), above 0; None for any length.
        variant: ``exact``, or ``code`` for the published code: it adds 1e-5 to lengths and to the denominator of the
            Moebius addition, keeps the argument of tanh^-1 below 1 - 1e-5, and rounds c to float32.

    Raises:
        ConfigurationError: A number is out of range, or there is no such variant.

    >>> ball = PoincareBall(curvature=1.0)
    >>> points = ball.points(torch.tensor([[0.5, 0.0], [0.0, -1.0], [0.0, 9.0]]))
    >>> torch.linalg.vector_norm(points, dim=1)  # tanh of the lengths
    tensor([0.4621, 0.7616, 0.9801])
    >>> ball.distances(points, torch.zeros(1, 2)).T  # twice the lengths
    tensor([[1.0000, 2.0000, 4.6000]])
    """

    curvature: float = 0.1
    clip: float | None = 2.3
    variant: HyperbolicVariant = "exact"

    def __post_init__(self) -> None:
        if not 0 <= self.curvature < math.inf:
            raise ConfigurationError(f"`curvature` is {self.curvature}; expected 0 or more")
        if self.clip is not None and not self.clip > 0:
            raise ConfigurationError(f"`clip` is {self.clip}; expected more than 0")
        if self.variant not in ("exact", "code"):
            raise ConfigurationError(f'`variant` is "{self.variant}"; choose exact or code')

    @property
    def c(self) -> float:
        """Curvature as it is computed with."""
        return float(np.float32(self.curvature)) if self.variant == "code" else self.curvature

    def points(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Return tanh(sqrt(c) |x|) x / (sqrt(c) |x|), the exponential map at 0, of clipped embeddings x: (B, d)."""
        if not self.c:
            return functional.normalize(embeddings)
        lengths = embeddings.square().sum(1, keepdim=True).clamp(min=LEAST).sqrt()
        directions = embeddings / lengths
        if self.clip is not None:
            added = EPSILON if self.variant == "code" else 0.0
            lengths = lengths * (self.clip / (lengths + added)).clamp(max=1)
        root = math.sqrt(self.c)
        return directions * ((root * lengths).tanh() / root).clamp(max=(1 - MARGIN) / root)

    def distances(self, points: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        """Return the hyperbolic distances of points (B, d) and (N, d): shape (B, N).

        ::

            arcosh(1 + 2 c |x - y|^2 / ((1 - c |x|^2) (1 - c |y|^2))) / sqrt(c)
        """
        c, products = self.c, points @ others.T
        if not c:
            return -products
        squares, other_squares = points.square().sum(1, keepdim=True), others.square().sum(1)
        apart: torch.Tensor = _SquaredDistances.apply(points, others).clamp(min=LEAST)
        if self.variant == "exact":  # arcosh(1 + 2 t) = 2 arsinh(sqrt(t)), without cancellation
            halves = (c * apart / ((1 - c * squares) * (1 - c * other_squares))).sqrt().asinh()
        else:
            denominators = 1 - 2 * c * products + c**2 * squares * other_squares
            ratios = math.sqrt(c) * (apart * denominators).sqrt() / (denominators + EPSILON)
            # clamped numbers keep their gradient, as in the published code
            halves = (ratios + (ratios.clamp(max=1 - EPSILON) - ratios).detach()).atanh()
        return halves * (2 / math.sqrt(c))


class _SquaredDistances(torch.autograd.Function):
    """Squares |x - y|^2 of all pairs by differences, without cancellation near 0, in O(B N) memory."""

    @staticmethod
    def forward(ctx: Any, points: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(points, others)
        return torch.cdist(points, others, compute_mode="donot_use_mm_for_euclid_dist").square_()

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        points, others = ctx.saved_tensors
        grad_points = upstream.sum(1).unsqueeze(1) * points - upstream @ others
        grad_others = upstream.sum(0).unsqueeze(1) * others - upstream.T @ points
        return 2 * grad_points, 2 * grad_others

"""Surrogates of Heaviside's step, the main difference between the rank losses.

The rank of an item k is a sum of steps H(s_j - s_k) over the other items j (paper, Eq. 3). H has no
useful gradient, so losses replace it by a smooth function. Its derivative is defined here instead
of left to autograd, because sums over pairs recompute the derivatives block by block in the
backward pass without storing them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
from torch import Tensor

from hgld.errors import require, require_choice
from hgld.losses.settings import check_temperature


class Step(Protocol):
    """A surrogate h of Heaviside's step H: a function of score differences t = s_j - s_k."""

    def value(self, t: Tensor) -> Tensor:
        """Return h(t) for a tensor of any floating dtype and shape."""

    def slope(self, t: Tensor) -> Tensor:
        """Return the derivative h'(t), without the jumps of h."""

    def split(self) -> tuple[float, Step | None]:
        """Return (jump, rest) with h = jump H + rest; None stands for a rest of 0.

        Sums of H are computed by sorting (:func:`~hgld.losses.kernels.ranking.heaviside_sums`),
        without pairs.
        """


@dataclass(frozen=True)
class Heaviside:
    """H(t) = [t >= 0] (paper, Eq. 3): ties count, and the gradient is 0.

    >>> Heaviside().value(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([0., 1., 1.])
    """

    def value(self, t: Tensor) -> Tensor:
        """See :meth:`Step.value`."""
        return (t >= 0).to(t.dtype)

    def slope(self, t: Tensor) -> Tensor:
        """See :meth:`Step.slope`."""
        return torch.zeros_like(t)

    def split(self) -> tuple[float, Step | None]:
        """See :meth:`Step.split`."""
        return 1.0, None


@dataclass(frozen=True)
class Sigmoid:
    """sigma(t / tau), the step of Smooth-AP (Brown et al., Eq. 6) and RS@k (Patel et al., Eq. 4).

    Args:
        tau: Temperature, at least 1e-8.

    Raises:
        ConfigurationError: ``tau`` is below 1e-8 or infinite.

    >>> Sigmoid(tau=0.01).value(torch.tensor([-0.01, 0.0, 0.01]))
    tensor([0.2689, 0.5000, 0.7311])
    """

    tau: float = 0.01

    def __post_init__(self) -> None:
        check_temperature("tau", self.tau)

    def value(self, t: Tensor) -> Tensor:
        """See :meth:`Step.value`."""
        return torch.sigmoid(t / self.tau)

    def slope(self, t: Tensor) -> Tensor:
        """See :meth:`Step.slope`."""
        value = torch.sigmoid(t / self.tau)
        return value.addcmul_(value, value, value=-1).div_(self.tau)

    def split(self) -> tuple[float, Step | None]:
        """See :meth:`Step.split`."""
        return 0.0, self


@dataclass(frozen=True)
class SupRankStep:
    """H^- of SupRank, an upper bound of H (paper, Eq. 4).

    ::

        H^-(t) = sigma(t / tau)                  t < 0
                 sigma(t / tau) + start          0 <= t <= delta
                 rho (t - delta) + offset        t > delta

    With the defaults it is continuous above 0 and jumps from 1/2 to 1 at 0. The second branch
    includes 0, so ties are bounded, too. The slope rho beyond delta does not vanish, however wrong
    the ranking is.

    Args:
        tau: Temperature, at least 1e-8.
        rho: Slope beyond ``delta``, 0 or more.
        delta: Score difference where the line begins, 0 or more.
        start: Constant added between 0 and ``delta``.
        offset: Value at which the line begins. Default: sigma(delta / tau) + start, which makes it
            continuous.

    Raises:
        ConfigurationError: A number is out of range.

    >>> SupRankStep().value(torch.tensor([-1.0, 0.0, 0.05, 0.06], dtype=torch.float64)).round(decimals=4)
    tensor([0.0000, 1.0000, 1.4933, 2.4933], dtype=torch.float64)
    """

    tau: float = 0.01
    rho: float = 100.0
    delta: float = 0.05
    start: float = 0.5
    offset: float | None = None

    def __post_init__(self) -> None:
        check_temperature("tau", self.tau)
        require(self.rho >= 0 and self.delta >= 0, "0 or more", rho=self.rho, delta=self.delta)

    @property
    def line_start(self) -> float:
        """Value at which the line begins."""
        if self.offset is not None:
            return self.offset
        return self.sigmoid_at_delta + self.start

    @property
    def sigmoid_at_delta(self) -> float:
        """Value of the sigmoid where the line begins, sigma(delta / tau)."""
        return 1 / (1 + math.exp(-self.delta / self.tau))

    @property
    def jump(self) -> float:
        """Height of the jump at the beginning of the line, 0 for a continuous step."""
        return self.line_start - self.sigmoid_at_delta - self.start

    def value(self, t: Tensor) -> Tensor:
        """See :meth:`Step.value`."""
        value = self._near(t)
        value.add_((t - self.delta).clamp_(min=0), alpha=self.rho)
        if self.start:
            value.add_(torch.ge(t, 0, out=torch.empty_like(t)), alpha=self.start)
        if self.jump:
            value.add_(torch.gt(t, self.delta, out=torch.empty_like(t)), alpha=self.jump)
        return value

    def slope(self, t: Tensor) -> Tensor:
        """See :meth:`Step.slope`."""
        near = self._near(t)
        slope = near.addcmul_(near, near, value=-1).div_(self.tau)
        slope_at_delta = self.sigmoid_at_delta * (1 - self.sigmoid_at_delta) / self.tau
        is_on_line = torch.gt(t, self.delta, out=torch.empty_like(t))
        return slope.add_(is_on_line, alpha=self.rho - slope_at_delta)

    def split(self) -> tuple[float, Step | None]:
        """See :meth:`Step.split`."""
        offset = None if self.offset is None else self.offset - self.start
        return self.start, replace(self, start=0.0, offset=offset)

    def _near(self, t: Tensor) -> Tensor:
        """Return sigma(min(t, delta) / tau); a clamp is much faster than a choice of branches."""
        return t.clamp(max=self.delta).div_(self.tau).sigmoid_()


@dataclass(frozen=True)
class LeakyStep:
    """A step with slopes on both sides, an option of H-rank^+ in the authors' settings.

    ::

        leak t                   t <= 0
        min(beta t + gamma, 1)   t > 0

    It pulls items of a finer level than k above k.

    Args:
        beta: Slope above 0, 0 or more.
        gamma: Value just above 0.
        leak: Slope below 0, 0 or more.

    Raises:
        ConfigurationError: A slope is negative.

    >>> LeakyStep().value(torch.tensor([-0.01, 0.0, 0.01, 0.1], dtype=torch.float64))
    tensor([-0.1000,  0.0000,  0.7500,  1.0000], dtype=torch.float64)
    """

    beta: float = 25.0
    gamma: float = 0.5
    leak: float = 10.0

    def __post_init__(self) -> None:
        require(self.beta >= 0 and self.leak >= 0, "0 or more", beta=self.beta, leak=self.leak)

    def value(self, t: Tensor) -> Tensor:
        """See :meth:`Step.value`."""
        return torch.where(t > 0, (self.beta * t + self.gamma).clamp(max=1), self.leak * t)

    def slope(self, t: Tensor) -> Tensor:
        """See :meth:`Step.slope`."""
        above = self.beta * (self.beta * t + self.gamma <= 1).to(t.dtype)
        return torch.where(t > 0, above, self.leak)

    def split(self) -> tuple[float, Step | None]:
        """See :meth:`Step.split`."""
        return 0.0, self


def as_line_step(step: Sigmoid | SupRankStep) -> SupRankStep:
    """Return a sigmoid as a :class:`SupRankStep` whose line never begins."""
    if isinstance(step, SupRankStep):
        return step
    return SupRankStep(step.tau, rho=0.0, delta=math.inf, start=0.0)


#: The published forms of H^-, see :func:`suprank_step`.
Variant = Literal["eq4", "cfg144", "cfginat"]


def suprank_step(
    variant: Variant = "eq4",
    *,
    tau: float = SupRankStep.tau,
    rho: float = SupRankStep.rho,
    delta: float = SupRankStep.delta,
) -> SupRankStep:
    """Return H^- of the paper or of one of the published settings.

    Args:
        variant: ``eq4`` for Eq. 4 of the paper, or a step of the authors' settings files:
            ``cfg144`` (SOP, CUB, Cars196, DyML and H-GLDv2) drops by 0.053 at ``delta``;
            ``cfginat`` (iNaturalist) is 1/2 at 0 and not an upper bound.
        tau: Temperature, at least 1e-8.
        rho: Slope beyond ``delta``, 0 or more.
        delta: Score difference where the line begins, 0 or more.

    Raises:
        ConfigurationError: There is no such variant, or a number is out of range.

    >>> suprank_step("cfg144", rho=10.0)
    SupRankStep(tau=0.01, rho=10.0, delta=0.05, start=0.5, offset=1.44)
    """
    require_choice(Variant, variant=variant)
    if variant == "eq4":
        return SupRankStep(tau, rho, delta)
    if variant == "cfg144":
        return SupRankStep(tau, rho, delta, start=0.5, offset=1.44)
    return SupRankStep(tau, rho, delta, start=0.0, offset=1.0)


#: The steps that losses use by default.
HEAVISIDE = Heaviside()
SIGMOID = Sigmoid()
SUPRANK_STEP = SupRankStep()

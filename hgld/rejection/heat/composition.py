"""One energy from several: Eq. 5.7 over beta."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from hgld.errors import ConfigurationError

#: How energies are composed.
#:
#: ``standardised_mean``: :func:`compose_mean` of standardised energies. The default: priors have energies of very
#: different scales (that of Gaussians is divided by 1,000), and without it the one with the largest spread decides
#: alone. At ``beta`` 0 it orders images as the published code does, and so as in the thesis's tables.
#: ``eq57_mean``: :func:`compose_mean` of the energies themselves.
#: ``eq57``: Eq. 5.7 as it is written, :func:`compose`.
#: ``heatood``: the published code: the sum of standardised energies at ``beta`` 0, else Eq. 5.7 of them.
Composition = Literal["standardised_mean", "eq57_mean", "eq57", "heatood"]

#: Beyond these, ``beta`` is taken as infinite or 0: it is no number of float32 any more.
_LARGE, _SMALL = 1e30, 1e-30


@dataclass(frozen=True, eq=False)
class Standardisation:
    """Means and standard deviations of energies, which standardised ones are measured in.

    Args:
        means: float, shape (K,): mean of each energy over the images of the index.
        deviations: float, shape (K,): standard deviation of each, over n - 1.
    """

    means: torch.Tensor
    deviations: torch.Tensor

    @classmethod
    def of(cls, energies: torch.Tensor) -> Standardisation:
        """Measure energies, shape (K, n); of a constant energy the deviation is taken as 1."""
        wide = energies.double()
        deviations = wide.std(dim=1) if wide.shape[1] > 1 else torch.zeros_like(wide[:, 0])
        deviations = torch.where(deviations > 0, deviations, torch.ones_like(deviations))
        return cls(wide.mean(dim=1).to(energies.dtype), deviations.to(energies.dtype))

    def __call__(self, energies: torch.Tensor) -> torch.Tensor:
        """Return standardised energies, shape (K, n)."""
        return (energies - self.means[:, None]) / self.deviations[:, None]


def compose(energies: torch.Tensor, beta: float) -> torch.Tensor:
    """Return Eq. 5.7, ``(1 / beta) log sum_k exp(beta E_k)``; the maximum or minimum for an infinite ``beta``.

    It has no limit at ``beta`` 0, near which it is ``log(K) / beta`` more than the mean, although the thesis calls it
    a sum there (Sec. 5.2.2), and also the mean (Sec. 5.3.3); see :func:`compose_mean`.

    Args:
        energies: float, shape (K, n).
        beta: Exponent; not 0.

    Raises:
        ConfigurationError: ``beta`` is 0 or NaN.

    >>> energies = torch.tensor([[0.0], [1.0]])
    >>> [round(compose(energies, beta).item(), 3) for beta in (-math.inf, -1.0, 1.0, math.inf)]
    [0.0, -0.313, 1.313, 1.0]
    """
    if beta == 0:
        raise ConfigurationError(
            "`beta` is 0, where the composition eq57 has no limit; choose eq57_mean, which has the mean there"
        )
    _require_number(beta)
    extreme = energies.amax(dim=0) if beta > 0 else energies.amin(dim=0)
    if abs(beta) > _LARGE:
        return extreme
    # No exponent is above 0, so none overflows.
    return extreme + (beta * (energies - extreme)).exp().sum(dim=0).log() / beta


def compose_mean(energies: torch.Tensor, beta: float) -> torch.Tensor:
    """Return ``(1 / beta) log((1 / K) sum_k exp(beta E_k))``, which is continuous in ``beta``: the mean at 0.

    It differs from Eq. 5.7 by a constant for each ``beta`` other than 0, so it orders images in the same way.

    Args:
        energies: float, shape (K, n).
        beta: Exponent, from the minimum at -inf over the mean at 0 to the maximum at inf.

    Raises:
        ConfigurationError: ``beta`` is NaN.

    >>> energies = torch.tensor([[0.0], [1.0]])
    >>> [round(compose_mean(energies, beta).item(), 3) for beta in (-math.inf, -1.0, 0.0, 1.0, math.inf)]
    [0.0, 0.38, 0.5, 0.62, 1.0]
    """
    _require_number(beta)
    mean = energies.mean(dim=0)
    if abs(beta) < _SMALL:
        return mean
    if abs(beta) > _LARGE:
        return compose(energies, beta)
    # For small exponents, log K / beta would leave few digits; the others are moved into the range of expm1 unused.
    exponents = beta * (energies - mean)
    small = mean + exponents.clamp(-1, 1).expm1().mean(dim=0).log1p() / beta
    large = compose(energies, beta) - math.log(len(energies)) / beta
    return torch.where(exponents.abs().amax(dim=0) < 1, small, large)


def compose_energies(
    energies: torch.Tensor, beta: float, composition: Composition, standardisation: Standardisation
) -> torch.Tensor:
    """Return the composition of energies, shape (K, n) -> (n,).

    Args:
        energies: float, shape (K, n).
        beta: Exponent of Eq. 5.7.
        composition: How they are composed; see :data:`Composition`.
        standardisation: Scales of the energies, for the compositions that use them.

    Raises:
        ConfigurationError: ``beta`` is NaN, or 0 for eq57.
    """
    if composition == "eq57":
        return compose(energies, beta)
    if composition == "eq57_mean":
        return compose_mean(energies, beta)
    energies = standardisation(energies)
    if composition == "standardised_mean":
        return compose_mean(energies, beta)
    return energies.sum(dim=0) if beta == 0 else compose(energies, beta)


def check_composition(beta: float, composition: Composition) -> None:
    """Raise :class:`ConfigurationError` for an unknown composition or a ``beta`` for which it is not defined."""
    known = get_args(Composition)
    if composition not in known:
        raise ConfigurationError(f"`composition` is {composition}; expected one of {', '.join(known)}")
    compose_energies(torch.zeros(1, 1), beta, composition, Standardisation(torch.zeros(1), torch.ones(1)))


def _require_number(beta: float) -> None:
    if math.isnan(beta):
        raise ConfigurationError("`beta` is NaN; expected a number, or -inf for the minimum and inf for the maximum")

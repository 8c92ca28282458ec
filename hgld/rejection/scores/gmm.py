"""Energy of a mixture of Gaussians of the classes."""

from __future__ import annotations

from typing import Literal, get_args

import torch

from hgld.errors import ConfigurationError
from hgld.rejection.gaussian_detector import GaussianDetector
from hgld.rejection.option_checks import check_above_0, check_choice

Variant = Literal["paper", "code"]


class Gmm(GaussianDetector):
    """The energy of a mixture of Gaussians of the landmarks, the feature prior of thesis Sec. 5.2.2.

    ``- log sum_c exp(-d_c^2 / 2)``, with d_c the Mahalanobis distance to landmark c and one covariance for all. In
    many dimensions the nearest landmark decides, and the order is nearly that of ``ssd_plus``.

    Args:
        variant: ``paper`` for the formula; ``code`` for what heatood computes, the negative log-likelihood with the
            frequencies of the landmarks as weights, and all constants.
        temperature: Temperature T_G of the mixture, 1000 in the thesis. By default it is 1, since as a factor it
            changes no order.
        temperature_inside: The thesis says "temperature scaling" and no more. False divides the energy by T; True
            computes ``- T log sum_c exp(-d_c^2 / (2T))``, for large T nearly the mean distance to all landmarks,
            which rejects worse.
        normalize: Whether to scale embeddings to length 1, as heatood does.
        shrinkage: See :class:`~hgld.rejection.scores.mahalanobis.Mahalanobis`.

    Raises:
        ConfigurationError: The temperature is not above 0, or is to be inside the likelihood of ``code``; or there
            is no such variant.
    """

    name = "gmm"

    def __init__(
        self,
        variant: Variant = "paper",
        temperature: float = 1.0,
        temperature_inside: bool = False,
        normalize: bool = True,
        shrinkage: float | None = None,
    ) -> None:
        check_choice(get_args(Variant), variant=variant)
        check_above_0(temperature=temperature)
        if temperature_inside and variant == "code":
            raise ConfigurationError("`temperature_inside` is an option of the `variant` paper; heatood divides by T")
        self.variant = variant
        self.temperature = temperature
        self.temperature_inside = temperature_inside
        self.normalize = normalize
        self.shrinkage = shrinkage

    def _score_embeddings(self, embeddings: torch.Tensor) -> torch.Tensor:
        if self.variant == "code":
            return self.gaussians.negative_log_likelihoods(embeddings) / self.temperature
        if self.temperature_inside:
            return self.gaussians.mixture_energies(embeddings, temperature=self.temperature)
        return self.gaussians.mixture_energies(embeddings) / self.temperature

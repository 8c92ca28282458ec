"""HEAT: a composition of prior energies that are corrected by learnt residual energies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor

from hgld.arrays import Integers
from hgld.compute.scoring import at_least_float32, checked_device
from hgld.errors import ConfigurationError, InputError, require, require_at_least, require_choice
from hgld.rejection.classifiers import LinearClassifier, index_classifier
from hgld.rejection.detector import Detector, DetectorInputs
from hgld.rejection.gaussians import fit_gaussians
from hgld.rejection.heat_priors import (
    GaussianPrior,
    LogitPrior,
    Prior,
    PriorName,
    Sampler,
    Variant,
    gaussian_sampler,
    normal_sampler,
)
from hgld.rejection.residual_energy import (
    PRESETS,
    CorrectedEnergy,
    ResidualSettings,
    train_residual_energy,
)

#: Absolute values of ``beta`` above this limit count as infinite, near the limit of float32.
_LARGE = 1e30
#: Absolute values of ``beta`` below this limit count as 0, near the limit of float32.
_SMALL = 1e-30
#: Options of the training of residual energies, which may differ between priors.
_TRAINING = ("epochs", "batch_size", "hidden_dim", "learning_rate", "l2", "temperature")
#: Options of the sampling of negatives, which may differ between priors.
_SAMPLING = ("steps", "step_size", "noise")


@dataclass(eq=False)
class Heat(Detector):
    """The composition of corrected energies of priors (thesis, chapter 5; Lafon et al., ICML 2023).

    The priors are ``gmm``, class Gaussians of embeddings; ``energy``, the energy of the logits of a
    linear classifier; and ``gmm_std``, class Gaussians of the standard deviations of feature maps.
    With a single prior, the score is HEAT-GMM, HEAT-EL or HEAT-GMM_std. Options that are None have
    the value of the variant's preset, :data:`hgld.rejection.residual_energy.PRESETS`.

    Classes are the labels of the finest level. It is impossible to sample from the density of the
    classifier, so its chains begin at samples of class Gaussians, or in the published code at
    standard normal noise.

    Args:
        priors: Names of the priors, separated by commas. Default: all; gmm_std only if deviations
            are given.
        variant: ``thesis`` or ``code``, the published code; see
            :mod:`hgld.rejection.residual_energy`.
        standardised: Whether energies are standardised over the index before they are composed, as
            in the published code. Energies of priors have very different scales (the energy of
            Gaussians is divided by 1,000), and without standardisation the energy with the largest
            spread dominates.
        beta: Exponent of the composition, from -inf to inf, see :func:`compose`; the thesis reports
            0.
        epochs: Number of passes over the index in training; 0 corrects the priors by a random,
            untrained network.
        batch_size: Number of images of each update.
        hidden_dim: Number of hidden units of the residual energies.
        learning_rate: Learning rate.
        l2: Weight lambda of the squared residual energies.
        temperature: Temperature T_G that divides the energy of a prior; with inf, only the residual
            energy remains, the data-driven EBM of Table 5.2.
        steps: Number of steps of Langevin dynamics.
        step_size: Size of the first step, which decays to a tenth.
        noise: Scale of the noise of the first step, which decays to a tenth.
        per_prior: Options from ``epochs`` to ``noise`` that differ for a prior, by the name of the
            prior.
        shrinkage: See :class:`~hgld.rejection.gaussian_scores.GaussianDetector`.
        classifier: See :class:`~hgld.rejection.logit_scores.ClassifierDetector`.
        seed: Seed of training.
        device: Device of training and scoring: ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        ConfigurationError: An option is out of range, or a prior is unknown.
    """

    name: ClassVar[str] = "heat"
    priors: str | None = None
    variant: Variant = "thesis"
    standardised: bool = True
    beta: float = 0.0
    epochs: int | None = None
    batch_size: int | None = None
    hidden_dim: int | None = None
    learning_rate: float | None = None
    l2: float | None = None
    temperature: float | None = None
    steps: int | None = None
    step_size: float | None = None
    noise: float | None = None
    per_prior: Mapping[str, Mapping[str, int | float]] | None = None
    shrinkage: float | None = None
    classifier: LinearClassifier | str = "softmax"
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        require_choice(Variant, variant=self.variant)
        require(not math.isnan(self.beta), "a number, or -inf or inf", beta=self.beta)
        require_at_least(1, batch_size=self.batch_size, hidden_dim=self.hidden_dim)
        require_at_least(0, epochs=self.epochs, steps=self.steps)
        for name in ("l2", "step_size", "noise"):
            value = getattr(self, name)
            is_valid = value is None or 0 <= value < math.inf
            require(is_valid, "a number of 0 or more", **{name: value})
        rate = self.learning_rate
        require(rate is None or 0 < rate < math.inf, "a number above 0", learning_rate=rate)
        is_valid = self.temperature is None or self.temperature > 0
        require(is_valid, "a number above 0, or inf", temperature=self.temperature)
        self._settings: dict[str, ResidualSettings] = {}
        for prior in get_args(PriorName):
            self._settings[prior] = self._prior_settings(prior)
        known_options = _TRAINING + _SAMPLING
        for name, changes in (self.per_prior or {}).items():
            if name not in self._settings or not changes.keys() <= set(known_options):
                raise ConfigurationError(
                    f"`per_prior` has {', '.join(changes)} of {name}; expected options of "
                    f"{', '.join(self._settings)}: {', '.join(known_options)}"
                )
            options: dict[str, Any] = {**changes, "per_prior": None}
            changed = replace(self, **options)  # its constructor checks the values
            self._settings[name] = changed._settings[name]
        self._priors = None if self.priors is None else _parse_priors(self.priors)

    def _fit(self, images: DetectorInputs) -> None:
        labels = images.required_labels(self.name)
        device = checked_device(self.device)
        names: list[PriorName] = self._priors or ["gmm", "energy"]
        self._n_channels = 0
        if images.deviations is not None:
            self._n_channels = images.deviations.shape[1]
            names = self._priors or list(get_args(PriorName))
        elif "gmm_std" in names:
            raise ConfigurationError(
                "the prior gmm_std needs `deviations`, the standard deviations of feature maps (hgld embed-images "
                "--with-std); name other `priors`, such as gmm,energy"
            )
        self._energies: dict[PriorName, CorrectedEnergy] = {}
        for name in names:
            inputs = self._inputs(name, images)
            settings = self._settings[name]
            prior, sampler = self._prior(name, inputs, labels, device)
            residual = train_residual_energy(
                prior, sampler, inputs, settings, name=name, seed=self.seed
            )
            self._energies[name] = CorrectedEnergy(prior, residual, settings.temperature)
        blocks = [self._corrected_energies(block) for block in images.blocks()]
        self._standardisation = Standardisation.from_energies(torch.cat(blocks, dim=1))

    def _score(self, images: DetectorInputs) -> Tensor:
        energies = self._corrected_energies(images)
        if self.standardised:
            energies = self._standardisation(energies)
        return compose(energies, self.beta).to(at_least_float32(images.embeddings[:0]).dtype)

    def _corrected_energies(self, images: DetectorInputs) -> Tensor:
        """Return the corrected energy of each prior, shape (K, n)."""
        rows = []
        for name, energy in self._energies.items():
            rows.append(energy(energy.prior.features(self._inputs(name, images))))
        return torch.stack(rows)

    def _inputs(self, name: PriorName, images: DetectorInputs) -> Tensor:
        """Return the inputs of a prior, float, shape (n, d) or (n, c)."""
        if name != "gmm_std":
            return images.embeddings
        deviations = images.deviations
        if deviations is None:
            raise ConfigurationError(
                "the score heat was fitted with `deviations`, and they are missing; embed the images with hgld "
                "embed-images --with-std, or fit the score with other `priors`, such as gmm,energy"
            )
        if deviations.shape[1] != self._n_channels:
            raise InputError(
                f"the deviations have {deviations.shape[1]} channels, and the score heat was fitted on "
                f"{self._n_channels}; embed both with the same model"
            )
        return deviations.to(at_least_float32(images.embeddings[:0]).dtype)

    def _prior(
        self, name: PriorName, inputs: Tensor, labels: Integers, device: torch.device
    ) -> tuple[Prior, Sampler]:
        """Fit a prior, and return it with the sampler of the starts of its chains."""
        if name == "energy":
            classifier = index_classifier(self.classifier, inputs, labels, self.name).to(device)
            if self.variant == "code":
                return LogitPrior(classifier), normal_sampler(classifier.weight)
            gaussians = fit_gaussians(inputs, labels, shrinkage=self.shrinkage)
            return LogitPrior(classifier), gaussian_sampler(gaussians.to(device))
        gaussians = fit_gaussians(inputs, labels, unit_length=True, shrinkage=self.shrinkage)
        gaussians = gaussians.to(device)
        weights = None
        if self.variant == "code":
            weights = gaussians.log_frequencies.exp()
        return GaussianPrior(gaussians, self.variant), gaussian_sampler(gaussians, weights)

    def _prior_settings(self, name: PriorName) -> ResidualSettings:
        """Return the preset of a prior, changed by the options that are not None."""
        preset = PRESETS[self.variant][name]
        changes: dict[str, Any] = {}
        for option in _TRAINING:
            if getattr(self, option) is not None:
                changes[option] = getattr(self, option)
        sampling: dict[str, Any] = {}
        if self.steps is not None:
            sampling["steps"] = self.steps
        if self.step_size is not None:
            sampling["step_size"] = (self.step_size, self.step_size / 10)
        if self.noise is not None:
            sampling["noise"] = (self.noise, self.noise / 10)
        langevin = replace(preset.langevin, **sampling)
        return replace(preset, langevin=langevin, **changes)


def _parse_priors(text: str) -> list[PriorName]:
    """Return the priors named in a text such as ``gmm,energy``, in a fixed order."""
    names = [name.strip() for name in text.split(",")]
    known = get_args(PriorName)
    selected: list[PriorName] = [name for name in known if name in names]
    if len(selected) < len(names):
        raise ConfigurationError(
            f"`priors` is {text}; expected different ones of {', '.join(known)}, between commas"
        )
    return selected


@dataclass(frozen=True, eq=False)
class Standardisation:
    """Means and standard deviations of energies over an index.

    Args:
        means: float, shape (K,).
        deviations: float, shape (K,), above 0.
    """

    means: Tensor
    deviations: Tensor

    @classmethod
    def from_energies(cls, energies: Tensor) -> Standardisation:
        """Measure energies, shape (K, n); the deviation of a constant energy is set to 1."""
        wide = energies.double()
        deviations = torch.ones_like(wide[:, 0])
        if wide.shape[1] > 1:
            measured = wide.std(dim=1)
            deviations = torch.where(measured > 0, measured, deviations)
        return cls(wide.mean(dim=1).to(energies.dtype), deviations.to(energies.dtype))

    def __call__(self, energies: Tensor) -> Tensor:
        """Return standardised energies, shape (K, n)."""
        return (energies - self.means[:, None]) / self.deviations[:, None]


def compose(energies: Tensor, beta: float) -> Tensor:
    """Return ``(1 / beta) log((1 / K) sum_k exp(beta E_k))`` of energies, shape (K, n) -> (n,).

    It is continuous in ``beta``: the minimum at -inf, the mean at 0, the maximum at inf. Eq. 5.7
    lacks the factor 1 / K, which adds ``log(K) / beta`` and does not change the order of images.
    Without this factor it has no limit at 0, although the thesis calls it a sum (Sec. 5.2.2) and
    also the mean (Sec. 5.3.3).

    >>> energies = torch.tensor([[0.0], [1.0]])
    >>> [round(compose(energies, beta).item(), 3) for beta in (-torch.inf, -1.0, 0.0, 1.0, torch.inf)]
    [0.0, 0.38, 0.5, 0.62, 1.0]
    """
    mean = energies.mean(dim=0)
    if abs(beta) < _SMALL:
        return mean
    extreme = energies.amax(dim=0) if beta > 0 else energies.amin(dim=0)
    if abs(beta) > _LARGE:
        return extreme
    # All exponents are at most 0, so they cannot overflow.
    from_extreme = extreme + (beta * (energies - extreme)).exp().mean(dim=0).log() / beta
    # Small exponents are more precise around the mean; large exponents are clamped, as they are not
    # used.
    exponents = beta * (energies - mean)
    from_mean = mean + exponents.clamp(-1, 1).expm1().mean(dim=0).log1p() / beta
    return torch.where(exponents.abs().amax(dim=0) < 1, from_mean, from_extreme)

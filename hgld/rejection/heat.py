"""HEAT: energies of priors, corrected by learnt residual energies, and composed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, get_args

import torch

from hgld.arrays import Integers
from hgld.compute.scoring import at_least_float32, checked_device
from hgld.errors import ConfigurationError, InputError, require, require_at_least, require_choice
from hgld.rejection.classifiers import LinearClassifier, index_classifier
from hgld.rejection.detector import Detector, DetectorInputs
from hgld.rejection.gaussians import fit_gaussians
from hgld.rejection.residual_energy import (
    PRESETS,
    CorrectedEnergy,
    GaussianPrior,
    LogitPrior,
    Prior,
    PriorName,
    ResidualSettings,
    Sampler,
    Variant,
    gaussian_sampler,
    normal_sampler,
    train_residual_energy,
)

#: Beyond these, ``beta`` is taken as infinite or 0: it is no number of float32 any more.
_LARGE, _SMALL = 1e30, 1e-30
#: Options of the training of residual energies, which priors may have of their own: of the training itself, and of
#: sampling.
_TRAINING = ("epochs", "batch_size", "hidden_dim", "learning_rate", "l2", "temperature")
_SAMPLING = ("steps", "step_size", "noise")


@dataclass(eq=False)
class Heat(Detector):
    """The composition of corrected energies of priors (thesis, chapter 5; Lafon et al., ICML 2023).

    The priors are ``gmm``, Gaussians of the classes of embeddings; ``energy``, the energy of the logits of a linear
    classifier; and ``gmm_std``, Gaussians of the classes of the standard deviations of feature maps. With one of them
    the score is HEAT-GMM, HEAT-EL or HEAT-GMM_std. Where options are None, those of the preset of the variant hold,
    :data:`hgld.rejection.residual_energy.PRESETS`.

    Classes are the labels of the finest level. The density of the classifier cannot be sampled from, so its chains
    begin at samples of the Gaussians of the classes; in the published code, at standard normal noise.

    Args:
        priors: Names of the priors, separated by commas. Default: all, but gmm_std only where there are deviations.
        variant: ``thesis`` or ``code``, the published code; see :mod:`hgld.rejection.residual_energy`.
        standardised: Whether energies are standardised over the index before they are composed, as in the published
            code. Priors have energies of very different scales (that of Gaussians is divided by 1,000), and without
            it the one with the largest spread decides alone.
        beta: Exponent of the composition, from -inf to inf, see :func:`compose`; the thesis reports 0.
        epochs: Number of passes over the index in training; 0 leaves the priors uncorrected but for a random,
            untrained network.
        batch_size: Number of images of each update.
        hidden_dim: Number of hidden units of the residual energies.
        learning_rate: Learning rate.
        l2: Weight lambda of the squared residual energies.
        temperature: Temperature T_G that the energy of a prior is divided by; inf leaves the residual energy alone,
            the data-driven EBM of Table 5.2.
        steps: Number of steps of Langevin dynamics.
        step_size: Size of the first step, which decays to a tenth.
        noise: Scale of the noise of the first step, which decays to a tenth.
        per_prior: The options above from ``epochs`` on that differ for one prior, by its name.
        shrinkage: See :class:`~hgld.rejection.gaussians.GaussianDetector`.
        classifier: See :class:`~hgld.rejection.classifiers.ClassifierDetector`.
        seed: Seed of training.
        device: Device of training and scoring: ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        ConfigurationError: An option is out of range, or there is no such prior.
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
            require(
                value is None or 0 <= value < math.inf, "a number of 0 or more", **{name: value}
            )
        rate, temperature = self.learning_rate, self.temperature
        require(rate is None or 0 < rate < math.inf, "a number above 0", learning_rate=rate)
        require(
            temperature is None or temperature > 0,
            "a number above 0, or inf",
            temperature=temperature,
        )
        self._settings: dict[str, ResidualSettings] = {}
        for prior in get_args(PriorName):
            self._settings[prior] = self._prior_settings(prior)
        for name, changes in (self.per_prior or {}).items():
            if name not in self._settings or not changes.keys() <= {*_TRAINING, *_SAMPLING}:
                raise ConfigurationError(
                    f"`per_prior` has {', '.join(changes)} of {name}; expected options of "
                    f"{', '.join(self._settings)}: {', '.join((*_TRAINING, *_SAMPLING))}"
                )
            options: dict[str, Any] = {**changes, "per_prior": None}
            changed = replace(self, **options)  # which checks the values
            self._settings[name] = changed._settings[name]
        self._priors = None if self.priors is None else _parse_priors(self.priors)

    def _fit(self, images: DetectorInputs) -> None:
        labels = images.required_labels(self.name)
        device = checked_device(self.device)
        available = [
            name
            for name in get_args(PriorName)
            if name != "gmm_std" or images.deviations is not None
        ]
        names = self._priors or available
        if missing := [name for name in names if name not in available]:
            raise ConfigurationError(
                f"the prior {missing[0]} needs `deviations`, the standard deviations of feature maps (hgld "
                "embed-images --with-std); name other `priors`, such as gmm,energy"
            )
        self._energies: dict[PriorName, CorrectedEnergy] = {}
        self._n_channels = 0 if images.deviations is None else images.deviations.shape[1]
        for name in names:
            inputs, settings = self._inputs(name, images), self._settings[name]
            prior, sampler = self._prior(name, inputs, labels, device)
            residual = train_residual_energy(
                prior, sampler, inputs, settings, name=name, seed=self.seed
            )
            self._energies[name] = CorrectedEnergy(prior, residual, settings.temperature)
        energies = torch.cat([self._corrected_energies(block) for block in images.blocks()], dim=1)
        self._standardisation = Standardisation.of(energies)

    def _score(self, images: DetectorInputs) -> torch.Tensor:
        energies = self._corrected_energies(images)
        if self.standardised:
            energies = self._standardisation(energies)
        return compose(energies, self.beta).to(at_least_float32(images.embeddings[:0]).dtype)

    def _corrected_energies(self, images: DetectorInputs) -> torch.Tensor:
        """Return the corrected energy of each prior, shape (K, n)."""
        rows = []
        for name, energy in self._energies.items():
            rows.append(energy(energy.prior.features(self._inputs(name, images))))
        return torch.stack(rows)

    def _inputs(self, name: PriorName, images: DetectorInputs) -> torch.Tensor:
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
        self, name: PriorName, inputs: torch.Tensor, labels: Integers, device: torch.device
    ) -> tuple[Prior, Sampler]:
        """Fit a prior, and return it with the sampler of the features that its chains begin at."""
        if name == "energy":
            classifier = index_classifier(self.classifier, inputs, labels, self.name).to(device)
            if self.variant == "code":
                return LogitPrior(classifier), normal_sampler(classifier.weight)
            starts = fit_gaussians(inputs, labels, shrinkage=self.shrinkage).to(device)
            return LogitPrior(classifier), gaussian_sampler(starts)
        gaussians = fit_gaussians(inputs, labels, unit_length=True, shrinkage=self.shrinkage).to(
            device
        )
        weights = gaussians.log_frequencies.exp() if self.variant == "code" else None
        return GaussianPrior(gaussians, self.variant), gaussian_sampler(gaussians, weights)

    def _prior_settings(self, name: PriorName) -> ResidualSettings:
        """Return the preset of a prior with the options that are set."""
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
        return replace(preset, langevin=replace(preset.langevin, **sampling), **changes)


def _parse_priors(text: str) -> list[PriorName]:
    """Return the priors named in ``gmm,energy``, in the order of their definition."""
    names = [name.strip() for name in text.split(",")]
    known = get_args(PriorName)
    unknown = [name for name in names if name not in known]
    if unknown or len(set(names)) < len(names):
        raise ConfigurationError(
            f"`priors` is {text}; expected different ones of {', '.join(known)}, between commas"
        )
    return [name for name in known if name in names]


@dataclass(frozen=True, eq=False)
class Standardisation:
    """Means and standard deviations of energies, which standardised ones are measured in."""

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
    """Return ``(1 / beta) log((1 / K) sum_k exp(beta E_k))`` of energies, shape (K, n) -> (n,).

    It is continuous in ``beta``: the minimum at -inf, the mean at 0, the maximum at inf. Eq. 5.7 lacks the factor
    1 / K, which adds ``log(K) / beta`` and changes no order; it has no limit at ``beta`` 0, although the thesis calls
    it a sum there (Sec. 5.2.2), and also the mean (Sec. 5.3.3).

    >>> energies = torch.tensor([[0.0], [1.0]])
    >>> [round(compose(energies, beta).item(), 3) for beta in (-torch.inf, -1.0, 0.0, 1.0, torch.inf)]
    [0.0, 0.38, 0.5, 0.62, 1.0]
    """
    mean, extreme = energies.mean(dim=0), energies.amax(dim=0) if beta > 0 else energies.amin(dim=0)
    if abs(beta) < _SMALL or abs(beta) > _LARGE:
        return mean if abs(beta) < _SMALL else extreme
    # No exponent is above 0, so none overflows.
    large = extreme + (beta * (energies - extreme)).exp().mean(dim=0).log() / beta
    # Small exponents keep more digits beside the mean; the others are clamped, as torch.where leaves them out.
    exponents = beta * (energies - mean)
    small = mean + exponents.clamp(-1, 1).expm1().mean(dim=0).log1p() / beta
    return torch.where(exponents.abs().amax(dim=0) < 1, small, large)

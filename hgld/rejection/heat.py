"""HEAT: energies of priors, corrected by learnt residual energies, and composed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, get_args

import torch

from hgld.compute.scoring import ScoringConfig, at_least_float32
from hgld.errors import ConfigurationError, InputError
from hgld.rejection.classifiers import LinearClassifier, index_classifier
from hgld.rejection.detector import Detector, DetectorInputs, Input, Scores, choice, option
from hgld.rejection.gaussians import ClassGaussians, fit_gaussians
from hgld.rejection.residual_energy import (
    PRESETS,
    GaussianPrior,
    LogitPrior,
    Prior,
    PriorName,
    ResidualEnergy,
    ResidualSettings,
    Sampler,
    Variant,
    corrected_energy,
    gaussian_sampler,
    normal_sampler,
    train_residual_energy,
)

_BLOCK = 8192

#: Beyond these, ``beta`` is taken as infinite or 0: it is no number of float32 any more.
_LARGE, _SMALL = 1e30, 1e-30
#: Options of the training of residual energies, which priors may have of their own.
_TRAINING = (
    *("epochs", "batch_size", "hidden_dim", "learning_rate", "l2", "temperature"),
    *("steps", "step_size", "noise"),
)


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
    requires: ClassVar[frozenset[Input]] = frozenset[Input]({"labels"})
    uses: ClassVar[frozenset[Input]] = frozenset[Input]({"deviations"})
    priors: str | None = None
    variant: Variant = choice("thesis", Variant)
    standardised: bool = True
    beta: float = option(0.0, "a number, or -inf or inf")
    epochs: int | None = option(None, "a number of 0 or more")
    batch_size: int | None = option(None, "at least 1")
    hidden_dim: int | None = option(None, "at least 1")
    learning_rate: float | None = option(None, "a number above 0")
    l2: float | None = option(None, "a number of 0 or more")
    temperature: float | None = option(None, "a number above 0, or inf")
    steps: int | None = option(None, "a number of 0 or more")
    step_size: float | None = option(None, "a number of 0 or more")
    noise: float | None = option(None, "a number of 0 or more")
    per_prior: Mapping[str, Mapping[str, int | float]] | None = None
    shrinkage: float | None = option(None, "a number from 0 to 1")
    classifier: str = "softmax"
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._named = None if self.priors is None else _parse_priors(self.priors)
        self._settings = {prior: self._prior_settings(prior) for prior in get_args(PriorName)}
        for prior, changes in (self.per_prior or {}).items():
            if prior not in self._settings or not changes.keys() <= set(_TRAINING):
                raise ConfigurationError(
                    f"`per_prior` has {', '.join(changes)} of {prior}; expected options of "
                    f"{', '.join(self._settings)}: {', '.join(_TRAINING)}"
                )
            options: dict[str, Any] = {**changes, "per_prior": None}
            own = replace(self, **options)  # which checks the values
            self._settings[prior] = own._settings[prior]
        self._fitted: dict[PriorName, tuple[Prior, ResidualEnergy]] = {}
        self._on = torch.device("cpu")

    def state(self) -> dict[str, torch.Tensor]:
        """Return the priors, residual energies, and the scales of energies."""
        tensors = {
            "energy_means": self._standardisation.means,
            "energy_deviations": self._standardisation.deviations,
        }
        for name, (prior, residual) in self._fitted.items():
            tensors |= {f"{name}.prior.{key}": tensor for key, tensor in prior.tensors().items()}
            tensors |= {f"{name}.residual.{key}": tensor for key, tensor in residual.state_dict().items()}
        return {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}

    def _fit(self, images: DetectorInputs) -> None:
        assert images.labels is not None
        self._on = torch.device(ScoringConfig(device=self.device).device)  # checks it
        available = [name for name in get_args(PriorName) if name != "gmm_std" or images.deviations is not None]
        names = self._named or available
        if missing := [name for name in names if name not in available]:
            raise ConfigurationError(
                f"the prior {missing[0]} needs `deviations`, the standard deviations of feature maps (hgld "
                "embed-images --with-std); name other `priors`, such as gmm,energy"
            )
        self._fitted = {}
        for name in names:
            prior, sampler = self._prior(name, images)
            inputs, settings = self._inputs(name, images), self._settings[name]
            residual = train_residual_energy(prior, sampler, inputs, settings, name=name, seed=self.seed)
            self._fitted[name] = (prior, residual)
        blocks = [
            self._energies(images.rows(slice(start, start + _BLOCK))) for start in range(0, len(images), _BLOCK)
        ]
        self._standardisation = Standardisation.of(torch.cat(blocks, dim=1))

    def _score(self, images: DetectorInputs) -> Scores:
        energies = self._energies(images)
        composed = compose(self._standardisation(energies) if self.standardised else energies, self.beta)
        return composed.to(at_least_float32(images.embeddings[:0]).dtype).cpu().numpy()

    def _restore(self, state: Mapping[str, torch.Tensor]) -> None:
        # A score that was fitted on a GPU also works without one.
        device = self._on = torch.device(self.device if self.device == "cpu" or torch.cuda.is_available() else "cpu")
        self._standardisation = Standardisation(
            state["energy_means"].to(device), state["energy_deviations"].to(device)
        )
        self._fitted = {}
        for name in get_args(PriorName):
            tensors, weights = (
                {key.removeprefix(prefix): tensor.clone() for key, tensor in state.items() if key.startswith(prefix)}
                for prefix in (f"{name}.prior.", f"{name}.residual.")
            )
            if tensors:
                if name == "energy":
                    prior: Prior = LogitPrior(LinearClassifier(**tensors))
                else:
                    prior = GaussianPrior(ClassGaussians(**tensors), self.variant)
                self._fitted[name] = (prior.to(device), self._residual_from(name, weights).to(device))

    def _energies(self, images: DetectorInputs) -> torch.Tensor:
        """Return the corrected energy of each prior, shape (K, n)."""
        rows = []
        for name, (prior, residual) in self._fitted.items():
            features = prior.features(self._inputs(name, images)).to(self._on)
            rows.append(corrected_energy(prior, residual, self._settings[name].temperature)(features))
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
        if "gmm_std" in self._fitted:
            prior, _ = self._fitted["gmm_std"]
            expected = len(prior.tensors()["origin"])
            if deviations.shape[1] != expected:
                raise InputError(
                    f"the deviations have {deviations.shape[1]} channels, and the score heat was fitted on "
                    f"{expected}; embed both with the same model"
                )
        return deviations.to(at_least_float32(images.embeddings[:0]).dtype)

    def _prior(self, name: PriorName, images: DetectorInputs) -> tuple[Prior, Sampler]:
        """Fit a prior, and return it with the sampler of the features that its chains begin at."""
        assert images.labels is not None
        inputs, classes = self._inputs(name, images), images.labels[:, 0]
        is_code = self.variant == "code"
        if name == "energy":
            logit_prior = LogitPrior(index_classifier(self.classifier, images, self.name)).to(self._on)
            if is_code:
                return logit_prior, normal_sampler(logit_prior.density.weight)
            gaussians = GaussianPrior(fit_gaussians(inputs, classes, shrinkage=self.shrinkage)).to(self._on).density
            return logit_prior, gaussian_sampler(gaussians)
        fitted = fit_gaussians(inputs, classes, unit_length=True, shrinkage=self.shrinkage)
        prior = GaussianPrior(fitted, self.variant).to(self._on)
        weights = prior.density.log_frequencies.exp() if is_code else None
        return prior, gaussian_sampler(prior.density, weights)

    def _residual_from(self, name: PriorName, tensors: dict[str, torch.Tensor]) -> ResidualEnergy:
        settings = self._settings[name]
        weight = tensors["first.weight"]
        residual = ResidualEnergy(
            weight.shape[1], len(weight), settings.n_hidden, shared_hidden=settings.shared_hidden
        ).to(weight.dtype)
        residual.load_state_dict(tensors)
        return residual.eval().requires_grad_(False)

    def _prior_settings(self, name: PriorName) -> ResidualSettings:
        """Return the preset of a prior with the options that are set."""
        preset = PRESETS[self.variant][name]
        sampling: dict[str, Any] = {} if self.steps is None else {"steps": self.steps}
        for key in ("step_size", "noise"):
            first = getattr(self, key)
            if first is not None:
                sampling[key] = (first, first / 10)
        changes = {key: getattr(self, key) for key in _TRAINING[:6] if getattr(self, key) is not None}
        return replace(preset, langevin=replace(preset.langevin, **sampling), **changes)


def _parse_priors(text: str) -> list[PriorName]:
    """Return the priors named in ``gmm,energy``, in the order of their definition."""
    names = [name.strip() for name in text.split(",")]
    known = get_args(PriorName)
    unknown = [name for name in names if name not in known]
    if unknown or len(set(names)) < len(names):
        raise ConfigurationError(f"`priors` is {text}; expected different ones of {', '.join(known)}, between commas")
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

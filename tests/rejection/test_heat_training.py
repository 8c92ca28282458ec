"""Sampling and training of residual energies."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hgld.errors import ConfigurationError
from hgld.rejection.classifiers import LinearClassifier
from hgld.rejection.detection_metrics import detection_metrics
from hgld.rejection.gaussians import fit_gaussians, gaussians_from_moments
from hgld.rejection.heat_priors import GaussianPrior, LogitPrior, Variant, gaussian_sampler, normal_sampler
from hgld.rejection.residual_energy import (
    PRESETS,
    CorrectedEnergy,
    LangevinSettings,
    ResidualEnergy,
    ResidualSettings,
    langevin_steps,
    train_residual_energy,
)

TINY = ResidualSettings(hidden_dim=8, epochs=2, batch_size=16, langevin=LangevinSettings(steps=2))


def ring(n: int) -> torch.Tensor:
    """Return unit vectors on a circle around the last axis."""
    generator = torch.Generator().manual_seed(n)
    angles = 2 * torch.pi * torch.rand(n, generator=generator)
    points = torch.stack([angles.cos(), angles.sin(), torch.full((n,), 1.0)], dim=1)
    points += 0.05 * torch.randn(n, 3, generator=generator)
    return torch.nn.functional.normalize(points, dim=1)


def prior_of(points: torch.Tensor, variant: Variant = "thesis") -> GaussianPrior:
    """Return one Gaussian, so round that it is denser inside a ring than on it."""
    labels = np.zeros(len(points), np.int64)
    return GaussianPrior(fit_gaussians(points, labels, unit_length=True, shrinkage=0.9), variant)


def test_the_presets_are_those_of_their_sources() -> None:
    for prior, temperature in (("gmm", 1e3), ("energy", 1.0), ("gmm_std", 1e3)):
        thesis = PRESETS["thesis"][prior]  # type: ignore[index]
        assert (thesis.epochs, thesis.learning_rate, thesis.l2, thesis.temperature) == (20, 5e-6, 10, temperature)
        assert (thesis.hidden_dim, thesis.n_hidden + 2, thesis.shared_hidden) == (1024, 6, False)
        assert thesis.langevin == LangevinSettings(20, (1e-4, 1e-5), (5e-3, 5e-4), "thesis")
        assert thesis.input_noise == 1e-4
        assert thesis.decay_after is None
    code = PRESETS["code"]
    assert [code[prior].decay_after for prior in ("gmm", "energy", "gmm_std")] == [10, 10, 10]
    assert [code[prior].langevin.steps for prior in ("gmm", "energy", "gmm_std")] == [40, 50, 1]
    assert [code[prior].l2 for prior in ("gmm", "energy", "gmm_std")] == [10, 0.1, 10]
    assert [code[prior].batch_size for prior in ("gmm", "energy", "gmm_std")] == [1024, 256, 1024]


def test_sizes_of_steps_decay_to_their_last_value() -> None:
    settings = LangevinSettings(3, (1.0, 0.5), None, "thesis")
    assert settings.step_sizes() == [1.0, 0.75, 0.5]
    assert settings.gradient_factors() == [0.5, 0.375, 0.25]
    assert settings.noise_scales() == pytest.approx([1.0, 0.75**0.5, 0.5**0.5])
    assert LangevinSettings(0).step_sizes() == []


def test_chains_of_equation_5_4_sample_the_density() -> None:
    """A quadratic energy has the normal density, which small steps approach from anywhere."""
    generator = torch.Generator().manual_seed(0)
    settings = LangevinSettings(120, (0.1, 0.1), None, "thesis")
    noise = (torch.randn(3000, 1, generator=generator) for _ in range(120))
    energy = lambda points: (points - 3).square().sum(dim=1) / (2 * 0.25)  # noqa: E731
    *_, last = langevin_steps(energy, torch.full((3000, 1), -5.0), noise, settings)
    assert last.mean().item() == pytest.approx(3, abs=0.05)
    assert last.std().item() == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("weighted", [False, True])
def test_samples_of_gaussians_have_their_moments(weighted: bool) -> None:
    means = torch.tensor([[5.0, 0.0], [0.0, -5.0]])
    covariance = torch.tensor([[1.0, 0.6], [0.6, 0.5]])
    gaussians = gaussians_from_moments(means, covariance, torch.tensor([30.0, 10.0]))
    weights = gaussians.log_frequencies.exp() if weighted else None
    samples = gaussian_sampler(gaussians, weights)(8000, torch.Generator().manual_seed(0))
    first = samples[:, 0] + samples[:, 1] > 0
    assert first.double().mean().item() == pytest.approx(0.75 if weighted else 0.5, abs=0.02)
    np.testing.assert_allclose(samples[first].mean(dim=0).numpy(), means[0].numpy(), atol=0.06)
    np.testing.assert_allclose(np.cov(samples[first].T.numpy()), covariance.numpy(), atol=0.06)


@pytest.mark.parametrize("variant", ["thesis", "code"])
def test_training_depends_on_the_seed_only(variant: Variant) -> None:
    points = ring(40)
    prior = prior_of(points, variant)
    sampler = gaussian_sampler(prior.gaussians)
    settings = replace(TINY, variant=variant, langevin=replace(TINY.langevin, variant=variant), decay_after=1)

    def trained(seed: int) -> torch.Tensor:
        torch.rand(1)  # of the global generator, which is not used
        residual = train_residual_energy(prior, sampler, points, settings, name="gmm", seed=seed)
        energies: torch.Tensor = residual(points)
        return energies

    assert torch.equal(trained(1), trained(1))
    assert not torch.equal(trained(1), trained(2))


@pytest.mark.parametrize(("decay_after", "expected"), [(None, [1, 1, 1]), (0, [0.1] * 3), (1, [1, 0.1, 0.1])])
def test_the_learning_rate_is_divided_by_10_once(
    decay_after: int | None, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    points = ring(40)
    prior = prior_of(points)
    rates: list[float] = []
    step = torch.optim.Adam.step

    def recorded_step(optimiser: torch.optim.Adam) -> None:
        rates.append(optimiser.param_groups[0]["lr"] / TINY.learning_rate)
        step(optimiser)

    monkeypatch.setattr(torch.optim.Adam, "step", recorded_step)
    settings = replace(TINY, epochs=3, batch_size=40, decay_after=decay_after)
    train_residual_energy(prior, gaussian_sampler(prior.gaussians), points, settings, name="gmm")
    assert rates == pytest.approx(expected)


def test_float64_trains_on_the_same_noise() -> None:
    points = ring(40)
    energies = []
    for inputs in (points, points.double()):
        prior = prior_of(inputs)
        sampler = gaussian_sampler(prior.gaussians)
        energies.append(train_residual_energy(prior, sampler, inputs, TINY, name="gmm")(inputs))
    assert energies[1].dtype == torch.float64
    torch.testing.assert_close(energies[0].double(), energies[1], rtol=1e-4, atol=1e-6)


def test_the_correction_rejects_what_the_prior_accepts() -> None:
    points, centre = ring(300), torch.nn.functional.normalize(ring(200) * torch.tensor([0.1, 0.1, 1.0]), dim=1)
    prior = prior_of(points)
    settings = ResidualSettings(
        hidden_dim=32,
        n_hidden=1,
        epochs=25,
        batch_size=100,
        learning_rate=3e-3,
        l2=0.1,
        temperature=1.0,
        langevin=LangevinSettings(10, (1e-2, 1e-3), None),
    )
    residual = train_residual_energy(prior, gaussian_sampler(prior.gaussians), points, settings, name="gmm")
    energy = CorrectedEnergy(prior, residual, 1.0)
    known = ring(201)
    before, after = (
        detection_metrics(score(known).numpy(), score(centre).numpy())["auroc"] for score in (prior.energies, energy)
    )
    assert before < 0.1
    assert after > 0.9


def test_divergence_is_explained() -> None:
    points = ring(40)
    prior = LogitPrior(LinearClassifier(torch.eye(3), torch.zeros(3)))
    for settings in (replace(TINY, learning_rate=1e30), replace(TINY, langevin=LangevinSettings(4, (1e38, 1e38)))):
        with pytest.raises(ConfigurationError, match=r"prior energy diverges in epoch 1 of 2.*`learning_rate`"):
            train_residual_energy(prior, normal_sampler(prior.classifier.weight), points, settings, name="energy")


def test_a_network_without_hidden_layers_between_is_a_perceptron() -> None:
    network = ResidualEnergy(3, 4, 0, generator=torch.Generator().manual_seed(0))
    z = torch.randn(5, 3)
    inner = z @ network.first.weight.T + network.first.bias
    expected = torch.where(inner > 0, inner, 0.2 * inner) @ network.last.weight.T + network.last.bias
    torch.testing.assert_close(network(z), expected[:, 0])

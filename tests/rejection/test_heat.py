"""The score heat: corrected energies of its priors, composed."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from hgld.errors import ConfigurationError, InputError
from hgld.rejection import build_detector
from hgld.rejection.heat import Heat, Standardisation, compose
from hgld.rejection.heat_priors import GaussianPrior, LogitPrior
from hgld.rejection.residual_energy import CorrectedEnergy, ResidualEnergy
from tests.rejection.test_detectors import FAST as FAST_OPTIONS
from tests.rejection.test_detectors import index_images, queries

FAST = FAST_OPTIONS["heat"]


def fitted(**options: Any) -> Heat:
    detector = build_detector("heat", FAST | options).fit(**index_images(np.float64))
    assert isinstance(detector, Heat)
    return detector


def leaky_perceptron(energy: CorrectedEnergy, features: np.ndarray) -> np.ndarray:
    """Return residual energies from the weights of the network."""
    assert isinstance(energy.residual, ResidualEnergy)
    tensors = energy.residual.state_dict()
    layers = ["first", *(f"hidden.{layer}" for layer in range(4)), "last"]
    for layer in layers:
        weight, bias = tensors[f"{layer}.weight"].numpy(), tensors[f"{layer}.bias"].numpy()
        features = features @ weight.T + bias
        if layer != "last":
            features = np.where(features > 0, features, 0.2 * features)
    return features[:, 0]


def test_scores_are_composed_of_corrected_energies() -> None:
    detector = fitted()
    images = queries(dtype=np.float64)
    energies = []
    for name, temperature in (("gmm", 1e3), ("energy", 1.0), ("gmm_std", 1e3)):
        energy = detector._energies[name]  # type: ignore[index]
        values = images["deviations" if name == "gmm_std" else "embeddings"]
        if isinstance(energy.prior, LogitPrior):
            classifier = energy.prior.classifier
            logits = values @ classifier.weight.numpy().T + classifier.bias.numpy()
            prior = -np.log(np.exp(logits).sum(1))
        else:
            assert isinstance(energy.prior, GaussianPrior)
            gaussians = energy.prior.gaussians
            values = values / np.linalg.norm(values, axis=1, keepdims=True)
            whitened = (values - gaussians.origin.numpy()) @ gaussians.whitening.numpy()
            distances = ((whitened[:, None] - gaussians.means.numpy()) ** 2).sum(2)
            prior = -np.log(np.exp(-distances / 2).sum(1))
        energies.append(prior / temperature + leaky_perceptron(energy, values))
    scales = detector._standardisation
    standardised = (np.stack(energies) - scales.means.numpy()[:, None]) / scales.deviations.numpy()[:, None]
    np.testing.assert_allclose(detector.score(**images), standardised.mean(0), rtol=1e-6, atol=1e-6)


def test_scales_are_those_of_the_index() -> None:
    index = index_images(np.float64)
    for prior in ("gmm", "energy", "gmm_std"):
        detector = fitted(priors=prior)
        scores = detector.score(index["embeddings"], deviations=index["deviations"])
        assert scores.mean() == pytest.approx(0, abs=1e-9)
        assert scores.std(ddof=1) == pytest.approx(1)


def test_priors_are_trained_independently() -> None:
    """Composing with an infinite beta takes one of the single scores, each standardised."""
    images = queries(dtype=np.float64)
    single = [fitted(priors=prior).score(**images) for prior in ("gmm", "energy", "gmm_std")]
    np.testing.assert_allclose(fitted(beta=np.inf).score(**images), np.max(single, axis=0), rtol=1e-9)
    np.testing.assert_allclose(fitted().score(**images), np.mean(single, axis=0), rtol=1e-9, atol=1e-12)


def test_deviations_are_used_where_they_are_given() -> None:
    index = index_images()
    without = build_detector("heat", FAST).fit(**index | {"deviations": None})
    assert isinstance(without, Heat)
    assert list(without._energies) == ["gmm", "energy"]
    assert without.score(queries()["embeddings"]).shape == (30,)
    with pytest.raises(ConfigurationError, match="prior gmm_std needs `deviations`.*--with-std"):
        build_detector("heat", FAST | {"priors": "gmm_std"}).fit(**index | {"deviations": None})
    detector = build_detector("heat", FAST).fit(**index)
    with pytest.raises(ConfigurationError, match="fitted with `deviations`, and they are missing"):
        detector.score(queries()["embeddings"])
    with pytest.raises(InputError, match="deviations have 3 channels, and the score heat was fitted on 4"):
        detector.score(queries()["embeddings"], deviations=np.ones((30, 3), np.float32))


def test_variants_differ_in_their_networks() -> None:
    for variant, n_hidden in (("thesis", 4), ("code", 1)):
        detector = fitted(variant=variant)
        for energy in detector._energies.values():
            assert isinstance(energy.residual, ResidualEnergy)
            assert len(energy.residual.hidden) == n_hidden
        assert np.isfinite(detector.score(**queries(dtype=np.float64))).all()


def test_options_override_the_preset() -> None:
    heat = Heat(steps=3, step_size=0.1, l2=2.0, variant="code")
    assert heat._settings["energy"].langevin.step_size == (0.1, 0.01)
    assert heat._settings["gmm"].langevin.noise == (5e-3, 5e-4)
    assert {settings.l2 for settings in heat._settings.values()} == {2.0}
    assert {settings.langevin.steps for settings in heat._settings.values()} == {3}


def test_priors_have_options_of_their_own() -> None:
    per_prior = {"energy": {"epochs": "2", "temperature": "inf"}, "gmm_std": {"noise": "1e-2"}}
    heat = build_detector("heat", {"epochs": 4, "per_prior": per_prior})
    assert isinstance(heat, Heat)
    assert [settings.epochs for settings in heat._settings.values()] == [4, 2, 4]
    assert [settings.temperature for settings in heat._settings.values()] == [1e3, np.inf, 1e3]
    assert heat._settings["gmm_std"].langevin.noise == (1e-2, 1e-3)
    # The energy of a prior at an infinite temperature is that of its network alone.
    detector = fitted(per_prior={"energy": {"temperature": np.inf}}, priors="energy", standardised=False)
    images = queries(dtype=np.float64)
    alone = leaky_perceptron(detector._energies["energy"], images["embeddings"])
    np.testing.assert_allclose(detector.score(**images), alone, rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priors": "gmm,vim"}, "`priors` is gmm,vim; expected different ones of gmm, energy, gmm_std"),
        ({"priors": "gmm,gmm"}, "expected different ones"),
        ({"variant": "paper"}, "variant"),
        ({"beta": "nan"}, "`beta` is nan"),
        ({"per_prior": {"vim": {"epochs": 1}}}, "`per_prior` has epochs of vim; expected options of gmm, energy"),
        ({"per_prior": {"gmm": {"beta": 1}}}, "`per_prior` has beta of gmm"),
        ({"per_prior": {"gmm": {"l2": -1}}}, "`l2` is -1"),
        ({"epochs": -1}, "`epochs` is -1"),
        ({"batch_size": 0}, "`batch_size` is 0"),
        ({"learning_rate": 0}, "`learning_rate` is 0"),
        ({"temperature": 0}, "`temperature` is 0"),
        ({"steps": -2}, "`steps` is -2"),
        ({"step_size": "nan"}, "`step_size` is nan"),
        ({"shrinkage": 2}, "`shrinkage` is 2"),
        ({"device": "tpu9"}, "tpu9"),
    ],
)
def test_wrong_options_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        build_detector("heat", FAST | options).fit(**index_images())
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the message is that of a machine without CUDA")
def test_a_missing_gpu_is_explained() -> None:
    with pytest.raises(ConfigurationError, match="cuda"):
        fitted(device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_gpu_gives_scores_of_the_same_kind() -> None:
    cpu, cuda = (fitted(device=device).score(**queries(dtype=np.float64)) for device in ("cpu", "cuda"))
    assert np.corrcoef(cpu, cuda)[0, 1] > 0.9


ENERGIES = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=4), elements=st.floats(-1e4, 1e4))
BETAS = st.floats(-1e3, 1e3).filter(lambda beta: abs(beta) > 1e-3)


@given(ENERGIES, BETAS)
def test_formulas_in_exact_arithmetic(energies: np.ndarray, beta: float) -> None:
    for column, own in zip(energies.T, compose(torch.from_numpy(energies), beta).tolist(), strict=True):
        extreme = max(beta * energy for energy in column)  # the textbook formula, with its overflow factored out
        expected = (extreme + math.log(math.fsum(math.exp(beta * energy - extreme) for energy in column))) / beta
        assert own == pytest.approx(expected - math.log(len(column)) / beta, rel=1e-9, abs=1e-9)


@given(ENERGIES, st.lists(st.floats(allow_nan=False), min_size=2, max_size=5))
def test_the_mean_form_rises_with_beta_from_minimum_to_maximum(energies: np.ndarray, betas: list[float]) -> None:
    values = torch.from_numpy(energies).float()
    rows = [compose(values, beta) for beta in (-math.inf, *sorted(betas), math.inf)]
    slack = 1e-5 * (1 + values.abs().amax(dim=0))
    for lower, upper in pairwise(rows):
        assert (lower <= upper + slack).all()
    assert torch.equal(rows[0], values.amin(dim=0))
    assert torch.equal(rows[-1], values.amax(dim=0))


def test_small_betas_keep_their_digits_in_float32() -> None:
    energies = torch.tensor([[0.5, -3.0], [1.5, 4.0], [7.0, 4.0]])
    for beta in (1e-30, -1e-12, 1e-6, -1e-4):
        torch.testing.assert_close(compose(energies, beta), energies.mean(dim=0), rtol=1e-3, atol=0)


def test_scales_of_constant_energies_are_one() -> None:
    standardisation = Standardisation.from_energies(torch.tensor([[2.0, 2.0], [1.0, 3.0]]))
    assert standardisation.deviations.tolist() == [1.0, pytest.approx(2**0.5)]
    assert Standardisation.from_energies(torch.tensor([[2.0]])).deviations.tolist() == [1.0]

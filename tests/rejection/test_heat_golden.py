"""Every step of HEAT against golden numbers, in float64: composition, energies, sampling, losses, and an update."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hgld.rejection.gaussians import gaussians_from_moments
from hgld.rejection.heat import Standardisation, compose
from hgld.rejection.heat_priors import GaussianPrior, Variant
from hgld.rejection.residual_energy import (
    CorrectedEnergy,
    LangevinSettings,
    ResidualEnergy,
    ResidualSettings,
    contrastive_loss,
    energy_gradient,
    langevin_steps,
    sample_negatives,
)

#: Reads a golden array.
Golden = Callable[[str], Any]
#: Hyper-parameters by name.
Parameters = dict[str, float]


@pytest.fixture(scope="module")
def golden(shared: Path) -> Golden:
    """Return the reader of a golden array below ``heat/``; numbers are float64 tensors."""
    arrays = np.load(shared / "golden_beyond" / "ood.npz")

    def read(name: str) -> Any:
        array = arrays[f"heat/{name}"]
        return torch.from_numpy(np.array(array)) if array.dtype.kind == "f" else array

    return read


@pytest.fixture
def parameters(golden: Golden) -> Parameters:
    """Return the hyper-parameters by name."""
    return dict(zip(golden("ebm/hp_names").tolist(), golden("ebm/hp_values").tolist(), strict=True))


@pytest.fixture
def residual(golden: Golden) -> ResidualEnergy:
    """Return the residual energy with one hidden layer."""
    network = ResidualEnergy(6, 5, 0, generator=torch.Generator()).double()
    network.load_state_dict(
        {
            "first.weight": golden("ebm/W1"),
            "first.bias": golden("ebm/b1"),
            "last.weight": golden("ebm/W2"),
            "last.bias": golden("ebm/b2"),
        }
    )
    return network


def prior_of(golden: Golden, variant: Variant) -> GaussianPrior:
    moments = [golden(f"ebm/prior_{name}") for name in ("means", "cov", "counts")]
    return GaussianPrior(gaussians_from_moments(*moments), variant)


def settings_of(golden: Golden, parameters: Parameters, variant: Variant) -> ResidualSettings:
    code = LangevinSettings(
        4,
        (parameters["step_size_start"], parameters["step_size_end"]),
        (parameters["eps_start"], parameters["eps_end"]),
        "code",
    )
    eta = golden("sgld_paper/eta").item()
    thesis = LangevinSettings(4, (eta, eta), None, "thesis")
    return ResidualSettings(
        variant=variant,
        temperature=parameters["temperature_prior"],
        l2=parameters["l2_coef"],
        langevin=code if variant == "code" else thesis,
    )


def noise_of(golden: Golden, variant: Variant) -> Iterator[torch.Tensor]:
    """Return the noise of the chain, which the published code subtracts."""
    noise = golden("ebm/noise_sgld")
    return iter(-noise if variant == "code" else noise)


def close(values: torch.Tensor, expected: torch.Tensor) -> None:
    np.testing.assert_allclose(values.detach().numpy(), expected.numpy(), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("name", ["eq57", "eq57_mean", "heatood", "eq57_standardised_mean"])
def test_compositions(golden: Golden, name: str) -> None:
    """Eq. 5.7 as it is written and the published code have a constant more than the mean, or a factor at beta 0."""
    standardisation, energies = (
        Standardisation.from_energies(golden("compose/energies_train")),
        golden("compose/energies"),
    )
    close(standardisation.means, golden("compose/train_mean"))
    close(standardisation.deviations, golden("compose/train_std"))
    if name in ("heatood", "eq57_standardised_mean"):
        energies = standardisation(energies)
    for beta, expected in zip(golden("compose/betas").tolist(), golden(f"compose/{name}"), strict=True):
        composed = compose(energies, beta)
        if name == "eq57" and not beta:
            assert expected.isnan().all()
        elif name == "heatood" and not beta:
            close(3 * composed, expected)
        else:
            close(composed if name.endswith("mean") else composed + np.log(3) / (beta or 1), expected)
    close(3 * compose(golden("compose/energies"), 0.0), golden("compose/sum"))


def test_prior_energies(golden: Golden) -> None:
    close(prior_of(golden, "thesis").energies(golden("ebm/real")), golden("ebm/real/e_gmm"))
    close(prior_of(golden, "code").energies(golden("ebm/real")), golden("ebm/real/gmm_nll"))


@pytest.mark.parametrize(("variant", "name"), [("thesis", "hybrid_paper"), ("code", "hybrid_code")])
def test_corrected_energies(
    golden: Golden, residual: ResidualEnergy, parameters: Parameters, variant: Variant, name: str
) -> None:
    energy = CorrectedEnergy(prior_of(golden, variant), residual, parameters["temperature_prior"])
    close(energy(golden("ebm/real")), golden(f"ebm/real/{name}"))


@pytest.mark.parametrize(("variant", "name"), [("thesis", "sgld_paper"), ("code", "sgld_code")])
def test_chains(
    golden: Golden, residual: ResidualEnergy, parameters: Parameters, variant: Variant, name: str
) -> None:
    prior, settings = prior_of(golden, variant), settings_of(golden, parameters, variant)
    start = golden("ebm/z0")
    if variant == "code":
        start = prior.project(start)
        close(torch.tensor(settings.langevin.step_sizes(), dtype=torch.float64), golden("sgld_code/step"))
        close(torch.tensor(settings.langevin.noise_scales(), dtype=torch.float64), golden("sgld_code/sigma"))
    energy = CorrectedEnergy(prior, residual, settings.temperature)
    project = prior.project if variant == "code" else None
    steps = [start, *langevin_steps(energy, start, noise_of(golden, variant), settings.langevin, project=project)]
    close(torch.stack([energy_gradient(energy, features) for features in steps[:-1]]), golden(f"{name}/grad"))
    close(torch.stack(steps), golden(f"{name}/z"))


@pytest.mark.parametrize(
    ("variant", "name"), [("thesis", "loss_paper"), ("code", "loss_code"), ("code", "loss_code_no_noise")]
)
def test_losses_and_their_gradients(
    golden: Golden, residual: ResidualEnergy, parameters: Parameters, variant: Variant, name: str
) -> None:
    settings = settings_of(golden, parameters, variant)
    negatives = sample_negatives(
        prior_of(golden, variant), residual, golden("ebm/z0"), noise_of(golden, variant), settings
    )
    images = golden("ebm/real")
    if name == "loss_code":
        images = images + parameters["eps_data"] * golden("ebm/noise_real")
        negatives = negatives + parameters["eps_data"] * golden("ebm/noise_gen")
    loss = contrastive_loss(residual, images, negatives, settings.l2)
    close(loss.divergence, golden(f"{name}/cd"))
    close(loss.squares, golden(f"{name}/l2"))
    close(loss.total, golden(f"{name}/loss"))
    loss.total.backward()  # type: ignore[no-untyped-call]
    for layer, own in ((residual.first, "1"), (residual.last, "2")):
        assert layer.weight.grad is not None
        assert layer.bias.grad is not None
        close(layer.weight.grad, golden(f"{name}/grad_W{own}"))
        close(layer.bias.grad, golden(f"{name}/grad_b{own}"))


def test_an_update(golden: Golden, residual: ResidualEnergy, parameters: Parameters) -> None:
    optimizer = torch.optim.Adam(
        residual.parameters(),
        lr=parameters["adam_lr"],
        betas=(parameters["adam_beta1"], parameters["adam_beta2"]),
        eps=parameters["adam_eps"],
    )
    layers = ((residual.first, "1"), (residual.last, "2"))
    for layer, own in layers:
        layer.weight.grad = golden(f"loss_code/grad_W{own}")
        layer.bias.grad = golden(f"loss_code/grad_b{own}")
    optimizer.step()
    for layer, own in layers:
        close(layer.weight, golden(f"adam_code/W{own}"))
        close(layer.bias, golden(f"adam_code/b{own}"))


def test_shared_hidden_layer(golden: Golden, residual: ResidualEnergy) -> None:
    shared = ResidualEnergy(6, 5, 2, shared_hidden=True, generator=torch.Generator()).double()
    hidden = {"hidden.0.weight": golden("shared/Wh"), "hidden.0.bias": golden("shared/bh")}
    shared.load_state_dict(residual.state_dict() | hidden)
    energies = shared(golden("ebm/real"))
    close(energies, golden("shared/e_residual"))
    energies.sum().backward()
    layer: Any = shared.hidden[0]
    close(layer.weight.grad, golden("shared/grad_sum_Wh"))
    assert shared.first.weight.grad is not None
    close(shared.first.weight.grad, golden("shared/grad_sum_W1"))


def test_numbers_of_parameters(golden: Golden) -> None:
    def count(*, shared_hidden: bool) -> int:
        network = ResidualEnergy(512, 1024, 4, shared_hidden=shared_hidden, generator=torch.Generator())
        return sum(parameter.numel() for parameter in network.parameters())

    assert count(shared_hidden=True) == golden("shared/n_parameters_512_1024_4")
    assert count(shared_hidden=False) == 4_724_737

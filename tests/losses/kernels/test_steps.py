"""Steps: the published curves, slopes and bounds."""

from pathlib import Path

import numpy as np
import pytest
import torch

from hgld.losses.kernels.steps import Heaviside, LeakyStep, Sigmoid, Step, SupRankStep, Variant, suprank_step

STEPS: list[Step] = [
    Heaviside(),
    Sigmoid(),
    suprank_step("eq4"),
    suprank_step("cfg144"),
    suprank_step("cfginat"),
    LeakyStep(),
]


@pytest.fixture(scope="module")
def curves(shared: Path) -> dict[str, torch.Tensor]:
    with np.load(shared / "golden" / "losses.npz") as arrays:
        return {name.removeprefix("h_minus/"): torch.from_numpy(arrays[name]) for name in arrays if "h_minus" in name}


def test_default_step_is_eq_4(curves: dict[str, torch.Tensor]) -> None:
    at = curves["t"] != 0  # where the reference takes the first branch of Eq. 4, and hgld the second
    values = SupRankStep().value(curves["t"])
    torch.testing.assert_close(values[at], curves["eq4"][at], rtol=0, atol=1e-12)
    assert values[~at].tolist() == [1.0]
    torch.testing.assert_close(Heaviside().value(curves["t"]), curves["heaviside"], rtol=0, atol=0)


@pytest.mark.parametrize("variant", ["eq4", "cfg144", "cfginat"])
def test_variants_agree_with_the_published_code(curves: dict[str, torch.Tensor], variant: Variant) -> None:
    at = curves["t"] != 0  # where the published code takes the first branch
    values = suprank_step(variant).value(curves["t"])
    torch.testing.assert_close(values[at], curves[f"official_{variant}"][at], rtol=0, atol=1e-7)
    assert values[~at].tolist() == [0.5 if variant == "cfginat" else 1.0]


@pytest.mark.parametrize("step", [SupRankStep(), suprank_step("cfg144")], ids=str)
def test_steps_bound_heaviside_from_above(step: Step) -> None:
    t = torch.linspace(-2, 2, 4001, dtype=torch.float64)
    assert (step.value(t) >= Heaviside().value(t)).all()


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_slope_is_the_derivative(step: Step) -> None:
    # away from jumps and bends: 0, 0.02 (LeakyStep) and 0.05
    t = torch.tensor([-1.5, -0.3, -0.031, -0.004, 0.003, 0.013, 0.041, 0.049, 0.053, 0.3, 1.5], dtype=torch.float64)
    h = 1e-7
    differences = (step.value(t + h) - step.value(t - h)) / (2 * h)
    torch.testing.assert_close(step.slope(t), differences, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("step", STEPS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_split_adds_up_and_does_not_change_its_argument(step: Step, dtype: torch.dtype) -> None:
    t = torch.linspace(-0.2, 0.2, 401, dtype=dtype)
    given = t.clone()
    jump, rest = step.split()
    total = jump * Heaviside().value(t) + (0 if rest is None else rest.value(t))
    step.slope(t)
    assert total.dtype == step.slope(t).dtype == dtype
    torch.testing.assert_close(total, step.value(t))
    assert torch.equal(t, given)

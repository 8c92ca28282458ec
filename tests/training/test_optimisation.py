from __future__ import annotations

import pytest
import torch
from torch import nn

from hgld.training.optimisation import Optimisers, learning_rate
from hgld.training.training_settings import GroupSettings


def made(**groups: GroupSettings) -> tuple[dict[str, list[nn.Parameter]], Optimisers]:
    parameters = {name: [nn.Parameter(torch.ones(2))] for name in groups}
    return parameters, Optimisers({**parameters, "head": []}, {**groups, "head": GroupSettings()}, n_steps=100)


def scaler(scale: float | None = None) -> torch.amp.GradScaler:
    made = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)
    made.scale(torch.ones(1))  # it begins with the first loss
    return made


@pytest.mark.parametrize("end", [0.0, 0.1, 5.0])
def test_the_cosine_is_torchs(end: float) -> None:
    optimiser = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=2.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=50, eta_min=end)
    settings = GroupSettings(lr=2.0, end_lr=end)
    for step in range(50):
        assert learning_rate(settings, step, 50) == pytest.approx(optimiser.param_groups[0]["lr"], abs=1e-9)
        optimiser.step()
        schedule.step()
    assert learning_rate(settings, 50, 50) == end


def test_each_group_has_its_own_rate() -> None:
    _, optimisers = made(
        backbone=GroupSettings(lr=1.0), proxies=GroupSettings(lr=10.0, end_lr=0.1, schedule="constant")
    )
    assert optimisers.set_learning_rates(50) == {"backbone": pytest.approx(0.5), "proxies": 10.0}
    state = optimisers.state_dict()
    assert state["backbone"]["param_groups"][0]["lr"] == pytest.approx(0.5)
    assert set(state) == {"backbone", "proxies"}  # a group without parameters has no optimiser


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        (GroupSettings(lr=0.1, weight_decay=0.5), lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.5)),
        (
            GroupSettings(name="adamw", lr=0.1, weight_decay=0.5),
            lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.5),
        ),
        (
            GroupSettings(name="sgd", lr=0.1, momentum=0.9, weight_decay=0.0),
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
        ),
    ],
)
def test_optimisers_are_torchs(settings: GroupSettings, kind: object) -> None:
    parameters, optimisers = made(backbone=settings)
    (parameter,), expected = parameters["backbone"], nn.Parameter(torch.ones(2))
    reference = kind([expected])  # type: ignore[operator]
    for step in range(3):
        gradient = torch.tensor([1.0, -0.3]) * (step + 1)
        parameter.grad, expected.grad = gradient.clone() * 8, gradient.clone()
        optimisers.step(scaler(8.0), None)
        reference.step()
    torch.testing.assert_close(parameter, expected)


def test_gradients_are_clipped_together_but_for_those_of_proxies() -> None:
    sgd = GroupSettings(name="sgd", lr=1.0, weight_decay=0.0)
    parameters, optimisers = made(backbone=sgd, other=sgd, proxies=sgd, frozen=sgd)
    for name in ("backbone", "other", "proxies"):
        parameters[name][0].grad = torch.tensor([3.0, 4.0])
    optimisers.step(scaler(), clip_norm=1.0)
    moved = {name: 1 - parameter[0].detach() for name, parameter in parameters.items()}
    together = torch.tensor([3.0, 4.0]) / (2 * 25) ** 0.5
    torch.testing.assert_close(moved["backbone"], together, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(moved["other"], together, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(moved["proxies"], torch.tensor([3.0, 4.0]))
    assert not moved["frozen"].any()
    optimisers.zero_grad()
    assert all(parameter.grad is None for (parameter,) in parameters.values())


def test_an_overflow_in_16_bits_moves_nothing() -> None:
    parameters, optimisers = made(backbone=GroupSettings(lr=1.0))
    parameters["backbone"][0].grad = torch.tensor([float("inf"), 1.0])
    scaling = scaler(1024.0)
    optimisers.step(scaling, None)
    assert (parameters["backbone"][0] == 1).all()
    assert scaling.get_scale() == 512

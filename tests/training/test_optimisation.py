from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from hgld.training.optimisation import Optimisers, learning_rate
from hgld.training.training_settings import GroupSettings

Algorithm = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def build_optimisers(**groups: GroupSettings) -> tuple[dict[str, list[nn.Parameter]], Optimisers]:
    parameters = {name: [nn.Parameter(torch.ones(2))] for name in groups}
    return parameters, Optimisers({**parameters, "head": []}, {**groups, "head": GroupSettings()}, n_steps=100)


def build_scaler(scale: float | None = None) -> torch.amp.GradScaler:
    scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)
    scaler.scale(torch.ones(1))  # the scaler is initialised by its first use
    return scaler


@pytest.mark.parametrize("end", [0.0, 0.1, 5.0])
def test_cosine_schedule_equals_that_of_torch(end: float) -> None:
    optimiser = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=2.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=50, eta_min=end)
    settings = GroupSettings(lr=2.0, end_lr=end)
    for step in range(50):
        assert learning_rate(settings, step, 50) == pytest.approx(optimiser.param_groups[0]["lr"], abs=1e-9)
        optimiser.step()
        schedule.step()
    assert learning_rate(settings, 50, 50) == end


def test_each_group_has_its_own_learning_rate() -> None:
    _, optimisers = build_optimisers(
        backbone=GroupSettings(lr=1.0), proxies=GroupSettings(lr=10.0, end_lr=0.1, schedule="constant")
    )
    assert optimisers.set_learning_rates(50) == {"backbone": pytest.approx(0.5), "proxies": 10.0}
    state = optimisers.state_dict()
    assert state["backbone"]["param_groups"][0]["lr"] == pytest.approx(0.5)
    assert set(state) == {"backbone", "proxies"}  # a group without parameters has no optimiser


@pytest.mark.parametrize(
    ("settings", "algorithm"),
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
def test_updates_equal_those_of_torch(settings: GroupSettings, algorithm: Algorithm) -> None:
    parameters, optimisers = build_optimisers(backbone=settings)
    (parameter,), expected = parameters["backbone"], nn.Parameter(torch.ones(2))
    reference = algorithm([expected])
    for step in range(3):
        gradient = torch.tensor([1.0, -0.3]) * (step + 1)
        parameter.grad, expected.grad = gradient.clone() * 8, gradient.clone()
        optimisers.step(build_scaler(8.0), None)
        reference.step()
    torch.testing.assert_close(parameter, expected)


def test_gradients_are_clipped_jointly_except_those_of_proxies() -> None:
    sgd = GroupSettings(name="sgd", lr=1.0, weight_decay=0.0)
    parameters, optimisers = build_optimisers(backbone=sgd, other=sgd, proxies=sgd, frozen=sgd)
    for name in ("backbone", "other", "proxies"):
        parameters[name][0].grad = torch.tensor([3.0, 4.0])
    optimisers.step(build_scaler(), clip_norm=1.0)
    updates = {name: 1 - parameter[0].detach() for name, parameter in parameters.items()}
    clipped = torch.tensor([3.0, 4.0]) / (2 * 25) ** 0.5
    torch.testing.assert_close(updates["backbone"], clipped, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(updates["other"], clipped, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(updates["proxies"], torch.tensor([3.0, 4.0]))
    assert not updates["frozen"].any()
    optimisers.zero_grad()
    assert all(parameter.grad is None for (parameter,) in parameters.values())


@pytest.mark.parametrize("wrong", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("scale", [None, 1024.0])
def test_gradient_that_is_not_finite_skips_the_update_of_all_groups(wrong: float, scale: float | None) -> None:
    parameters, optimisers = build_optimisers(backbone=GroupSettings(lr=1.0), proxies=GroupSettings(lr=1.0))
    parameters["backbone"][0].grad = torch.tensor([wrong, 1.0])
    parameters["proxies"][0].grad = torch.tensor([1.0, 1.0])
    scaler = build_scaler(scale)
    assert not optimisers.step(scaler, clip_norm=1.0)
    assert all((parameter == 1).all() for group in parameters.values() for parameter in group)
    assert scaler.get_scale() == (1 if scale is None else 512)
    parameters["backbone"][0].grad = torch.tensor([1.0, 1.0])
    assert optimisers.step(scaler, clip_norm=1.0)
    assert not any((parameters[name][0] == 1).any() for name in ("backbone", "proxies"))

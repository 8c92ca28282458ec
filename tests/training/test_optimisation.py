from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LRScheduler, MultiStepLR, StepLR

from hgld.models.embedding_model import build_model
from hgld.models.model_settings import ModelSettings
from hgld.training.optimisation import Optimisers, TrainingLength, freeze_parameters, learning_rate
from hgld.training.training_settings import GroupSettings
from tests.assertions import not_none
from tests.training import toy

Algorithm = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def build_optimisers(**groups: GroupSettings) -> tuple[dict[str, list[nn.Parameter]], Optimisers]:
    parameters = {name: [nn.Parameter(torch.ones(2))] for name in groups}
    length = TrainingLength(n_steps=100, n_epochs=10)
    return parameters, Optimisers({**parameters, "head": []}, {**groups, "head": GroupSettings()}, length)


def build_scaler(scale: float | None = None) -> torch.amp.GradScaler:
    scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)
    scaler.scale(torch.ones(1))  # the scaler is initialised by its first use
    return scaler


@pytest.mark.parametrize("warm_up_epochs", [0, 5])
@pytest.mark.parametrize(
    ("settings", "make_scheduler"),
    [
        (GroupSettings(lr=2.0), lambda optimiser: CosineAnnealingLR(optimiser, T_max=40, eta_min=0.0)),
        (GroupSettings(lr=10.0, end_lr=0.1), lambda optimiser: CosineAnnealingLR(optimiser, T_max=40, eta_min=0.1)),
        (GroupSettings(lr=0.5, end_lr=5.0), lambda optimiser: CosineAnnealingLR(optimiser, T_max=40, eta_min=5.0)),
        (
            GroupSettings(lr=1e-5, schedule="multi_step", milestones=(12, 28), gamma=0.3),
            lambda optimiser: MultiStepLR(optimiser, milestones=[12, 28], gamma=0.3),
        ),
        (
            GroupSettings(lr=1.0, schedule="step", step_epochs=7, gamma=0.5),
            lambda optimiser: StepLR(optimiser, step_size=7, gamma=0.5),
        ),
        (GroupSettings(lr=1.0, schedule="constant"), lambda optimiser: ConstantLR(optimiser, factor=1.0)),
    ],
)
def test_schedules_are_those_of_the_published_loop(
    settings: GroupSettings, make_scheduler: Callable[[torch.optim.Optimizer], LRScheduler], warm_up_epochs: int
) -> None:
    """suprank/engine/train.py: epochs from 1; every scheduler steps after an epoch, unless it is of the warm-up."""
    optimiser = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=settings.lr)
    scheduler = make_scheduler(optimiser)
    length = TrainingLength(n_steps=120, n_epochs=40, warm_up_epochs=warm_up_epochs)
    for epoch in range(1, 41):
        for batch in range(3):
            rate = learning_rate(settings, length, epoch=epoch - 1, step=3 * (epoch - 1) + batch)
            assert rate == pytest.approx(optimiser.param_groups[0]["lr"], abs=1e-9)
        optimiser.step()
        if warm_up_epochs < epoch:
            scheduler.step()


@pytest.mark.parametrize("end", [0.0, 0.1, 5.0])
def test_cosine_per_step_equals_that_of_torch(end: float) -> None:
    optimiser = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=2.0)
    schedule = CosineAnnealingLR(optimiser, T_max=50, eta_min=end)
    settings, length = GroupSettings(lr=2.0, end_lr=end, interval="step"), TrainingLength(50, 5, warm_up_epochs=2)
    for step in range(50):
        rate = learning_rate(settings, length, epoch=step // 10, step=step)
        assert rate == pytest.approx(optimiser.param_groups[0]["lr"], abs=1e-9)
        optimiser.step()
        schedule.step()
    assert learning_rate(settings, length, epoch=5, step=50) == end


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"schedule": "step"}, "the schedule step requires step_epochs"),
        ({"schedule": "multi_step"}, "the schedule multi_step requires milestones"),
        ({"milestones": [3]}, "milestones is a setting of the schedule multi_step, not of cosine"),
        (
            {"schedule": "multi_step", "milestones": [3], "step_epochs": 2},
            "step_epochs is a setting of the schedule step",
        ),
        (
            {"schedule": "multi_step", "milestones": [5, 3]},
            r"milestones are \[5, 3\]; expected each once, in ascending",
        ),
        ({"schedule": "multi_step", "milestones": [3, 3]}, "expected each once"),
    ],
)
def test_schedules_that_lack_a_setting_are_errors(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GroupSettings.model_validate(wrong)


def test_each_group_has_its_own_learning_rate() -> None:
    _, optimisers = build_optimisers(
        backbone=GroupSettings(lr=1.0), proxies=GroupSettings(lr=10.0, end_lr=0.1, schedule="constant")
    )
    assert optimisers.set_learning_rates(epoch=5, step=50) == {"backbone": pytest.approx(0.5), "proxies": 10.0}
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


@pytest.mark.parametrize(
    ("frozen", "expected"),
    [
        ((), set()),
        (("backbone.layer1", "backbone.bn1"), {"backbone.bn1", "backbone.layer1.0.bn1", "backbone.layer1.0.bn2"}),
        (("backbone",), None),
    ],
)
def test_batch_norms_of_frozen_layers_keep_their_statistics(
    frozen: tuple[str, ...], expected: set[str] | None
) -> None:
    model = build_model(ModelSettings(backbone="test_resnet", pretrained=False, dim=5)).train()
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.BatchNorm2d)}
    settings = toy.settings(Path("images.parquet"), frozen=frozen)
    freeze_parameters(model, settings, epoch=0)
    model.train()  # as loops of one's own do after the first epoch
    before = {name: not_none(layer.running_mean).clone() for name, layer in layers.items()}
    model(torch.randn(4, 3, 64, 64))
    unchanged = {name for name, layer in layers.items() if torch.equal(not_none(layer.running_mean), before[name])}
    assert unchanged == (layers.keys() if expected is None else expected)
    freeze_parameters(model, settings.model_copy(update={"frozen": ()}), epoch=1)
    assert all(layer.training for layer in layers.values())

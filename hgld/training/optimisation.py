"""Optimisers: one per group of parameters, each with a learning rate that follows a schedule of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.optim import SGD, Adam, AdamW, Optimizer

from hgld.training.training_settings import GroupSettings


def learning_rate(settings: GroupSettings, step: int, n_steps: int) -> float:
    """The learning rate of a step, from 0: from ``lr`` on a cosine to ``end_lr``, or always the same.

    >>> [learning_rate(GroupSettings(lr=1.0, end_lr=0.5), step, 4) for step in (0, 2, 4)]
    [1.0, 0.75, 0.5]
    """
    if settings.schedule == "constant":
        return settings.lr
    return settings.end_lr + (settings.lr - settings.end_lr) * (1 + math.cos(math.pi * step / n_steps)) / 2


class Optimisers:
    """The optimisers of all groups that have parameters.

    Args:
        groups: parameters by the name of their group.
        settings: of the groups.
        n_steps: of the whole training.
    """

    def __init__(
        self,
        groups: Mapping[str, Iterable[torch.nn.Parameter]],
        settings: Mapping[str, GroupSettings],
        n_steps: int,
    ) -> None:
        filled = {name: list(parameters) for name, parameters in groups.items()}
        self._settings = {name: settings[name] for name, parameters in filled.items() if parameters}
        self._optimisers = {name: _optimiser(filled[name], group) for name, group in self._settings.items()}
        self._n_steps = n_steps

    def set_learning_rates(self, step: int) -> dict[str, float]:
        """Set the learning rates of a step, and say them."""
        rates = {name: learning_rate(settings, step, self._n_steps) for name, settings in self._settings.items()}
        for name, rate in rates.items():
            for parameters in self._optimisers[name].param_groups:
                parameters["lr"] = rate
        return rates

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for optimiser in self._optimisers.values():
            optimiser.zero_grad(set_to_none=True)

    def step(self, scaler: torch.amp.GradScaler, clip_norm: float | None) -> None:
        """Move all parameters that have gradients.

        Args:
            scaler: by which the loss was scaled.
            clip_norm: the longest gradient of backbone and head together; proxies learn at their own pace.
        """
        ready = {name: optimiser for name, optimiser in self._optimisers.items() if _gradients([optimiser])}
        for optimiser in ready.values():
            scaler.unscale_(optimiser)
        if clip_norm is not None:
            clipped = [optimiser for name, optimiser in ready.items() if name != "proxies"]
            torch.nn.utils.clip_grad_norm_(_gradients(clipped), clip_norm)
        for optimiser in ready.values():
            scaler.step(optimiser)
        scaler.update()

    def state_dict(self) -> dict[str, Any]:
        """By group, what torch's optimiser remembers."""
        return {name: optimiser.state_dict() for name, optimiser in self._optimisers.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of :meth:`state_dict`."""
        for name, optimiser in self._optimisers.items():
            optimiser.load_state_dict(state[name])


def _optimiser(parameters: list[torch.nn.Parameter], settings: GroupSettings) -> Optimizer:
    if settings.name == "sgd":
        return SGD(
            parameters,
            settings.lr,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            nesterov=settings.momentum > 0,
        )
    kind = AdamW if settings.name == "adamw" else Adam
    return kind(parameters, settings.lr, weight_decay=settings.weight_decay)


def _gradients(optimisers: Iterable[Optimizer]) -> list[torch.nn.Parameter]:
    """The parameters that have gradients."""
    return [
        parameter
        for optimiser in optimisers
        for group in optimiser.param_groups
        for parameter in group["params"]
        if parameter.grad is not None
    ]

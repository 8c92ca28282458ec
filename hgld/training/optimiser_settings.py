"""Settings of the optimisers and learning rate schedules."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from hgld.io.settings import Settings


class GroupSettings(Settings):
    """Optimiser of a group of parameters.

    Schedules change the learning rate after each epoch that follows the warm-up, as in the authors' code: epochs of
    the warm-up have that of the first epoch, and count for neither ``milestones`` nor ``step_epochs``.

    Args:
        name: Algorithm; ``sgd`` with momentum is Nesterov's.
        lr: Learning rate of the first step.
        weight_decay: Weight decay of every step.
        momentum: Momentum of ``sgd``.
        schedule: Learning rate schedule: ``cosine`` from ``lr`` to ``end_lr``; ``constant``; or a factor ``gamma``
            after every ``step_epochs`` epochs (``step``) or at the ``milestones`` (``multi_step``).
        end_lr: Final learning rate of ``cosine``.
        interval: How ``cosine`` advances. ``epoch``: after each epoch that follows the warm-up; as its length is that
            of the whole training, it ends short of ``end_lr`` by the length of the warm-up. ``step``: after each step
            of the training, warm-up included, so that it reaches ``end_lr``; for trainings of few epochs.
        gamma: Factor of ``step`` and ``multi_step``.
        step_epochs: Number of epochs between the factors of ``step``.
        milestones: Numbers of epochs after which ``multi_step`` applies the factor, ascending.
    """

    name: Literal["adam", "adamw", "sgd"] = "adam"
    lr: NonNegativeFloat = 1e-5
    weight_decay: NonNegativeFloat = 1e-4
    momentum: NonNegativeFloat = 0.0
    schedule: Literal["cosine", "constant", "step", "multi_step"] = "cosine"
    end_lr: NonNegativeFloat = 0.0
    interval: Literal["epoch", "step"] = "epoch"
    gamma: PositiveFloat = 0.3
    step_epochs: PositiveInt | None = None
    milestones: tuple[PositiveInt, ...] = ()

    @model_validator(mode="after")
    def _require_sgd_for_momentum(self) -> GroupSettings:
        if self.momentum and self.name != "sgd":
            raise ValueError(f"momentum is a setting of sgd, not of {self.name}")
        return self

    @model_validator(mode="after")
    def _require_schedule(self) -> GroupSettings:
        for name, schedule in (("step_epochs", "step"), ("milestones", "multi_step")):
            given = bool(getattr(self, name))
            if given and self.schedule != schedule:
                raise ValueError(f"{name} is a setting of the schedule {schedule}, not of {self.schedule}")
            if not given and self.schedule == schedule:
                raise ValueError(f"the schedule {schedule} requires {name}")
        if sorted(set(self.milestones)) != list(self.milestones):
            raise ValueError(f"milestones are {list(self.milestones)}; expected each once, in ascending order")
        return self


class OptimiserSettings(Settings):
    """Optimisers of the groups of parameters.

    Args:
        backbone: Parameters of the backbone.
        head: Parameters of the model after the backbone.
        proxies: Parameters of the loss.
    """

    backbone: GroupSettings = GroupSettings()
    head: GroupSettings = GroupSettings()
    proxies: GroupSettings = GroupSettings()

"""Frozen parameters of the model: always, or during the warm-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from hgld.errors import ConfigurationError
from hgld.models.embedding_model import EmbeddingModel
from hgld.training.training_settings import TrainingSettings


def freeze_parameters(model: EmbeddingModel, settings: TrainingSettings, epoch: int) -> None:
    """Freeze the backbone during the warm-up, and the parameters that ``frozen`` names in every epoch."""
    model.freeze_backbone(epoch < settings.warm_up_epochs)
    for name, parameter in model.named_parameters():
        if name.startswith(settings.frozen):
            parameter.requires_grad_(False)


def require_trainable(
    model: nn.Module, groups: Mapping[str, Sequence[nn.Parameter]], settings: TrainingSettings
) -> None:
    """Raise an error if ``frozen`` names unknown parameters, or the warm-up leaves nothing to train.

    Args:
        model: The model.
        groups: Parameters by the names ``backbone``, ``head`` and ``proxies``.
        settings: Settings of the training.
    """
    names = [name for name, _ in model.named_parameters()]
    for prefix in settings.frozen:
        if not any(name.startswith(prefix) for name in names):
            prefixes = dict.fromkeys(".".join(name.split(".")[:2]) for name in names)
            raise ConfigurationError(
                f'frozen: no parameter of the model has a name that begins with "{prefix}"; there are '
                f"{', '.join(prefixes)}"
            )
    if settings.warm_up_epochs and not groups["head"] and not groups["proxies"]:
        raise ConfigurationError(
            "there is nothing to train in the warm-up: the backbone is frozen, the model has no head and the loss no "
            "parameters; set warm_up_epochs to 0 or model.dim"
        )

"""Settings of losses, made from the signatures of their constructors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import Field, create_model

from hgld.io.settings import Settings
from hgld.losses.base import Loss
from hgld.losses.registry import Space


class LossSettings(Settings):
    """A loss by its name, and the keywords of its constructor."""

    name: str

    def options(self) -> dict[str, Any]:
        """The keywords."""
        return {key: getattr(self, key) for key in type(self).model_fields if key != "name"}


def loss_settings(name: str, constructor: Callable[..., Loss]) -> type[LossSettings]:
    """The settings of a loss: a field per keyword of its constructor, with its type and default.

    A keyword such as ``lambda_``, whose name Python keeps to itself, is written without the underscore.

    >>> def make(space: Space, *, lambda_: float = 0.1) -> Loss: ...
    >>> loss_settings("mine", make).model_validate({"name": "mine", "lambda": 0.3}).options()
    {'lambda_': 0.3}
    """
    parameters = list(inspect.signature(constructor, eval_str=True).parameters.values())[1:]  # the first is the space
    fields: dict[str, Any] = {"name": (Literal[name], name)}
    fields |= {
        parameter.name: (
            parameter.annotation,
            Field(
                ... if parameter.default is parameter.empty else parameter.default,
                alias=parameter.name.rstrip("_"),
            ),
        )
        for parameter in parameters
    }
    return create_model(f"{name}_settings", __base__=LossSettings, **fields)


def build_loss(settings: LossSettings, losses: Mapping[str, Callable[..., Loss]], space: Space) -> Loss:
    """The loss that settings describe.

    Raises:
        ConfigurationError: a number is out of its range.
    """
    return losses[settings.name](space, **settings.options())

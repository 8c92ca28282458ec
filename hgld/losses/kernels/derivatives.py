"""Custom functions of autograd whose gradient cannot be differentiated again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from hgld.errors import ConfigurationError

Backward = Callable[..., Any]


def first_derivative_only(backward: Backward) -> Backward:
    """Decorate the ``backward`` of a custom function so that recording it for a second derivative is an error.

    ``torch.autograd.function.once_differentiable`` raises only where the gradient from above requires one as well.
    Elsewhere the gradient counts as a constant, and a gradient penalty has a wrong gradient without a word.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *upstream: torch.Tensor) -> Any:
        if torch.is_grad_enabled():  # within a backward pass: with `create_graph` alone
            raise ConfigurationError(
                "the gradient was asked for with `create_graph`, but rank losses, BlackBoxAP and gather_embeddings "
                "have no second derivatives; leave `create_graph` out, or choose another loss"
            )
        return backward(ctx, *upstream)

    return checked

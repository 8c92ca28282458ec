"""Custom functions of autograd: scores of references in 16 bits, and the error for second derivatives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from hgld.errors import ConfigurationError

Backward = Callable[..., Any]

#: References that are converted to the type of the queries at once.
_WIDTH = {"cpu": 2**13, "cuda": 2**18}


def first_derivative_only(backward: Backward) -> Backward:
    """Decorate the ``backward`` of a custom function so that recording it for a second derivative is an error.

    ``torch.autograd.function.once_differentiable`` raises only where the gradient from above requires one as well.
    Elsewhere the gradient counts as a constant, and a gradient penalty has a wrong gradient without a word.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *upstream: torch.Tensor) -> Any:
        if torch.is_grad_enabled():  # within a backward pass: with `create_graph` alone
            raise ConfigurationError(
                "the gradient was asked for with `create_graph`, but rank losses, BlackBoxAP, HIER and "
                "gather_embeddings have no second derivatives; leave `create_graph` out, or choose another loss"
            )
        return backward(ctx, *upstream)

    return checked


def inner_products(queries: torch.Tensor, references: torch.Tensor) -> torch.Tensor:
    """Return the scores of queries and references; those of 16 bits are multiplied and added as the queries' type.

    References of 16 bits are converted a few thousand at a time, so a copy of all of them is never made. Conversion
    is exact: the only error is that of storing them. Rounding each of their numbers to float16 changes it by at most
    2^-11 of its size (bfloat16: 2^-8), hence the score of unit vectors by at most 2^-11 (2^-8), and typically by
    2^-11 / sqrt(d), 2e-5 for d = 512 (bfloat16: 2e-4). The temperature of rank losses is 1e-2.

    Args:
        queries: float32 or float64 tensor of shape (B, d).
        references: Tensor of shape (N, d) of the same dtype; or of float16 or bfloat16, and without gradient.

    Returns:
        Tensor of shape (B, N) and the dtype of ``queries``.

    >>> inner_products(torch.tensor([[0.6, 0.8]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.bfloat16))
    tensor([[0.6000, 0.8000]])
    """
    if references.dtype == queries.dtype:
        return queries @ references.T
    return _WidenedProduct.apply(queries, references)  # type: ignore[no-any-return]


class _WidenedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: torch.Tensor, references: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(references)
        scores = queries.new_empty(len(queries), len(references))
        width = _WIDTH[references.device.type]
        for part, out in zip(torch.split(references, width), torch.split(scores, width, dim=1), strict=True):
            out.copy_(queries @ part.to(queries.dtype).T)
        return scores

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor, None]:
        (references,) = ctx.saved_tensors
        return combined_references(upstream, references), None


def combined_references(weights: torch.Tensor, references: torch.Tensor) -> torch.Tensor:
    """Return the weighted sums of references, the gradient of :func:`inner_products` by the queries.

    Args:
        weights: float32 or float64 tensor of shape (B, N).
        references: Tensor of shape (N, d), of the same dtype or of 16 bits.

    Returns:
        Tensor of shape (B, d) and the dtype of ``weights``.
    """
    if references.dtype == weights.dtype:
        return weights @ references
    sums = weights.new_zeros(len(weights), references.shape[1])
    width = _WIDTH[references.device.type]
    for part, some in zip(torch.split(references, width), torch.split(weights, width, dim=1), strict=True):
        sums.addmm_(some, part.to(weights.dtype))
    return sums

"""Batches of losses: validation, scores, and gathering the batch of several processes.

Losses with a custom gradient refuse second derivatives (:func:`first_derivative_only`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed
from torch import Tensor
from torch.nn.functional import pad

from hgld.compute.processes import current_processes
from hgld.compute.scoring import at_least_float32
from hgld.errors import ConfigurationError, InputError

Backward = Callable[..., Any]

#: Number of references that are converted to the type of the queries at once.
_WIDTH = {"cpu": 2**13, "cuda": 2**18}
#: Labels from callers: integers of any width, of shape (n, L), or (n,) for a single level; or (n,
#: K, L) for images with several labels, padded with rows of -1.
Labels: TypeAlias = Tensor | npt.NDArray[np.integer]
#: Embeddings and labels of queries and, if given, of references.
Batch: TypeAlias = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
#: Largest difference of an embedding's length from 1: normalisation in bfloat16 is off by up to 0.6
#: %.
LENGTH_TOLERANCE = 0.01


def first_derivative_only(backward: Backward) -> Backward:
    """Decorate the ``backward`` of a custom function so that it refuses second derivatives.

    ``torch.autograd.function.once_differentiable`` raises only if the upstream gradient requires a
    gradient, too. Otherwise it treats the gradient as a constant, and a gradient penalty silently
    has a wrong gradient.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *upstream: Tensor) -> Any:
        if torch.is_grad_enabled():  # in a backward pass, only `create_graph` enables it
            raise ConfigurationError(
                "the gradient was asked for with `create_graph`, but rank losses, BlackBoxAP, HIER and "
                "gather_embeddings have no second derivatives; leave `create_graph` out, or choose another loss"
            )
        return backward(ctx, *upstream)

    return checked


def inner_products(queries: Tensor, references: Tensor) -> Tensor:
    """Return the scores of queries and references, computed in the dtype of the queries.

    References of 16 bits are converted a few thousand at a time, which avoids a copy of all
    references. Conversion is exact; the only error is the rounding of stored values. float16 rounds
    each number by at most 2^-11 of its size (bfloat16: 2^-8), which changes the score of unit
    vectors by at most 2^-11 (2^-8), and typically by 2^-11 / sqrt(d), 2e-5 for d = 512 (bfloat16:
    2e-4). The temperature of rank losses is 1e-2.

    Args:
        queries: float32 or float64 tensor of shape (B, d).
        references: Tensor of shape (N, d) of the same dtype; or of float16 or bfloat16, and without
            gradient.

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
    def forward(ctx: Any, queries: Tensor, references: Tensor) -> Tensor:
        ctx.save_for_backward(references)
        scores = queries.new_empty(len(queries), len(references))
        width = _WIDTH[references.device.type]
        for begin in range(0, len(references), width):
            block = slice(begin, begin + width)
            scores[:, block] = queries @ references[block].to(queries.dtype).T
        return scores

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        (references,) = ctx.saved_tensors
        return combined_references(upstream, references), None


def combined_references(weights: Tensor, references: Tensor) -> Tensor:
    """Return weighted sums of references: the gradient of :func:`inner_products` by the queries.

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
    for begin in range(0, len(references), width):
        block = slice(begin, begin + width)
        sums.addmm_(weights[:, block], references[block].to(weights.dtype))
    return sums


class EmbeddingsError(InputError):
    """Embeddings are not finite, or their length is not 1.

    Args:
        finding: The defect and the rows that have it.
        advice: Rest of the message, which says how to correct the defect.
    """

    def __init__(self, finding: str, advice: str = "") -> None:
        super().__init__(finding + advice)
        self.finding = finding


def checked_batch(
    embeddings: Tensor,
    labels: Labels,
    reference_embeddings: Tensor | None = None,
    reference_labels: Labels | None = None,
    *,
    any_length: bool = False,
) -> Batch:
    """Validate the arguments of a loss, and convert them for :meth:`Loss.forward_batch`.

    Args:
        any_length: Whether embeddings may have another length than 1.

    Returns:
        Embeddings in float32, or in float64 if the queries are float64. int64 labels on the device
        of the embeddings, of two dimensions, or three for label sets, without columns that are
        padding in all images.

    Raises:
        InputError: See :meth:`hgld.losses.Loss.forward`.

    >>> checked_batch(torch.tensor([[0.6, 0.8]]).half(), np.array([7], dtype=np.int32))[:2]
    (tensor([[0.6001, 0.7998]]), tensor([[7]]))
    """
    if (reference_embeddings is None) != (reference_labels is None):
        raise InputError(
            "`reference_embeddings` and `reference_labels` go together; give both or neither"
        )
    queries = _checked_embeddings(embeddings, "embeddings")
    query_labels = checked_labels(labels, "labels", queries.device)
    if (
        queries.ndim != 2
        or query_labels.ndim not in (2, 3)
        or len(queries) != len(query_labels)
        or not query_labels.numel()
    ):
        raise InputError(
            f"`embeddings` have shape {tuple(queries.shape)} and `labels` {tuple(labels.shape)}; expected (B, d) and "
            "(B, L), or (B,) for a single level, or (B, K, L) for several labels, B and L at least 1"
        )
    query_labels = _checked_images(query_labels, "labels")
    _check_lengths(queries, "embeddings", any_length)
    if reference_embeddings is None or reference_labels is None:
        return queries, query_labels, None, None
    references = _checked_embeddings(reference_embeddings, "reference_embeddings").to(queries.dtype)
    other_labels = checked_labels(reference_labels, "reference_labels", references.device)
    n_levels = query_labels.shape[-1]
    if (
        tuple(references.shape) != (len(references), queries.shape[1])
        or other_labels.ndim != query_labels.ndim
        or len(other_labels) != len(references)
        or other_labels.shape[-1] != n_levels
        or not other_labels.numel()
    ):
        set_dimension = ", K" if query_labels.ndim == 3 else ""
        raise InputError(
            f"`reference_embeddings` have shape {tuple(references.shape)} and `reference_labels` "
            f"{tuple(reference_labels.shape)}; expected (N, {queries.shape[1]}) and (N{set_dimension}, {n_levels}), "
            "N at least 1"
        )
    other_labels = _checked_images(other_labels, "reference_labels")
    _check_lengths(references, "reference_embeddings", any_length)
    return queries, query_labels, references, other_labels


def checked_labels(labels: Labels, name: str, device: torch.device) -> Tensor:
    """Return labels as an int64 tensor on a device, with a dimension of levels.

    Args:
        labels: Integers of shape (n, L), or (n,) for a single level, or (n, K, L) for label sets.

    Raises:
        InputError: Labels are not a tensor or array of integers.
    """
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu":
        labels = torch.tensor(np.asarray(labels, dtype=np.int64, order="C"))
    if (
        not isinstance(labels, Tensor)
        or labels.is_floating_point()
        or labels.is_complex()
        or labels.dtype == torch.bool
    ):
        if isinstance(labels, Tensor | np.ndarray):
            description = f"of {labels.dtype}"
        else:
            description = f"a {type(labels).__name__}"
        raise InputError(
            f"`{name}` are {description}; expected integers, as a tensor or numpy array: number the classes, for "
            "example with numpy.unique(classes, return_inverse=True)"
        )
    labels = labels.to(device, torch.int64)
    if labels.ndim == 1:
        labels = labels.unsqueeze(1)
    return labels


def without_padding(labels: Tensor) -> Tensor:
    """Return label sets (n, K, L) without the columns that are padding in all images."""
    return labels[:, (labels[..., 0] >= 0).any(dim=0)]


def _checked_images(labels: Tensor, name: str) -> Tensor:
    """Check that all images have a label, and return label sets without unused columns."""
    if labels.ndim == 2:
        negative = (labels < 0).any(dim=1)
        if negative.any():
            raise InputError(
                f"`{name}` of {int(negative.sum())} of {len(labels)} images are below 0, first in row "
                f"{int(negative.int().argmax())}; -1 stands for an unlabelled image: leave these out of the batch"
            )
        return labels
    is_label = (labels >= 0).all(dim=2)
    is_padding = (labels == -1).all(dim=2)
    defects = {
        "have no label": ~is_label.any(dim=1),
        "have labels that are -1 at some levels, or below -1": ~(is_label | is_padding).all(dim=1),
    }
    for defect, rows in defects.items():
        if rows.any():
            raise InputError(
                f"`{name}` of {int(rows.sum())} of {len(labels)} images {defect}, first in row "
                f"{int(rows.int().argmax())}; expected at least one label for each, 0 or more, then rows of -1"
            )
    return without_padding(labels)


def _checked_embeddings(embeddings: Tensor, name: str) -> Tensor:
    if not isinstance(embeddings, Tensor):
        raise InputError(f"`{name}` are a {type(embeddings).__name__}; expected a tensor of floats")
    if not embeddings.is_floating_point():
        raise InputError(f"`{name}` are of {embeddings.dtype}; expected a tensor of floats")
    return at_least_float32(embeddings)


def _check_lengths(embeddings: Tensor, name: str, any_length: bool) -> None:
    lengths = torch.linalg.vector_norm(embeddings.detach(), dim=1)
    is_valid = lengths.isfinite()
    if not any_length:
        is_valid = (lengths - 1).abs() <= LENGTH_TOLERANCE  # False for NaN
    if is_valid.all():
        return
    n = len(embeddings)
    is_finite = embeddings.isfinite().all(dim=1)
    if not is_finite.all():
        raise EmbeddingsError(
            f"`{name}` are NaN or infinite in {n - int(is_finite.sum())} of {n} rows, first in row "
            f"{int(is_finite.int().argmin())}"
        )
    row = int(is_valid.int().argmin())
    raise EmbeddingsError(
        f"`{name}` are not of length 1 in {n - int(is_valid.sum())} of {n} rows; row {row} has length "
        f"{float(lengths[row]):.4g}",
        ". Losses compare cosines: pass torch.nn.functional.normalize(embeddings, dim=1)",
    )


def gather_embeddings(embeddings: Tensor, labels: Labels) -> tuple[Tensor, Tensor]:
    """Gather the embeddings and labels of all processes in the order of their ranks.

    Gradients flow back to the embeddings of each process. All processes have to call this function
    together, with any number of items each. A model in ``DistributedDataParallel`` then receives
    the gradient that a single process has with the whole batch. Put a loss with proxies into
    ``DistributedDataParallel`` as well, so that all processes start with the same proxies. A loss
    that draws random numbers, such as :class:`~hgld.losses.BlackBoxAP`, has the mean gradient of
    the processes' draws. A single process, with or without ``torch.distributed``, gets its own
    batch.

    Args:
        embeddings: Float tensor of shape (b, d) of this process, on a device of the process group's
            backend.
        labels: Integers of shape (b, L), or (b,) for a single level; or (b, K, L) for label sets,
            with the same K in all processes.

    Returns:
        Embeddings of shape (B, d), at least float32, which keeps sums of gradients in float32; and
        int64 labels of shape (B, L) or (B, K, L).

    Raises:
        InputError: The labels are not integers, or their number differs from the number of
            embeddings.

    >>> embeddings, labels = gather_embeddings(torch.tensor([[0.6, 0.8]]), torch.tensor([3]))
    >>> embeddings, labels
    (tensor([[0.6000, 0.8000]]), tensor([[3]]))
    """
    labels = checked_labels(labels, "labels", embeddings.device)
    if len(labels) != len(embeddings):
        raise InputError(
            f"there are {len(embeddings)} `embeddings` and {len(labels)} `labels`; expected the same number"
        )
    embeddings = at_least_float32(embeddings)
    if current_processes().count == 1:
        return embeddings, labels
    counts = _all_gather(torch.tensor(len(embeddings), device=embeddings.device)).tolist()
    n_missing = max(counts) - len(embeddings)  # tensors of all processes need the same shape
    padded_labels = pad(labels, (0, 0) * (labels.ndim - 1) + (0, n_missing))
    gathered: Tensor = _AllGather.apply(pad(embeddings, (0, 0, 0, n_missing)))
    return _without_padding_rows(gathered, counts), _without_padding_rows(
        _all_gather(padded_labels), counts
    )


class _AllGather(torch.autograd.Function):
    """Stack the tensors of all processes, in place of a function that torch deprecates."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return _all_gather(tensor)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        torch.distributed.all_reduce(total)
        return total[torch.distributed.get_rank()]


def _all_gather(tensor: Tensor) -> Tensor:
    """Stack tensors of the same shape of all processes, without gradient."""
    parts = [torch.empty_like(tensor) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(parts, tensor.contiguous())
    return torch.stack(parts)


def _without_padding_rows(gathered: Tensor, counts: list[int]) -> Tensor:
    """Join the first rows of each process: (n_processes, most rows, ...) becomes (rows, ...)."""
    return torch.cat([rows[:count] for rows, count in zip(gathered, counts, strict=True)])

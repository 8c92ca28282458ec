"""Checks of the embeddings and labels that losses are called with, and their conversion to one form."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.scoring import at_least_float32
from hgld.errors import InputError

#: Labels as callers have them: integers of any width, of shape (n, L), or (n,) for a single level; or (n, K, L) for
#: images with several labels, with rows of -1 after an image's own.
Labels: TypeAlias = torch.Tensor | npt.NDArray[np.integer]
#: Embeddings and labels of queries and, if given, of references.
Batch: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]

#: How far the length of an embedding may be from 1: normalisation in bfloat16 is off by up to 0.6 %.
LENGTH_TOLERANCE = 0.01


class EmbeddingsError(InputError):
    """Embeddings are not finite, or their length is not 1.

    Args:
        finding: Which of the two, and in which rows.
        advice: What to do, the rest of the message.
    """

    def __init__(self, finding: str, advice: str = "") -> None:
        super().__init__(finding + advice)
        self.finding = finding


def checked_batch(
    embeddings: torch.Tensor,
    labels: Labels,
    reference_embeddings: torch.Tensor | None = None,
    reference_labels: Labels | None = None,
    *,
    any_length: bool = False,
) -> Batch:
    """Return the arguments of :meth:`hgld.losses.Loss.forward` as the losses compute with them.

    Args:
        embeddings: See :meth:`hgld.losses.Loss.forward`, as for the others.
        labels: Labels of the embeddings.
        reference_embeddings: Embeddings of references.
        reference_labels: Labels of references.
        any_length: Whether embeddings may have another length than 1.

    Returns:
        Embeddings of float32, or float64 if those of the queries are, and labels of int64 on the device of the
        embeddings, of two dimensions, or three for label sets, without columns that are padding in all images.

    Raises:
        InputError: See :meth:`hgld.losses.Loss.forward`.

    >>> checked_batch(torch.tensor([[0.6, 0.8]]).half(), np.array([7], dtype=np.int32))[:2]
    (tensor([[0.6001, 0.7998]]), tensor([[7]]))
    """
    if (reference_embeddings is None) != (reference_labels is None):
        raise InputError("`reference_embeddings` and `reference_labels` go together; give both or neither")
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
    labels_of_references = checked_labels(reference_labels, "reference_labels", references.device)
    n_levels, n_references = query_labels.shape[-1], len(references)
    if (
        tuple(references.shape) != (n_references, queries.shape[1])
        or labels_of_references.ndim != query_labels.ndim
        or (len(labels_of_references), labels_of_references.shape[-1]) != (n_references, n_levels)
        or not labels_of_references.numel()
    ):
        several = ", K" if query_labels.ndim == 3 else ""
        raise InputError(
            f"`reference_embeddings` have shape {tuple(references.shape)} and `reference_labels` "
            f"{tuple(reference_labels.shape)}; expected (N, {queries.shape[1]}) and (N{several}, {n_levels}), N at "
            "least 1"
        )
    labels_of_references = _checked_images(labels_of_references, "reference_labels")
    _check_lengths(references, "reference_embeddings", any_length)
    return queries, query_labels, references, labels_of_references


def checked_labels(labels: Labels, name: str, device: torch.device) -> torch.Tensor:
    """Return labels as an int64 tensor on a device, with a dimension of levels.

    Args:
        labels: Integers of shape (n, L), or (n,) for a single level, or (n, K, L) for label sets.
        name: Name of the parameter for messages.
        device: Device of the result.

    Raises:
        InputError: They are not a tensor or an array, or not of integers.
    """
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu":
        labels = torch.tensor(np.asarray(labels, dtype=np.int64, order="C"))
    if not (isinstance(labels, torch.Tensor) and _is_integer(labels.dtype)):
        found = (
            f"of {labels.dtype}" if isinstance(labels, torch.Tensor | np.ndarray) else f"a {type(labels).__name__}"
        )
        raise InputError(
            f"`{name}` are {found}; expected integers, as a tensor or numpy array: number the classes, for example "
            "with numpy.unique(classes, return_inverse=True)"
        )
    labels = labels.to(device, torch.int64)
    return labels.unsqueeze(1) if labels.ndim == 1 else labels


def without_padding(labels: torch.Tensor) -> torch.Tensor:
    """Return label sets (n, K, L) without the columns that are padding in all images."""
    return labels[:, (labels[..., 0] >= 0).any(dim=0)]


def _checked_images(labels: torch.Tensor, name: str) -> torch.Tensor:
    """Return labels, label sets without unused columns, after a check that all images have some."""
    if labels.ndim == 2:
        negative = (labels < 0).any(dim=1)
        if negative.any():
            raise InputError(
                f"`{name}` of {int(negative.sum())} of {len(labels)} images are below 0, first in row "
                f"{int(negative.int().argmax())}; -1 stands for an unlabelled image: leave these out of the batch"
            )
        return labels
    is_label, is_padding = (labels >= 0).all(dim=2), (labels == -1).all(dim=2)
    for finding, rows in (
        ("have no label", ~is_label.any(dim=1)),
        ("have labels that are -1 at some levels, or below -1", ~(is_label | is_padding).all(dim=1)),
    ):
        if rows.any():
            raise InputError(
                f"`{name}` of {int(rows.sum())} of {len(labels)} images {finding}, first in row "
                f"{int(rows.int().argmax())}; expected at least one label for each, 0 or more, then rows of -1"
            )
    return without_padding(labels)


def _is_integer(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def _checked_embeddings(embeddings: torch.Tensor, name: str) -> torch.Tensor:
    if not isinstance(embeddings, torch.Tensor) or not embeddings.is_floating_point():
        found = f"of {embeddings.dtype}" if isinstance(embeddings, torch.Tensor) else f"a {type(embeddings).__name__}"
        raise InputError(f"`{name}` are {found}; expected a tensor of floats")
    return at_least_float32(embeddings)


def _check_lengths(embeddings: torch.Tensor, name: str, any_length: bool) -> None:
    lengths = torch.linalg.vector_norm(embeddings.detach(), dim=1)
    is_unit = lengths.isfinite() if any_length else (lengths - 1).abs() <= LENGTH_TOLERANCE  # False for NaN
    if is_unit.all():
        return
    n = len(embeddings)
    is_finite = embeddings.isfinite().all(dim=1)
    if not is_finite.all():
        raise EmbeddingsError(
            f"`{name}` are NaN or infinite in {n - int(is_finite.sum())} of {n} rows, first in row "
            f"{int(is_finite.int().argmin())}"
        )
    row = int(is_unit.int().argmin())
    raise EmbeddingsError(
        f"`{name}` are not of length 1 in {n - int(is_unit.sum())} of {n} rows; row {row} has length "
        f"{float(lengths[row]):.4g}",
        ". Losses compare cosines: pass torch.nn.functional.normalize(embeddings, dim=1)",
    )

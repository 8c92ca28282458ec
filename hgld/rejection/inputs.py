"""Inputs of rejection scores, and scores as inputs of metrics, checked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.scoring import Vectors, as_tensor
from hgld.errors import InputError
from hgld.hierarchy.label_matrix import LabelMatrix, labelled_rows

_BLOCK = 65536


@dataclass(frozen=True, eq=False)
class DetectorInputs:
    """What a score knows of n images.

    Args:
        embeddings: float, shape (n, d).
        labels: int64, shape (n, L), finest first; -1 for unlabelled images.
        logits: float, shape (n, C).
        deviations: float, shape (n, c): standard deviations of the feature maps.
    """

    embeddings: torch.Tensor
    labels: LabelMatrix | None = None
    logits: torch.Tensor | None = None
    deviations: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.embeddings)

    def rows(self, rows: slice) -> DetectorInputs:
        """Return the inputs of some of the images."""
        parts = (self.embeddings, self.labels, self.logits, self.deviations)
        return DetectorInputs(*(None if part is None else part[rows] for part in parts))  # type: ignore[arg-type]


def detector_inputs(
    embeddings: Vectors, labels: LabelMatrix | None, logits: Vectors | None, deviations: Vectors | None
) -> DetectorInputs:
    """Check the inputs of a score; see :meth:`hgld.rejection.detector.Detector.fit`.

    Raises:
        InputError: An input has another shape, type or number of rows than expected, or values that are not finite.
    """
    matrix = _checked(embeddings, "embeddings")
    n = len(matrix)
    others = {
        name: None if values is None else _checked(values, name)
        for name, values in (("logits", logits), ("deviations", deviations))
    }
    for name, values in others.items():
        if values is not None and len(values) != n:
            raise InputError(f"there are {len(values):,} rows of `{name}` for {n:,} embeddings; expected one each")
    return DetectorInputs(matrix, None if labels is None else _checked_labels(labels, n), **others)


def checked_scores(scores: npt.ArrayLike, name: str) -> npt.NDArray[np.float64]:
    """Return scores as float64, shape (n,).

    Args:
        scores: Scores, float, shape (n,).
        name: Name of the parameter, for messages.

    Raises:
        InputError: There are no scores, or they are NaN or have another shape.
    """
    array = np.asarray(scores)
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise InputError(
            f"`{name}` has the shape {array.shape} and the type {array.dtype}; expected numbers of the shape (n,)"
        )
    if not len(array):
        raise InputError(f"`{name}` is empty; expected the score of at least one image")
    missing = np.isnan(array)
    if missing.any():
        raise InputError(
            f"`{name}` has {int(missing.sum()):,} NaN of {len(array):,} scores, the first at position "
            f"{int(missing.argmax()):,}; score these images again or leave them out"
        )
    return array.astype(np.float64)


def number_classes(labels: npt.NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
    """Number the sorted labels of images from 0.

    Args:
        labels: int64, shape (n,); negative for unlabelled images.

    Returns:
        Number of the class of each image, int64, shape (n,), with -1 for unlabelled images; and the number of images
        in each class, float64, shape (C,).

    Raises:
        InputError: No image is labelled.

    >>> number_classes(np.array([7, -1, 3, 7]))
    (tensor([ 1, -1,  0,  1]), tensor([1., 2.], dtype=torch.float64))
    """
    labelled = labels >= 0
    if not labelled.any():
        raise InputError("no image has a label of 0 or more; give the landmarks of the index as `labels`")
    indices = np.full(len(labels), -1)
    _, indices[labelled] = np.unique(labels[labelled], return_inverse=True)
    return torch.from_numpy(indices), torch.from_numpy(np.bincount(indices[labelled])).double()


def _checked(values: Vectors, name: str) -> torch.Tensor:
    tensor = as_tensor(values)
    if tensor.ndim != 2 or not tensor.is_floating_point() or not tensor.shape[1]:
        raise InputError(
            f"`{name}` have the shape {tuple(tensor.shape)} and the type {tensor.dtype}; expected floating point "
            "numbers of the shape (n, d)"
        )
    for start in range(0, len(tensor), _BLOCK):
        finite = tensor[start : start + _BLOCK].isfinite().all(dim=1)
        if not finite.all():
            row = start + int((~finite).nonzero()[0, 0])
            raise InputError(f"`{name}` have NaN or infinite values, first in row {row:,}; embed this image again")
    return tensor


def _checked_labels(labels: LabelMatrix, n: int) -> LabelMatrix:
    array = np.asarray(labels)
    if array.ndim not in (1, 2) or not np.issubdtype(array.dtype, np.integer) or len(array) != n:
        raise InputError(
            f"`labels` have the shape {array.shape} and the type {array.dtype}; expected integers of the shape "
            f"({n}, L), finest first, a row for each embedding"
        )
    array = array.astype(np.int64, copy=False).reshape(n, -1)
    labelled_rows(array)  # raises for rows that are partly -1
    return array

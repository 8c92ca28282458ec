"""Base class of rejection scores, which measure how unlike the images of an index an image is.

To add a score, write a :class:`Detector` with a name, and enter it in
:mod:`hgld.rejection.registry`. A score is a dataclass whose fields are its options.
:class:`Detector` checks inputs and divides images into blocks; a score implements ``_fit`` and
``_score``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hgld.arrays import Integers
from hgld.compute.scoring import Vectors, as_tensor
from hgld.errors import ConfigurationError, InputError

#: Scores, one per image, float32 or float64; higher for images less like the index.
Scores = npt.NDArray[Any]
#: Number of images scored at once.
_BLOCK = 8192
#: Number of rows checked at once.
_CHECKED = 65536
Self = TypeVar("Self", bound="Detector")


@dataclass(frozen=True, eq=False)
class DetectorInputs:
    """Checked inputs of a score for n images.

    Args:
        embeddings: float, shape (n, d).
        labels: int64, shape (n,): class of each image, negative for unlabelled images; None for
            images to score, and for an index without labels.
        deviations: float, shape (n, c): standard deviations of the feature maps, which only HEAT
            uses.
    """

    embeddings: Tensor
    labels: Integers | None = None
    deviations: Tensor | None = None

    def __len__(self) -> int:
        return len(self.embeddings)

    def blocks(self, size: int = _BLOCK) -> list[DetectorInputs]:
        """Divide the images into blocks without labels."""
        blocks = []
        for start in range(0, len(self), size):
            rows = slice(start, start + size)
            deviations = None if self.deviations is None else self.deviations[rows]
            blocks.append(DetectorInputs(self.embeddings[rows], deviations=deviations))
        return blocks

    def required_labels(self, score: str) -> Integers:
        """Return the labels, or raise a :class:`ConfigurationError` that names the score."""
        if self.labels is None:
            raise ConfigurationError(f"the score {score} needs `labels`")
        return self.labels


@dataclass(eq=False)
class Detector(ABC):
    """A score of how unlike the images of an index an image is.

    Computations are in float64 for float64 embeddings, and otherwise in float32.

    Attributes:
        name: Name of the score.
        dim: Dimension d of the embeddings of the index; 0 before the score is fitted.
    """

    name: ClassVar[str]
    dim = 0

    def fit(
        self: Self,
        embeddings: Vectors,
        labels: npt.ArrayLike | None = None,
        *,
        deviations: Vectors | None = None,
    ) -> Self:
        """Fit the score on the images of an index.

        Args:
            embeddings: float16, float32, float64 or bfloat16, shape (n, d); may be memory-mapped.
            labels: int, shape (n,): class of each image; negative for unlabelled images.
            deviations: Standard deviations of the feature maps, float, shape (n, c), which only
                HEAT uses; see ``hgld embed-images --with-std``.

        Raises:
            InputError: An input is malformed, inputs do not fit each other, or the score cannot be
                fitted to them.
            ConfigurationError: A required input is missing.
        """
        self.dim = 0  # a detector whose fit fails cannot score
        images = _checked_inputs(embeddings, labels, deviations)
        self._fit(images)
        self.dim = images.embeddings.shape[1]
        return self

    def score(self, embeddings: Vectors, *, deviations: Vectors | None = None) -> Scores:
        """Return the score of each image, float32 (float64 for float64 embeddings), shape (n,).

        Args:
            embeddings: float, shape (n, d).
            deviations: See :meth:`fit`; required if HEAT was fitted with them.

        Raises:
            InputError: An input is malformed, or its dimension differs from the dimension of the
                index.
            ConfigurationError: The score was not fitted, or it was fitted with deviations, which
                are missing.
        """
        if not self.dim:
            raise ConfigurationError(f"the score {self.name} was not fitted; call `fit` first")
        images = _checked_inputs(embeddings, None, deviations)
        if images.embeddings.shape[1] != self.dim:
            raise InputError(
                f"the embeddings have {images.embeddings.shape[1]} dimensions, and the score {self.name} was fitted "
                f"on {self.dim}; embed both with the same model"
            )
        if not len(images):
            return np.empty(0, np.float32)
        scores = torch.cat([self._score(block) for block in images.blocks()])
        return scores.cpu().numpy()

    def options(self) -> dict[str, Any]:
        """Return the options by name."""
        return {option.name: getattr(self, option.name) for option in fields(self)}

    @abstractmethod
    def _fit(self, images: DetectorInputs) -> None:
        """Fit on checked inputs."""

    @abstractmethod
    def _score(self, images: DetectorInputs) -> Tensor:
        """Return the scores of a block of images, float32 or float64, shape (n,)."""


def _checked_inputs(
    embeddings: Vectors, labels: npt.ArrayLike | None, deviations: Vectors | None
) -> DetectorInputs:
    """Check the shapes, types and values of inputs.

    Raises:
        InputError: An input is malformed, or inputs do not fit each other.
    """
    embedding_tensor = _checked_vectors(embeddings, "embeddings")
    n = len(embedding_tensor)
    classes = None
    if labels is not None:
        classes = np.asarray(labels)
        if not np.issubdtype(classes.dtype, np.integer) or classes.shape != (n,):
            raise InputError(
                f"`labels` have the shape {classes.shape} and the type {classes.dtype}; expected integers of the "
                f"shape ({n},), the class of each image"
            )
        classes = classes.astype(np.int64, copy=False)
    deviation_tensor = None
    if deviations is not None:
        deviation_tensor = _checked_vectors(deviations, "deviations")
        if len(deviation_tensor) != n:
            raise InputError(
                f"there are {len(deviation_tensor):,} rows of `deviations` for {n:,} embeddings; expected one each"
            )
    return DetectorInputs(embedding_tensor, classes, deviation_tensor)


def _checked_vectors(values: Vectors, name: str) -> Tensor:
    vectors = as_tensor(values)
    if vectors.ndim != 2 or not vectors.is_floating_point() or not vectors.shape[1]:
        raise InputError(
            f"`{name}` have the shape {tuple(vectors.shape)} and the type {vectors.dtype}; expected floating point "
            "numbers of the shape (n, d)"
        )
    for start in range(0, len(vectors), _CHECKED):
        is_finite = vectors[start : start + _CHECKED].isfinite().all(dim=1)
        if not is_finite.all():
            row = start + int(is_finite.int().argmin())
            raise InputError(
                f"`{name}` have NaN or infinite values, first in row {row:,}; embed this image again"
            )
    return vectors

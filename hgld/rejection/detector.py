"""The interface of all rejection scores: fitted on the images of an index, they say how unlike them other images are.

To add a score, write a :class:`Detector` in a file of its own in :mod:`hgld.rejection.scores` and enter it in
:mod:`hgld.rejection.registry`. :class:`Detector` checks inputs and divides them into blocks; a score implements
``_fit``, ``_score``, ``state`` and ``_restore``.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.compute.scoring import ScoringConfig, Vectors
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.rejection.inputs import DetectorInputs, detector_inputs

#: Inputs beside embeddings.
Input = Literal["labels", "logits", "deviations"]
#: Scores, one per image, float32 or float64: the higher, the less an image is like the index.
Scores = npt.NDArray[Any]
_BLOCK = 8192
Self = TypeVar("Self", bound="Detector")


class Detector(ABC):
    """A score of how unlike the images of an index an image is: higher for what is less like the index.

    The arguments of a constructor are hyper-parameters, which are attributes of the same names. Computations are in
    float64 where embeddings are float64, and otherwise in float32.

    Attributes:
        name: Name of the score.
        requires: Inputs beside embeddings without which it cannot be fitted.
        uses: Further inputs that it takes where they are given.
        dim: Dimension d of the embeddings that it was fitted on; 0 before.
    """

    name: ClassVar[str]
    requires: ClassVar[frozenset[Input]] = frozenset()
    uses: ClassVar[frozenset[Input]] = frozenset()
    dim: int = 0

    def fit(
        self: Self,
        embeddings: Vectors,
        labels: LabelMatrix | None = None,
        logits: Vectors | None = None,
        *,
        deviations: Vectors | None = None,
    ) -> Self:
        """Fit the score on the images of an index.

        Args:
            embeddings: float16, float32, float64 or bfloat16, shape (n, d); may be memory-mapped.
            labels: int64, shape (n,) or (n, L), finest first; -1 for unlabelled images.
            logits: Outputs of a classifier for the images, float, shape (n, C).
            deviations: Standard deviations of the feature maps, float, shape (n, c); see
                ``hgld embed-images --with-std``.

        Raises:
            InputError: An input is malformed or does not fit another, or the score cannot be fitted on it.
            ConfigurationError: A required input is missing.
        """
        given = detector_inputs(embeddings, labels, logits, deviations)
        missing = [name for name in sorted(self.requires) if getattr(given, name) is None]
        if missing:
            raise ConfigurationError(f"the score {self.name} needs {' and '.join(f'`{name}`' for name in missing)}")
        self.dim = given.embeddings.shape[1]
        self._fit(given)
        return self

    def score(
        self, embeddings: Vectors, logits: Vectors | None = None, *, deviations: Vectors | None = None
    ) -> Scores:
        """Return the score of each image, float32 (float64 for float64 embeddings), shape (n,).

        Args:
            embeddings: float, shape (n, d).
            logits: See :meth:`fit`, as for ``deviations``; required if they were given there.
            deviations: Standard deviations of the feature maps.

        Raises:
            InputError: An input is malformed, or differs in dimension from what the score was fitted on.
            ConfigurationError: The score was not fitted, or an input that it was fitted on is missing.
        """
        if not self.dim:
            raise ConfigurationError(f"the score {self.name} was not fitted; call `fit` first")
        given = detector_inputs(embeddings, None, logits, deviations)
        if given.embeddings.shape[1] != self.dim:
            raise InputError(
                f"the embeddings have {given.embeddings.shape[1]} dimensions, and the score {self.name} was fitted "
                f"on {self.dim}; embed both with the same model"
            )
        blocks = [self._score(given.rows(slice(start, start + _BLOCK))) for start in range(0, len(given), _BLOCK)]
        return np.concatenate(blocks) if blocks else np.empty(0, np.float32)

    def options(self) -> dict[str, Any]:
        """Return the hyper-parameters by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    @abstractmethod
    def state(self) -> dict[str, torch.Tensor]:
        """Return what was fitted, as tensors by name."""

    def restore(self: Self, dim: int, state: Mapping[str, torch.Tensor]) -> Self:
        """Restore what :meth:`state` returned, after which images can be scored.

        Args:
            dim: Dimension d of the embeddings that the score was fitted on.
            state: Tensors by name; those of a fit on float64 are float64.

        Raises:
            InputError: A tensor is missing.
        """
        self.dim = dim
        try:
            self._restore(state)
        except KeyError as error:
            raise InputError(f"the state of the score {self.name} has no tensor {error}; fit it again") from error
        return self

    @abstractmethod
    def _fit(self, images: DetectorInputs) -> None:
        """Fit on checked inputs, of which the required ones are there."""

    @abstractmethod
    def _score(self, images: DetectorInputs) -> Scores:
        """Return the scores of a block of images."""

    @abstractmethod
    def _restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore the attributes that :meth:`state` returns."""


class NeighbourDetector(Detector):
    """A score made from the nearest images of the index, which ranking a gallery finds anyway.

    The index is kept: embeddings as they are given, and labels.

    Attributes:
        index: float, shape (N, d): embeddings of the index.
        labels: int64, shape (N, L): their labels, finest first; None if there are none.
    """

    index: torch.Tensor
    labels: LabelMatrix | None = None

    @property
    @abstractmethod
    def n_neighbours(self) -> int:
        """Number of nearest images that :meth:`score_neighbours` needs."""

    @abstractmethod
    def score_neighbours(
        self, cosines: npt.NDArray[np.floating[Any]], positions: npt.NDArray[np.int64], queries: torch.Tensor
    ) -> Scores:
        """Return the score of each query from its nearest images.

        Args:
            cosines: float, shape (n, k), best first; NaN where the index has fewer than k images.
            positions: int64, shape (n, k), positions in the index; -1 where it has fewer.
            queries: float, shape (n, d): embeddings of the queries.
        """

    def state(self) -> dict[str, torch.Tensor]:
        """Return the embeddings and labels of the index."""
        labels = {} if self.labels is None else {"labels": torch.from_numpy(self.labels)}
        return {"index": self.index} | labels

    def _fit(self, images: DetectorInputs) -> None:
        self.index, self.labels = images.embeddings, images.labels

    def _score(self, images: DetectorInputs) -> Scores:
        wide = images.embeddings.dtype == torch.float64
        config = ScoringConfig(precision="float64" if wide else "float32")
        cosines, positions = nearest_neighbours(images.embeddings, self.index, self.n_neighbours, config=config)
        return self.score_neighbours(cosines, positions, images.embeddings)

    def _restore(self, state: Mapping[str, torch.Tensor]) -> None:
        self.index = state["index"]
        self.labels = state["labels"].numpy() if "labels" in state else None

"""The interface of all rejection scores: fitted on the images of an index, they say how unlike them other images are.

To add a score, write a :class:`Detector` with a name in a module of :mod:`hgld.rejection`, where
:mod:`hgld.rejection.registry` finds it. A score is a dataclass: its fields are its options, and those that are
:func:`fitted` are what is saved of it. :class:`Detector` checks inputs and divides them into blocks; a score
implements ``_fit`` and ``_score``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.compute.scoring import ScoringConfig, Vectors, as_tensor
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy.label_matrix import LabelMatrix, labelled_rows
from hgld.ragged import RaggedIndices

#: Inputs beside embeddings.
Input = Literal["labels", "logits", "deviations"]
#: Scores, one per image, float32 or float64: the higher, the less an image is like the index.
Scores = npt.NDArray[Any]
#: Cosines of queries and their neighbours, float, shape (n, k), and positions of these, int64.
Cosines = npt.NDArray[np.floating[Any]]
Positions = npt.NDArray[np.int64]
_BLOCK = 8192  # images scored at once
_CHECKED = 65536  # rows checked at once
Self = TypeVar("Self", bound="Detector")


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


#: Values that an option may have, by what messages say of them.
_RANGES: Mapping[str, Callable[[Any], bool]] = {
    "a number, or -inf or inf": lambda value: value == value,
    "a number above 0, or inf": lambda value: value > 0,
    "at least 1": lambda value: value >= 1,
    "a number above 0": lambda value: 0 < value < math.inf,
    "a number of 0 or more": lambda value: 0 <= value < math.inf,
    "a number from 0 to 1": lambda value: 0 <= value <= 1,
    "a share from 0 to less than 1": lambda value: 0 <= value < 1,
}


def option(default: Any, expected: str) -> Any:
    """Declare an option with one of the ranges above; None is allowed where it is the default."""
    return field(default=default, metadata={"expected": expected, "holds": _RANGES[expected]})


def choice(default: str, literal: Any) -> Any:
    """Declare an option that is one of the values of a ``Literal`` type."""
    values = get_args(literal)
    return field(default=default, metadata={"expected": f"one of {', '.join(values)}", "holds": values.__contains__})


def fitted(kind: type = torch.Tensor, prefix: str = "", *, optional: bool = False) -> Mapping[str, Any]:
    """Return the metadata of a field that fitting sets and that is saved with the score.

    Args:
        kind: Type of the value: a tensor, an array, ``int``, or a dataclass of tensors.
        prefix: Prefix of the names of the tensors of a dataclass in the state.
        optional: Whether the field may be None.
    """
    return {"kind": kind, "prefix": prefix, "optional": optional}


@dataclass(eq=False)
class Detector(ABC):
    """A score of how unlike the images of an index an image is: higher for what is less like the index.

    The arguments of a constructor are hyper-parameters, which are attributes of the same names. Computations are in
    float64 where embeddings are float64, and otherwise in float32.

    Attributes:
        name: Name of the score.
        requires: Inputs beside embeddings without which it cannot be fitted.
        uses: Further inputs that it takes where they are given.
        dim: Dimension d of the embeddings that it was fitted on; 0 before.
        n_levels: Number of levels L of the labels that it was fitted on; 1 without labels.
    """

    name: ClassVar[str]
    requires: ClassVar[frozenset[Input]] = frozenset()
    uses: ClassVar[frozenset[Input]] = frozenset()
    dim: int = field(init=False, repr=False, default=0)
    n_levels: int = field(init=False, repr=False, default=1)

    @property
    def n_neighbours(self) -> int:
        """Number of nearest images of the index that scores and answers need."""
        return 1

    def __post_init__(self) -> None:
        for declared in fields(self):
            value, limits = getattr(self, declared.name, None), declared.metadata
            if "holds" in limits and value is not None and not limits["holds"](value):
                raise ConfigurationError(f"`{declared.name}` is {value}; expected {limits['expected']}")

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
        self.n_levels = 1 if given.labels is None else given.labels.shape[1]
        try:
            self._fit(given)
        except BaseException:
            self.dim = 0  # a detector whose fit failed cannot score
            raise
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
        return np.ascontiguousarray(self.score_levels(embeddings, logits, deviations=deviations)[:, 0])

    def score_levels(
        self, embeddings: Vectors, logits: Vectors | None = None, *, deviations: Vectors | None = None
    ) -> Scores:
        """Return the score of each image at each level of the labels, finest first: float, shape (n, L).

        The score at a level says how unlike the index an image is for an answer at that level: an image may be
        rejected at the landmark and accepted as a church. The first column is :meth:`score`. Scores that know nothing
        of levels are the same at all of them.
        """
        if not self.dim:
            raise ConfigurationError(f"the score {self.name} was not fitted; call `fit` first")
        given = detector_inputs(embeddings, None, logits, deviations)
        if given.embeddings.shape[1] != self.dim:
            raise InputError(
                f"the embeddings have {given.embeddings.shape[1]} dimensions, and the score {self.name} was fitted "
                f"on {self.dim}; embed both with the same model"
            )
        blocks = []
        for start in range(0, len(given), _BLOCK):
            block = given.rows(slice(start, start + _BLOCK))
            scores = self._score(block).reshape(len(block), -1)
            blocks.append(np.broadcast_to(scores, (len(block), self.n_levels)))
        return np.concatenate(blocks) if blocks else np.empty((0, self.n_levels), np.float32)

    def options(self) -> dict[str, Any]:
        """Return the hyper-parameters by name."""
        return {declared.name: getattr(self, declared.name) for declared in fields(self) if declared.init}

    def state(self) -> dict[str, torch.Tensor]:
        """Return what was fitted, as tensors by name."""
        state: dict[str, torch.Tensor] = {}
        for declared in _fitted_fields(self):
            value, prefix = getattr(self, declared.name), declared.metadata["prefix"]
            if is_dataclass(value):
                state |= {prefix + part.name: getattr(value, part.name) for part in fields(value)}
            elif value is not None:
                state[declared.name] = as_tensor(value) if isinstance(value, np.ndarray) else torch.as_tensor(value)
        return state

    def restore(self: Self, dim: int, state: Mapping[str, torch.Tensor], *, n_levels: int = 1) -> Self:
        """Restore what :meth:`state` returned, after which images can be scored.

        Args:
            dim: Dimension d of the embeddings that the score was fitted on.
            state: Tensors by name; those of a fit on float64 are float64.
            n_levels: Number of levels L of the labels that the score was fitted on.

        Raises:
            InputError: A tensor is missing.
        """
        self.dim, self.n_levels = dim, n_levels
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
        """Return the scores of a block of images, shape (n,), or (n, L) where they differ between levels."""

    def _restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore the attributes that :meth:`state` returns."""
        for declared in _fitted_fields(self):
            kind, prefix = declared.metadata["kind"], declared.metadata["prefix"]
            names = [prefix + part.name for part in fields(kind)] if is_dataclass(kind) else [declared.name]
            value = None
            if names[0] in state or not declared.metadata["optional"]:
                tensors = [state[name] for name in names]
                convert = {torch.Tensor: torch.as_tensor, np.ndarray: torch.Tensor.numpy}.get(kind, kind)
                value = convert(*tensors)
            setattr(self, declared.name, value)


def _fitted_fields(detector: Detector) -> list[Field[Any]]:
    return [declared for declared in fields(detector) if "kind" in declared.metadata]


@dataclass(eq=False)
class NeighbourDetector(Detector):
    """A score made from the nearest images of the index, which ranking a gallery finds anyway.

    The index is kept: embeddings as they are given, and labels. Where neighbours come from a ranking, pass them to
    :meth:`complete_neighbours`, and its result to the other methods.

    Attributes:
        index: float, shape (N, d): embeddings of the index.
        labels: int64, shape (N, L): their labels, finest first; None if there are none.
    """

    index: torch.Tensor = field(init=False, repr=False, metadata=fitted())
    labels: LabelMatrix | None = field(
        init=False, repr=False, default=None, metadata=fitted(np.ndarray, optional=True)
    )

    @property
    def n_neighbours(self) -> int:
        """Number of nearest images that :meth:`score_neighbours` needs: the option ``k``, or 1 without it."""
        k: int = getattr(self, "k", 1)
        return k

    @abstractmethod
    def score_neighbours(self, cosines: Cosines, positions: Positions, queries: torch.Tensor) -> Scores:
        """Return the score of each query from its nearest images.

        Args:
            cosines: float, shape (n, k), best first; NaN where the index has fewer than k images.
            positions: int64, shape (n, k), positions in the index; -1 where it has fewer.
            queries: float, shape (n, d): embeddings of the queries.
        """

    def score_neighbour_levels(self, cosines: Cosines, positions: Positions, queries: torch.Tensor) -> Scores:
        """Return the score of each query at each level, float, shape (n, L); see :meth:`score_levels`."""
        return np.repeat(self.score_neighbours(cosines, positions, queries)[:, None], self.n_levels, axis=1)

    def answers(self, cosines: Cosines, positions: Positions) -> LabelMatrix:
        """Return the labels that the nearest images answer: those of the nearest, unless a score says otherwise.

        Returns:
            int64, shape (n, L), finest first; -1 where there is no answer, such as that of an unlabelled image.

        Raises:
            ConfigurationError: The score was fitted without labels.
        """
        return self._neighbour_labels(positions[:, :1])[:, 0]

    def complete_neighbours(
        self,
        cosines: Cosines,
        positions: Positions,
        queries: torch.Tensor,
        *,
        excluded: RaggedIndices | None = None,
        gallery_mask: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[Cosines, Positions]:
        """Return neighbours together with those beyond the k nearest that the score needs; few scores need any.

        Args:
            excluded: Images of the index that are not neighbours of a query, as when they were found.
            gallery_mask: bool, shape (N,); False for images of the index that are not neighbours of any query.
        """
        return cosines, positions

    def _fit(self, images: DetectorInputs) -> None:
        self.index, self.labels = images.embeddings, images.labels

    def _score(self, images: DetectorInputs) -> Scores:
        return self.score_neighbour_levels(*self._neighbours(images.embeddings), images.embeddings)

    def _restore(self, state: Mapping[str, torch.Tensor]) -> None:
        super()._restore(state)
        if "labels" in self.requires or "labels" in state:
            self.n_levels = state["labels"].shape[1]

    def _neighbours(self, queries: torch.Tensor) -> tuple[Cosines, Positions]:
        """Return the neighbours of queries in the whole index."""
        nearest = nearest_neighbours(queries, self.index, self.n_neighbours, config=scoring_config(queries))
        return self.complete_neighbours(*nearest, queries)

    def _neighbour_labels(self, positions: Positions) -> npt.NDArray[np.int64]:
        """Return the labels of neighbours, int64, shape (n, k, L); -1 for missing and unlabelled ones."""
        if self.labels is None:
            raise ConfigurationError(f"the score {self.name} was fitted without `labels`, so it answers none")
        return np.where(positions[..., None] >= 0, self.labels[positions], -1)


def scoring_config(queries: torch.Tensor) -> ScoringConfig:
    """Return how cosines of queries are computed: in float64 where they are float64, and otherwise in float32."""
    return ScoringConfig(precision="float64" if queries.dtype == torch.float64 else "float32")


def _checked(values: Vectors, name: str) -> torch.Tensor:
    tensor = as_tensor(values)
    if tensor.ndim != 2 or not tensor.is_floating_point() or not tensor.shape[1]:
        raise InputError(
            f"`{name}` have the shape {tuple(tensor.shape)} and the type {tensor.dtype}; expected floating point "
            "numbers of the shape (n, d)"
        )
    for start in range(0, len(tensor), _CHECKED):
        finite = tensor[start : start + _CHECKED].isfinite().all(dim=1)
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

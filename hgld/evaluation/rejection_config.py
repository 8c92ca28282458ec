"""Which score rejects the queries of an evaluation, and how it is fitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.rejection.detector import Detector, NeighbourDetector
from hgld.rejection.registry import build_detector
from hgld.tables.embeddings import Embeddings

#: Shares of the queries that are accepted, at which metrics are reported.
COVERAGES = (1.0, 0.9, 0.75, 0.5, 0.25)


@dataclass(frozen=True, eq=False)
class RejectionConfig:
    """Choice of a rejection score for the queries of an evaluation.

    Args:
        score: Name of the score, one of :data:`hgld.rejection.DETECTORS`, which is fitted on each gallery.
        options: Its options; texts are converted.
        detector: A fitted score instead.
        precision: Share of right answers among the accepted ones for which a threshold is reported.
        coverages: Shares of the queries that are accepted, at which metrics are reported.
        unknown: Embeddings of images that show no landmark of the gallery, by name, such as near and far ones.

    Raises:
        ConfigurationError: There is no such score or option, there are options beside a fitted score, or the
            precision or a coverage is not above 0 and at most 1.
    """

    score: str = "top1_cosine"
    options: Mapping[str, Any] = field(default_factory=dict)
    detector: Detector | None = None
    precision: float = 0.9
    coverages: tuple[float, ...] = COVERAGES
    unknown: Mapping[str, Embeddings] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.detector is None:
            build_detector(self.score, self.options)
        elif self.options:
            raise ConfigurationError(
                f"`options` are those of a score to fit, and this {self.detector.name} is fitted; leave them out"
            )
        for share, name in ((self.precision, "precision"), *((coverage, "coverage") for coverage in self.coverages)):
            if not 0 < share <= 1:
                raise ConfigurationError(f"the wanted {name} is {share}; expected more than 0 and at most 1")

    @property
    def name(self) -> str:
        """Name of the score."""
        return self.score if self.detector is None else self.detector.name

    def all_options(self) -> dict[str, Any]:
        """Return the options of the score, defaults included."""
        detector = build_detector(self.score, self.options) if self.detector is None else self.detector
        return detector.options()

    def fitted(
        self,
        gallery: torch.Tensor,
        labels: LabelMatrix | None,
        gallery_mask: npt.NDArray[np.bool_] | None = None,
    ) -> Detector:
        """Return the score, fitted on a gallery; one that is fitted already is checked against it.

        Args:
            gallery: Embeddings, float, shape (n_gallery, d).
            labels: Labels, int64, shape (n_gallery, L), finest first, -1 for unlabelled images; None if there are
                none, or several per image.
            gallery_mask: bool, shape (n_gallery,); False for images to leave out.

        Raises:
            ConfigurationError: The score needs labels or other inputs that there are not.
            InputError: A fitted score does not fit the embeddings, or the score cannot be fitted on them.
        """
        if self.detector is not None:
            self._check_fitted(self.detector, gallery, labels)
            return self.detector
        detector = build_detector(self.score, self.options)
        if further := sorted(detector.requires - {"labels"}):
            raise ConfigurationError(
                f"the score {detector.name} needs {' and '.join(further)}, which an evaluation of embeddings lacks; "
                "choose another `reject` here, or use hgld reject fit and hgld reject score"
            )
        if "labels" in detector.requires and labels is None:
            raise ConfigurationError(
                f"the score {detector.name} needs one label per image and level, which this gallery lacks; choose "
                "another `reject`, such as top1_cosine"
            )
        # Scores of neighbours keep the whole gallery, as neighbours are positions in it.
        if gallery_mask is not None and not gallery_mask.all() and not isinstance(detector, NeighbourDetector):
            rows = np.flatnonzero(gallery_mask)
            gallery, labels = gallery[torch.from_numpy(rows)], None if labels is None else labels[rows]
        return detector.fit(gallery, labels)

    def _check_fitted(self, detector: Detector, gallery: torch.Tensor, labels: LabelMatrix | None) -> None:
        if detector.dim != gallery.shape[1]:
            raise InputError(
                f"the embeddings have {gallery.shape[1]} dimensions, and the score {detector.name} was fitted on "
                f"{detector.dim}; embed both with the same model, or fit the score on this gallery"
            )
        own = detector.labels if isinstance(detector, NeighbourDetector) else None
        if own is not None and labels is not None and not np.array_equal(own, labels):
            raise InputError(
                f"the score {detector.name} was fitted with other labels of its {len(own):,} images than those of "
                "this gallery; fit it with the same labels and hierarchy"
            )

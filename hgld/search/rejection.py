"""Rejection in a search: at which levels an answer is sure, by a fitted detector and its thresholds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hgld.errors import ConfigurationError
from hgld.io.files import sha256_of
from hgld.rejection import Detector, load_detector
from hgld.rejection.detector_record import Calibration, DetectorRecord
from hgld.search.detector_fit import check_same_model
from hgld.search.gallery import Gallery


@dataclass(frozen=True, eq=False)
class Rejections:
    """The finest level at which the answer to each of n queries is accepted.

    Args:
        scores: Rejection scores at each level, float, shape (n, L), finest first.
        thresholds: Threshold of each level, up to which scores are accepted; None where none is.
        finest: int64, shape (n,), column of the finest accepted level; L where no level is.
    """

    scores: npt.NDArray[Any]
    thresholds: tuple[float | None, ...]
    finest: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rejector:
    """A fitted score with thresholds for the levels of a gallery.

    Args:
        detector: The score, fitted on the images of the gallery.
        calibration: Its thresholds.
    """

    detector: Detector
    calibration: Calibration

    def check_votes(self, k: int) -> None:
        """Check that thresholds were fitted for answers by the vote of k images.

        Raises:
            ConfigurationError: They were fitted for another number.
        """
        if k != self.calibration.n_votes:
            raise ConfigurationError(
                f"`k` is {k}, but the thresholds of the detector are for answers by the vote of "
                f"{self.calibration.n_votes} images; choose that number, or search without the detector"
            )

    def judge(self, queries: torch.Tensor) -> Rejections:
        """Return at which levels the answers to queries are accepted.

        Args:
            queries: Embeddings, float, shape (n, d).
        """
        scores = self.detector.score_levels(queries)
        thresholds = tuple(threshold.value for threshold in self.calibration.thresholds)
        return Rejections(scores, thresholds, self.calibration.finest_accepted(scores))


def open_rejector(folder: Path, embeddings: Path, gallery: Gallery) -> Rejector:
    """Load a detector for a search.

    Args:
        folder: Folder of the detector, from ``hgld reject fit --queries``.
        embeddings: File of the embeddings of the gallery.
        gallery: The gallery.

    Raises:
        InputError: The folder holds no detector, or is damaged.
        ConfigurationError: The detector has no thresholds, was fitted on embeddings of another model, on another
            gallery or on other levels, or needs more than embeddings.
    """
    saved = load_detector(folder)
    calibration = saved.record.calibration
    if calibration is None:
        raise ConfigurationError(
            f"{folder}: has no thresholds; fit it again with calibration images: hgld reject fit --queries"
        )
    if saved.record.inputs:
        raise ConfigurationError(
            f"{folder}: the score {saved.detector.name} needs {' and '.join(saved.record.inputs)} of a query, which "
            "a search does not have; fit another score"
        )
    _check_gallery(folder, saved.detector, saved.record, embeddings, gallery)
    return Rejector(saved.detector, calibration)


def _check_gallery(
    folder: Path, detector: Detector, record: DetectorRecord, embeddings: Path, gallery: Gallery
) -> None:
    check_same_model(record.model, embeddings, str(folder))
    if detector.dim != gallery.dim:
        raise ConfigurationError(
            f"{folder}: fitted on embeddings of {detector.dim:,} dimensions, and {embeddings} has {gallery.dim:,}; "
            "name the detector of this gallery"
        )
    if record.n_images != len(gallery) or record.index_sha256 != sha256_of(embeddings):
        raise ConfigurationError(
            f"{folder}: fitted on another index of {record.n_images:,} images than {embeddings}; fit it on this "
            "gallery"
        )
    if record.level_names != gallery.level_names:
        raise ConfigurationError(
            f"{folder}: has thresholds for the levels {', '.join(record.level_names)}, and the gallery has "
            f"{', '.join(gallery.level_names) or 'no labels'}; give the `labels` and the `hierarchy` that it was "
            "fitted with"
        )

"""What a fitted rejection score comes from, as its folder and its card state it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from hgld.io.settings import Settings
from hgld.rejection.thresholds import Threshold


class DetectorModel(Settings):
    """The model that made the embeddings which a score was fitted on.

    Args:
        name: Name of the model, or of its file.
        weights_sha256: SHA-256 of its weights; see :func:`hgld.models.embedding_files.weights_digest`.
        settings: Other settings on which embeddings depend, such as the size of the images.
    """

    name: str
    weights_sha256: str
    settings: dict[str, Any] = Field(default_factory=dict)


class Figure(Settings):
    """A metric with its confidence interval of 95 %.

    Args:
        value: The metric, 0 to 1.
        interval: Ends of the interval.
    """

    value: float
    interval: tuple[float, float]


class Calibration(Settings):
    """Thresholds of a score, and how well it detects the images that they were fitted on.

    Args:
        n_images: Number of calibration images by kind: ``known``, whose landmark the index has, and others.
        thresholds: Threshold of each of the L levels, finest first.
        gap: Global average precision of the answers, ranked by the score.
        detection: Metrics of :func:`hgld.rejection.detection_metrics.detection_metrics` for each kind of images that
            are not known.
        n_votes: Number of nearest images that voted on the answers.
    """

    n_images: dict[str, int]
    thresholds: tuple[Threshold, ...]
    gap: Figure
    detection: dict[str, dict[str, Figure]]
    n_votes: int

    def finest_accepted(self, scores: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the column of the finest level at which each answer is accepted; L where none is.

        An answer that is accepted at a level is accepted at all coarser ones.

        Args:
            scores: Scores at each level, float, shape (n, L), finest first.

        Returns:
            int64, shape (n,).
        """
        accepted = [threshold.accepts(scores[:, column]) for column, threshold in enumerate(self.thresholds)]
        table = np.stack([*accepted, np.ones(len(scores), np.bool_)], axis=1)
        columns: npt.NDArray[np.int64] = table.argmax(axis=1)
        return columns


class DetectorRecord(Settings):
    """What a fitted score comes from, and what it can be used for.

    Args:
        n_images: Number of images of the index.
        index_sha256: SHA-256 of the file of its embeddings; None if they were in memory.
        model: The model that made the embeddings; None if it is not known.
        level_names: Names of the L levels of the labels, finest first; empty without labels.
        inputs: Names of the inputs beside embeddings and labels that it was fitted on, ``logits`` and ``deviations``;
            images are scored by them, too.
        calibration: Thresholds, and figures of detection; None if no threshold was fitted.
        provenance: Command, parameters and SHA-256 of the inputs.
    """

    n_images: int
    index_sha256: str | None = None
    model: DetectorModel | None = None
    level_names: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    calibration: Calibration | None = None
    provenance: dict[str, Any] = Field(default_factory=dict)

"""Files that a rejection score is fitted on, calibrated on, and applied to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hgld.errors import ConfigurationError

#: Calibration images of landmarks that the index has; other kinds of images cannot be called so.
KNOWN = "known"
#: The images that are scored, where further ones are named.
IMAGES = "images"


@dataclass(frozen=True)
class IndexFiles:
    """Files of the index that a score is fitted on.

    Args:
        embeddings: Embeddings of the index.
        labels: Labels of the images, as for hgld evaluate. Default: those of the manifest that was embedded, or
            landmark_id of the embeddings.
        hierarchy: Levels above landmarks: the output of hgld build, or H-GLDv2's CSV files.
        split: Split of the landmark ids, if the hierarchy has several; or of a manifest of labels, of which other
            images are not used.
        logits: Outputs of a classifier for the images, in a file like that of the embeddings. Default: x.logits.npy
            beside x.npy, for scores that need them.
        deviations: Standard deviations of feature maps, from hgld embed-images --with-std. Default: x.deviations.npy
            beside x.npy, for scores that need them.
    """

    embeddings: Path
    labels: Path | None = None
    hierarchy: Path | None = None
    split: str | None = None
    logits: Path | None = None
    deviations: Path | None = None


@dataclass(frozen=True)
class CalibrationFiles:
    """Files of the images that thresholds are fitted on.

    Args:
        queries: Embeddings of queries, of landmarks that the index has and of others.
        query_labels: Labels of the queries. Default: as for the images of the index.
        unknown: Embeddings of further images that show no landmark of the index, by name.
        precision: Wanted share of right answers among those that a threshold accepts.
        conservative: Choose thresholds that reach the precision on new images with a confidence of 95 %; see
            :mod:`hgld.rejection.risk_coverage`.

    Raises:
        ConfigurationError: Further images are called known, or the precision is not a share.
    """

    queries: Path
    query_labels: Path | None = None
    unknown: Mapping[str, Path] = field(default_factory=dict)
    precision: float = 0.9
    conservative: bool = False

    def __post_init__(self) -> None:
        _refuse_name(self.unknown, KNOWN)
        if not 0 < self.precision <= 1:
            raise ConfigurationError(f"`precision` is {self.precision:g}; expected more than 0 and at most 1")


@dataclass(frozen=True)
class ScoredFiles:
    """Files of images to score.

    Args:
        embeddings: Embeddings of the images to score.
        logits: Outputs of a classifier for the images, in a file like that of the embeddings. Default: x.logits.npy
            beside x.npy, for scores that need them.
        deviations: Standard deviations of feature maps, from hgld embed-images --with-std. Default: x.deviations.npy
            beside x.npy, for scores that need them.
        unknown: Embeddings of images that show no landmark of the index, by name; the others then count as known.

    Raises:
        ConfigurationError: Unknown images are called ``images``.
    """

    embeddings: Path
    logits: Path | None = None
    deviations: Path | None = None
    unknown: Mapping[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _refuse_name(self.unknown, IMAGES)


def _refuse_name(unknown: Mapping[str, Path], name: str) -> None:
    if name in unknown:
        raise ConfigurationError(f"`unknown` names images {name}; choose another name, such as far")

"""``hgld reject fit``: fit a rejection score on the files of an index, and write its folder."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hgld.datasets.image_labels import ImageLabels
from hgld.errors import ConfigurationError
from hgld.hierarchy import Hierarchy, load_hierarchy
from hgld.rejection import Detector, DetectorRecord, build_detector, save_detector
from hgld.rejection.detector_files import STATE, check_replaceable_folder
from hgld.search.calibration import CalibrationFiles, calibrate
from hgld.search.gallery import gallery_labels
from hgld.search.score_inputs import (
    FILE_INPUTS,
    ScoreInputs,
    check_same_model,
    file_errors,
    read_score_inputs,
    recorded_model,
)
from hgld.tables import Provenance, input_digests


@dataclass(frozen=True)
class IndexFiles:
    """Files of the index that a score is fitted on.

    Args:
        embeddings: Embeddings of its images.
        labels: Their labels, as for :func:`hgld.search.gallery.read_gallery`.
        hierarchy: Levels above landmarks.
        split: Split of the landmark ids, where the hierarchy has several.
        logits: Outputs of a classifier; by default those beside the embeddings, for scores that need them.
        deviations: Standard deviations of the feature maps, likewise.
    """

    embeddings: Path
    labels: Path | None = None
    hierarchy: Path | None = None
    split: str | None = None
    logits: Path | None = None
    deviations: Path | None = None


@dataclass(frozen=True)
class FitSummary:
    """Result of fitting a score.

    Args:
        score: Name of the score.
        options: Its options.
        record: What it was fitted on.
        dim: Dimension of the embeddings.
        n_bytes: Size of what was fitted.
        seconds: Duration of the fit.
    """

    score: str
    options: Mapping[str, Any]
    record: DetectorRecord
    dim: int
    n_bytes: int
    seconds: float


def fit_detector(
    score: str,
    options: Mapping[str, Any],
    index: IndexFiles,
    out: Path,
    *,
    calibration: CalibrationFiles | None = None,
) -> FitSummary:
    """Fit a score on the files of an index, and its thresholds if there are calibration images; write its folder.

    Args:
        score: Name of the score; see :data:`hgld.rejection.DETECTORS`.
        options: Its options; texts are converted.
        index: Files of the index.
        out: Folder to write; see :func:`hgld.rejection.save_detector`.
        calibration: Files of the images that thresholds are fitted on. Default: there are no thresholds.

    Raises:
        ConfigurationError: There is no such score or option, or an input is missing that the score needs or given
            that it does not use, or the folder holds something else; or see
            :func:`hgld.search.calibration.calibrate`.
        InputError: A file is malformed or does not fit the others, or the score cannot be fitted on it.
        BusyError: Another run is writing the folder.
    """
    start = time.monotonic()
    detector = build_detector(score, options)
    check_replaceable_folder(out)
    hierarchy = None if index.hierarchy is None else load_hierarchy(index.hierarchy)
    images = read_score_inputs(index.embeddings, _file_inputs(detector, index), _further_files(index))
    labels = _labels(images, index, hierarchy, required="labels" in detector.requires or calibration is not None)
    with file_errors(index.embeddings):
        detector.fit(images.embeddings.vectors, None if labels is None else labels.labels, **images.further)
    record = _record(detector, index, images, labels, calibration)
    if calibration is not None and labels is not None:
        for path in (calibration.queries, *calibration.unknown.values()):
            check_same_model(record.model, path, "the index")
        thresholds = calibrate(
            detector, images, labels, calibration, query_labels=index.labels, hierarchy=hierarchy, split=index.split
        )
        record = record.model_copy(update={"calibration": thresholds})
    save_detector(out, detector, record)
    return FitSummary(
        score=detector.name,
        options=detector.options(),
        record=record,
        dim=detector.dim,
        n_bytes=(out / STATE).stat().st_size,
        seconds=time.monotonic() - start,
    )


def _file_inputs(detector: Detector, index: IndexFiles) -> tuple[str, ...]:
    """Return the names of the inputs with files of their own that a score needs, or that are given and it uses."""
    given = {name for name, path in _further_files(index).items() if path is not None}
    for name in FILE_INPUTS:
        if name in given and name not in detector.requires | detector.uses:
            raise ConfigurationError(f"the score {detector.name} does not use {name}; leave out `{name}`")
    return tuple(name for name in FILE_INPUTS if name in detector.requires or name in given)


def _further_files(index: IndexFiles) -> dict[str, Path | None]:
    return {name: getattr(index, name) for name in FILE_INPUTS}


def _labels(
    images: ScoreInputs, index: IndexFiles, hierarchy: Hierarchy | None, *, required: bool
) -> ImageLabels | None:
    labels = gallery_labels(images.embeddings, index.labels, hierarchy, index.split)
    if labels is None and required:
        raise ConfigurationError(f"{index.embeddings} does not say which landmark an image shows; give `labels`")
    return labels


def _record(
    detector: Detector,
    index: IndexFiles,
    images: ScoreInputs,
    labels: ImageLabels | None,
    calibration: CalibrationFiles | None,
) -> DetectorRecord:
    files = {name: path for name, path in asdict(index).items() if isinstance(path, Path)} | dict(images.files)
    parameters: dict[str, Any] = {"score": detector.name, "options": detector.options(), "split": index.split}
    if calibration is not None:
        unknown = {f"unknown/{name}": path for name, path in calibration.unknown.items()}
        files |= {"queries": calibration.queries, **unknown}
        files |= {"query_labels": calibration.query_labels} if calibration.query_labels else {}
        parameters |= {"precision": calibration.precision, "conservative": calibration.conservative}
    digests = input_digests(**files)
    return DetectorRecord(
        n_images=len(images.embeddings),
        index_sha256=digests["embeddings"],
        model=recorded_model(index.embeddings),
        level_names=() if labels is None else labels.level_names,
        inputs=tuple(images.further),
        provenance=asdict(Provenance("reject fit", parameters, digests)),
    )

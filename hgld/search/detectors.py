"""Fit rejection scores on the files of an index, and score other images by them (``hgld reject``)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hgld.datasets.image_labels import ImageLabels
from hgld.errors import ConfigurationError
from hgld.hierarchy import load_hierarchy
from hgld.rejection import (
    Detector,
    DetectorRecord,
    SavedDetector,
    build_detector,
    load_detector,
    save_detector,
)
from hgld.rejection.detector_files import STATE, Figure, check_replaceable_folder
from hgld.search.calibration import CalibrationFiles, calibrate, detection_figures, require_other_names
from hgld.search.gallery import gallery_labels
from hgld.search.score_inputs import (
    FILE_INPUTS,
    ScoreInputs,
    check_same_model,
    file_errors,
    read_score_inputs,
    recorded_model,
)
from hgld.tables import Provenance, input_digests, write_results
from hgld.tables.embeddings import embeddings_sha256
from hgld.version import __version__

#: Kind of the images to score, beside the names of unknown images.
IMAGES = "images"


@dataclass(frozen=True)
class IndexFiles:
    """Files of the index that a score is fitted on.

    Args:
        embeddings: Embeddings of the index.
        labels: Labels of the images, as for hgld evaluate. Default: those of the manifest that was embedded, or
            landmark_id of the embeddings.
        hierarchy: Levels above landmarks: the output of hgld build, or H-GLDv2's CSV files.
        split: Split of the landmark ids, if the hierarchy has several; or of a manifest of ``labels``, of which other
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
class FitSummary:
    """Result of fitting a score.

    Args:
        detector: Fitted score.
        record: Record in the folder of the detector.
        n_bytes: Size of the file of the fitted state.
        seconds: Duration of fitting, calibrating and writing.
    """

    detector: Detector
    record: DetectorRecord
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
        score: Name of a score in :data:`hgld.rejection.DETECTORS`.
        options: Options of the score by name; texts are converted.
        index: Files of the index.
        out: Folder to write or replace.
        calibration: Files of the calibration images. Default: none, and no thresholds.

    Raises:
        ConfigurationError: There is no such score or option, an input is missing that the score needs or given that
            it does not use, the folder holds something else, or see :func:`calibrate`.
        InputError: A file is malformed or does not fit the others, or the score cannot be fitted on it.
        BusyError: Another run is writing the folder.
    """
    start = time.monotonic()
    detector = build_detector(score, options)
    check_replaceable_folder(out)
    hierarchy = None if index.hierarchy is None else load_hierarchy(index.hierarchy)
    images = read_score_inputs(index.embeddings, *_file_inputs(detector, index))
    labels = gallery_labels(images.embeddings, index.labels, hierarchy, index.split)
    if labels is None and ("labels" in detector.requires or calibration is not None):
        raise ConfigurationError(f"{index.embeddings} does not say which landmark an image shows; give `labels`")
    with file_errors(index.embeddings):
        detector.fit(images.embeddings.vectors, None if labels is None else labels.labels, **images.tensors)
    record = _record(detector, index, images, labels, calibration)
    if calibration is not None and labels is not None:
        for path in (calibration.queries, *calibration.unknown.values()):
            check_same_model(record.model, path, "the index")
        result = calibrate(
            detector, images, labels, calibration, query_labels=index.labels, hierarchy=hierarchy, split=index.split
        )
        record = record.model_copy(update={"calibration": result})
    save_detector(out, detector, record)
    return FitSummary(detector, record, (out / STATE).stat().st_size, time.monotonic() - start)


def _file_inputs(detector: Detector, index: IndexFiles) -> tuple[list[str], dict[str, Path | None]]:
    """Return the names of the inputs of :data:`FILE_INPUTS` that a score needs or is given, and the files given."""
    files = {name: getattr(index, name) for name in FILE_INPUTS}
    for name, path in files.items():
        if path is not None and name not in detector.requires | detector.uses:
            raise ConfigurationError(f"the score {detector.name} does not use {name}; leave out `{name}`")
    return [name for name, path in files.items() if name in detector.requires or path is not None], files


def _record(
    detector: Detector,
    index: IndexFiles,
    images: ScoreInputs,
    labels: ImageLabels | None,
    calibration: CalibrationFiles | None,
) -> DetectorRecord:
    files: dict[str, Any] = vars(index) | dict(images.files)
    parameters = {"score": detector.name, "options": detector.options(), "split": files.pop("split")}
    if calibration is not None:
        unknown = {f"unknown/{name}": path for name, path in calibration.unknown.items()}
        files |= {"queries": calibration.queries, **unknown, "query_labels": calibration.query_labels}
        parameters |= {"precision": calibration.precision, "conservative": calibration.conservative}
    digests = input_digests(**files)
    return DetectorRecord(
        n_images=len(images.embeddings),
        index_sha256=digests.get("embeddings") or embeddings_sha256(index.embeddings),
        model=recorded_model(index.embeddings),
        level_names=() if labels is None else labels.level_names,
        inputs=tuple(images.tensors),
        provenance=asdict(Provenance("reject fit", parameters, digests)),
    )


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
        require_other_names(self.unknown, IMAGES)


#: Shares of the images below the quantiles that describe scores.
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True, eq=False)
class ScoredImages:
    """Scores of images, by kind: :data:`IMAGES`, or the name of unknown images.

    Args:
        saved: The detector that computed the scores.
        ids: Ids of the n images of each kind.
        scores: Scores of the images of each kind, float, shape (n, L), finest level first.
    """

    saved: SavedDetector
    ids: Mapping[str, list[str]]
    scores: Mapping[str, npt.NDArray[Any]]

    def accepted(self, kind: str) -> dict[str, float] | None:
        """Return the share of the images of a kind accepted at each level, finest first; None without thresholds."""
        calibration, scores = self.saved.record.calibration, self.scores[kind]
        if calibration is None:
            return None
        columns = calibration.finest_accepted(scores)
        names = self.saved.record.level_names
        return {name: float((columns <= column).mean()) for column, name in enumerate(names)}

    def quantiles(self, kind: str) -> list[float]:
        """Return the quantiles of the scores of a kind, at the shares of :data:`QUANTILES`."""
        return list(map(float, np.quantile(self.scores[kind][:, 0].astype(np.float64), QUANTILES)))

    def detection(self) -> dict[str, dict[str, Figure]]:
        """Return the detection metrics of the images against each kind of unknown ones."""
        known = self.scores[IMAGES][:, 0]
        return {
            name: detection_figures(known, scores[:, 0]) for name, scores in self.scores.items() if name != IMAGES
        }


def score_images(detector: Path, files: ScoredFiles) -> ScoredImages:
    """Score the images of files by a detector.

    Raises:
        InputError: The detector or a file is malformed, or they do not fit each other.
        ConfigurationError: The embeddings were made by another model than those of the index, or a file is given that
            the detector does not use.
    """
    saved = load_detector(detector)
    given = {name: getattr(files, name) for name in FILE_INPUTS}
    for name, path in given.items():
        if path is not None and name not in saved.record.inputs:
            raise ConfigurationError(f"{detector}: was fitted without {name}; leave out `{name}`")
    ids, scores = {}, {}
    for kind, path in {IMAGES: files.embeddings, **files.unknown}.items():
        check_same_model(saved.record.model, path, str(detector))
        images = read_score_inputs(path, saved.record.inputs, given if kind == IMAGES else {})
        ids[kind], scores[kind] = images.ids(), images.score(saved.detector)
    return ScoredImages(saved, ids, scores)


def write_scores(path: Path, scored: ScoredImages, provenance: Provenance) -> None:
    """Write a table with a row for each image, ``.csv`` or ``.parquet``.

    Columns: ``images``, the kind; ``id``; ``score`` at the finest level; and where there are thresholds
    ``accepted_level``, the finest level at which an answer is accepted, null if there is none.

    Raises:
        ConfigurationError: The suffix is another one.
    """
    record = scored.saved.record
    columns: dict[str, list[Any]] = {"images": [], "id": [], "score": [], "accepted_level": []}
    for kind, scores in scored.scores.items():
        columns["images"] += [kind] * len(scores)
        columns["id"] += scored.ids[kind]
        columns["score"] += scores[:, 0].tolist()
        if record.calibration is not None:
            names = [*record.level_names, None]
            columns["accepted_level"] += [names[column] for column in record.calibration.finest_accepted(scores)]
    fields = [("images", pa.string()), ("id", pa.string()), ("score", pa.float64())]
    if record.calibration is not None:
        fields.append(("accepted_level", pa.string()))
    table = pa.table({name: columns[name] for name, _ in fields}, pa.schema(fields))
    write_results(path, table, "scores/1", provenance)


def scores_to_json(scored: ScoredImages) -> str:
    """Format a summary of scores as JSON.

    ``{"hgld": version, "score": name, "options": {...}, "images": {...}, "detection": {...}}``, with for each kind of
    images ``n``, ``quantiles`` by share, and ``accepted``, the share of images by level or null; and for each kind of
    unknown images the detection metrics, each with ``value`` and ``interval``.
    """
    images = {
        kind: {
            "n": len(scores),
            "quantiles": dict(zip(map(str, QUANTILES), scored.quantiles(kind), strict=True)),
            "accepted": scored.accepted(kind),
        }
        for kind, scores in scored.scores.items()
    }
    detection = {
        kind: {name: figure.model_dump(mode="json") for name, figure in figures.items()}
        for kind, figures in scored.detection().items()
    }
    detector = scored.saved.detector
    content = {"hgld": __version__, "score": detector.name, "options": detector.options()}
    return json.dumps({**content, "images": images, "detection": detection}, indent=2, ensure_ascii=False)

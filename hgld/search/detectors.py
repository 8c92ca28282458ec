"""Fit rejection scores on the files of an index, calibrate thresholds, and score other images (``hgld reject``).

Calibration queries are *known* where the index has their landmark, *near* where it lacks it, and *unlabelled* where
they show none; files of unknown images, which show no landmark of the index, have names that the user gives. An
answer is the label that the nearest images vote for, as in ``hgld search``. At a coarser level than the landmark, the
answer to a near query may be right; those to unlabelled and unknown images never are.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.datasets.image_labels import ImageLabels
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy import Hierarchy, LabelMatrix, load_hierarchy
from hgld.hierarchy.neighbour_vote import vote
from hgld.models.embedding_files import EmbeddingRecord, read_embedding_record
from hgld.rejection import (
    Detector,
    DetectorModel,
    DetectorRecord,
    SavedDetector,
    build_detector,
    load_detector,
    save_detector,
)
from hgld.rejection.detection_metrics import detection_intervals, detection_metrics
from hgld.rejection.detector_files import STATE, Calibration, Figure, check_replaceable_folder
from hgld.rejection.open_set import rank_answers
from hgld.rejection.risk_coverage import threshold_for_precision
from hgld.search.gallery import gallery_labels
from hgld.tables import Provenance, input_digests, write_results
from hgld.tables.embeddings import Embeddings, embeddings_sha256, read_deviations, read_embeddings
from hgld.version import __version__

#: Kinds of calibration queries: the index has their landmark, it lacks it, or they show none.
KNOWN, NEAR, UNLABELLED = "known", "near", "unlabelled"
#: Kind of the images to score, beside the names of unknown images.
IMAGES = "images"
#: Number of nearest images that vote on an answer, as in ``hgld search``.
N_VOTES = 10
#: Inputs of scores that are in files of their own, beside the embeddings.
FILE_INPUTS = ("logits", "deviations")


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
class CalibrationFiles:
    """Files of the images that thresholds are fitted on.

    Args:
        queries: Embeddings of queries, of landmarks that the index has and of others.
        query_labels: Labels of the queries. Default: as for the images of the index.
        unknown: Embeddings of images that show no landmark of the index, by name.
        precision: Wanted share of right answers among those that a threshold accepts.
        conservative: Choose thresholds that reach the precision on new images with a confidence of 95 %; see
            :mod:`hgld.rejection.risk_coverage`.

    Raises:
        ConfigurationError: Unknown images are called ``known``, or the precision is not a share.
    """

    queries: Path
    query_labels: Path | None = None
    unknown: Mapping[str, Path] = field(default_factory=dict)
    precision: float = 0.9
    conservative: bool = False

    def __post_init__(self) -> None:
        _require_other_names(self.unknown, KNOWN)
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
        _require_other_names(self.unknown, IMAGES)


def _require_other_names(unknown: Mapping[str, Path], name: str) -> None:
    """Raise a :class:`ConfigurationError` if unknown images have a name that results use for other images."""
    if name in unknown:
        raise ConfigurationError(f"`unknown` names images {name}; choose another name, such as far")


@dataclass(frozen=True, eq=False)
class ScoreInputs:
    """Inputs of a score for n images.

    Args:
        embeddings: Embeddings of the images.
        tensors: Other inputs by name, such as ``logits``; each has a row for each image.
        files: Files of these inputs, where they are not parts of a folder of embeddings.
    """

    embeddings: Embeddings
    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)

    def ids(self) -> list[str]:
        """Return the ids of the images; their rows if the file has none."""
        ids = self.embeddings.ids
        return list(map(str, range(len(self.embeddings)))) if ids is None else ids.tolist()

    def score(self, detector: Detector) -> Any:
        """Return the scores of the images at each level, shape (n, L); (n, 1) for a score without levels.

        Raises:
            InputError: The images do not fit the score; see :meth:`hgld.rejection.Detector.score`.
        """
        with file_errors(self.embeddings.path):
            return detector.score_levels(self.embeddings.vectors, **self.tensors)


def read_score_inputs(path: Path, inputs: Collection[str], files: Mapping[str, Path | None]) -> ScoreInputs:
    """Read embeddings, and the other inputs of a score.

    Args:
        path: File of the embeddings.
        inputs: Names of the other inputs, of :data:`FILE_INPUTS`.
        files: Files of these inputs by name. Default: those beside ``path``; see :func:`beside`.

    Raises:
        InputError: A file is missing or malformed, or is that of other images.
    """
    embeddings = read_embeddings(path)
    paths = {name: files.get(name) or beside(path, name) for name in FILE_INPUTS if name in inputs}
    tensors = {}
    if path.is_dir() and files.get("deviations") is None and "deviations" in paths:  # each part has its own
        del paths["deviations"]
        tensors["deviations"] = read_deviations(path, embeddings.ids)
    tensors |= {name: _read_file_input(file, name, embeddings) for name, file in paths.items()}
    return ScoreInputs(embeddings, tensors, paths)


def beside(embeddings: Path, name: str) -> Path:
    """Return the path of the logits or deviations beside a file of embeddings.

    >>> beside(Path("data/q.npy"), "logits").as_posix()
    'data/q.logits.npy'
    """
    return embeddings.with_suffix(f".{name}{embeddings.suffix}")


def recorded_model(embeddings: Path) -> DetectorModel | None:
    """Return the model and the settings that made embeddings; None if they are not recorded.

    Embeddings from which different means were subtracted (``hgld embed-images --center``) do not compare, so a digest
    of the mean is one of the settings.
    """
    record = read_embedding_record(embeddings)
    if record is None or "weights" not in record.provenance.inputs:
        return None
    parameters = record.provenance.parameters
    settings = {name: parameters[name] for name in ("image", "scales", "half") if name in parameters}
    mean = None if record.mean is None else hashlib.sha256(np.array(record.mean).tobytes()).hexdigest()[:12]
    return DetectorModel(
        name=_model_name(record),
        weights_sha256=record.provenance.inputs["weights"],
        settings=settings | {"center": mean or "off"},
    )


def check_same_model(fitted_on: DetectorModel | None, embeddings: Path, description: str) -> None:
    """Check that embeddings were made as those that a score was fitted on, as far as both are recorded.

    Raises:
        ConfigurationError: They were made by another model, or with other settings.
    """
    model = recorded_model(embeddings)
    if fitted_on is None or model is None:
        return
    if model.weights_sha256 != fitted_on.weights_sha256:
        raise ConfigurationError(
            f"{embeddings}: made by the model {model.name}, and {description} was fitted on embeddings of another, "
            f"{fitted_on.name}; embed the images with that one, or fit the score again"
        )
    for name, value in model.settings.items():
        if value != fitted_on.settings.get(name, value):
            raise ConfigurationError(
                f"{embeddings}: made with the setting {name} {value}, and {description} was fitted on embeddings "
                f"made with {fitted_on.settings[name]}; embed the images alike, or fit the score again"
            )


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Prefix the messages of errors with the file of the embeddings that they are about."""
    try:
        yield
    except (InputError, ConfigurationError) as error:
        message = str(error).replace("`embeddings`", "the embeddings")
        raise type(error)(message if str(path) in message else f"{path}: {message}") from error


def _read_file_input(path: Path, name: str, embeddings: Embeddings) -> torch.Tensor:
    """Read an input of a score, such as ``logits``, and check that its rows are those of the embeddings."""
    if not path.is_file():
        raise InputError(
            f"{path}: no such file; expected the {name} of the images of {embeddings.path}, which the score needs"
        )
    values = read_embeddings(path)
    if len(values) != len(embeddings):
        raise InputError(
            f"{path}: {len(values):,} rows of {name}, and {embeddings.path} has {len(embeddings):,} embeddings; "
            "expected a row for each, in the same order"
        )
    if values.ids is not None and embeddings.ids is not None and (values.ids != embeddings.ids).any():
        row = int(np.argmax(values.ids != embeddings.ids))
        raise InputError(
            f"{path}: has {values.ids[row]} in row {row:,}, where {embeddings.path} has {embeddings.ids[row]}; "
            "expected the same images in the same order"
        )
    return values.vectors


def _model_name(record: EmbeddingRecord) -> str:
    """Return the name of a model without the folders of this machine."""
    source = record.sources.model
    if source is None:
        return str(dict(record.provenance.parameters.get("model") or {}).get("backbone", "unnamed"))
    path = Path(source.model)
    if not path.is_absolute():
        return source.model
    return f"{path.parent.name}/{path.name}" if path.suffix else path.name


@dataclass(frozen=True, eq=False)
class CalibrationImages:
    """Scores of calibration images, and answers to them.

    Args:
        groups: ``known``, ``near``, ``unlabelled``, or the name of unknown images, shape (n,).
        scores: Scores at each level, float32 or float64, shape (n, L).
        right: Whether the answer at each level is right, bool, shape (n, L).
    """

    groups: npt.NDArray[np.str_]
    scores: npt.NDArray[Any]
    right: npt.NDArray[np.bool_]


def calibrate(
    detector: Detector,
    index: ScoreInputs,
    labels: ImageLabels,
    files: CalibrationFiles,
    *,
    query_labels: Path | None = None,
    hierarchy: Hierarchy | None = None,
    split: str | None = None,
) -> Calibration:
    """Fit the thresholds of a score, one for each level, and measure it on the same images.

    Args:
        detector: Fitted score.
        index: Inputs of the score for the images of the index.
        labels: Labels of the images of the index.
        files: Files of the calibration images.
        query_labels: Labels of the queries where ``files`` has none. Default: those that their embeddings state.
        hierarchy: Levels above the landmarks of the queries.
        split: Split of the landmark ids of the queries.

    Raises:
        ConfigurationError: No query is known or none is unknown, it is not stated what the queries show, or a
            calibration image is an image of the index.
        InputError: A file is malformed or does not fit the index.
    """
    queries = read_score_inputs(files.queries, index.tensors, {})
    stated = gallery_labels(queries.embeddings, files.query_labels or query_labels, hierarchy, split)
    parts = [_answered_queries(detector, index, labels, queries, _matching_labels(stated, labels, files))]
    unknown: list[ScoreInputs] = []
    for name, path in files.unknown.items():
        unknown.append(read_score_inputs(path, index.tensors, {}))
        scores = unknown[-1].score(detector)
        parts.append(CalibrationImages(np.full(len(scores), name), scores, np.zeros(scores.shape, np.bool_)))
    columns = ("groups", "scores", "right")
    images = CalibrationImages(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns))
    _require_known_and_unknown(images, files)
    for inputs in (queries, *unknown):
        _require_not_of_index(inputs, index)
    return measure(images, files.precision, conservative=files.conservative)


def measure(images: CalibrationImages, precision: float, *, conservative: bool = False) -> Calibration:
    """Return thresholds and figures of calibration images; see :func:`calibrate`."""
    finest, groups = images.scores[:, 0].astype(np.float64), images.groups
    known = groups == KNOWN
    result = rank_answers("calibration", finest, images.right[:, 0] & known, known)
    unknown = {name: finest[groups == name] for name in dict.fromkeys(groups[~known].tolist())}
    levels = zip(images.scores.T, images.right.T, strict=True)
    return Calibration(
        n_images={KNOWN: int(known.sum())} | {name: len(scores) for name, scores in unknown.items()},
        thresholds=tuple(threshold_for_precision(*level, precision, conservative=conservative) for level in levels),
        gap=Figure(value=result.means["gap"], interval=result.intervals()["gap"]),
        detection={name: detection_figures(finest[known], scores) for name, scores in unknown.items()},
        n_votes=N_VOTES,
    )


def detection_figures(known: npt.NDArray[Any], unknown: npt.NDArray[Any]) -> dict[str, Figure]:
    """Return the metrics of :func:`hgld.rejection.detection_metrics.detection_metrics` with their intervals."""
    intervals = detection_intervals(known, unknown)
    return {
        name: Figure(value=value, interval=intervals[name])
        for name, value in detection_metrics(known, unknown).items()
    }


def _answered_queries(
    detector: Detector, index: ScoreInputs, labels: ImageLabels, queries: ScoreInputs, query_labels: LabelMatrix
) -> CalibrationImages:
    """Answer queries by the vote of their nearest images, and score them."""
    scores = queries.score(detector)
    with file_errors(queries.embeddings.path):
        cosines, positions = nearest_neighbours(queries.embeddings.vectors, index.embeddings.vectors, N_VOTES)
    index_labels = labels.labels
    answers, _ = vote(cosines, np.where(positions[..., None] >= 0, index_labels[positions], -1))
    landmarks = query_labels[:, 0]
    is_known = np.isin(landmarks, index_labels[:, 0])
    groups = np.where(landmarks < 0, UNLABELLED, np.where(is_known, KNOWN, NEAR))
    return CalibrationImages(groups, scores, (answers == query_labels) & (query_labels >= 0))


def _matching_labels(stated: ImageLabels | None, labels: ImageLabels, files: CalibrationFiles) -> LabelMatrix:
    """Return the labels of queries, and check that they have the levels of the index."""
    if stated is None:
        raise ConfigurationError(
            f"{files.queries} does not say which landmark an image shows; give the labels of the queries as "
            "`query_labels`"
        )
    if stated.level_names != labels.level_names:
        raise ConfigurationError(
            f"the queries have the levels {', '.join(stated.level_names)}, and the index "
            f"{', '.join(labels.level_names)}; give `query_labels` with the same levels"
        )
    return stated.labels


def _require_not_of_index(images: ScoreInputs, index: ScoreInputs) -> None:
    """Raise a :class:`ConfigurationError` if images are in the index, where they would find themselves.

    Images are the same if their ids and their embeddings are equal, as equal ids alone may be chance.
    """
    ids, rows, index_rows = np.intersect1d(images.ids(), index.ids(), return_indices=True)
    ours, theirs = images.embeddings.vectors, index.embeddings.vectors
    if not len(ids) or ours.shape[1] != theirs.shape[1]:
        return
    same = (ours[torch.from_numpy(rows)] == theirs[torch.from_numpy(index_rows)]).all(dim=1)
    if same.any():
        n_same, first = int(same.sum()), ids[int(same.int().argmax())]
        raise ConfigurationError(
            f"{images.embeddings.path}: {n_same:,} of {len(images.embeddings):,} images are in the index, too, such "
            f"as {first}; calibrate on other images, or leave these out of the index"
        )


def _require_known_and_unknown(images: CalibrationImages, files: CalibrationFiles) -> None:
    """Raise an error unless some images are known and some are not."""
    n, n_known = len(images.groups), int((images.groups == KNOWN).sum())
    if n_known == n:
        raise ConfigurationError(
            f"{files.queries}: all {n:,} images show landmarks of the index, and a threshold needs others, too; add "
            "images that show none as `unknown`, or queries of other landmarks"
        )
    if not n_known:
        raise InputError(
            f"{files.queries}: no image shows a landmark of the index; are these labels of another index or split?"
        )


@dataclass(frozen=True)
class FitSummary:
    """Result of fitting a score.

    Args:
        score: Name of the score.
        options: Options of the score, with their defaults.
        record: Record in the folder of the detector.
        dim: Dimension of the embeddings.
        n_bytes: Size of the file of the fitted state.
        seconds: Duration of fitting, calibrating and writing.
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
    return FitSummary(
        score=detector.name,
        options=detector.options(),
        record=record,
        dim=detector.dim,
        n_bytes=(out / STATE).stat().st_size,
        seconds=time.monotonic() - start,
    )


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
        index_sha256=digests.get("embeddings") or embeddings_sha256(index.embeddings),
        model=recorded_model(index.embeddings),
        level_names=() if labels is None else labels.level_names,
        inputs=tuple(images.tensors),
        provenance=asdict(Provenance("reject fit", parameters, digests)),
    )


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
        values: list[float] = np.quantile(self.scores[kind][:, 0].astype(np.float64), QUANTILES).tolist()
        return values

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

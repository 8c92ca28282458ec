"""``hgld reject score``: score images by a fitted detector, and measure how well it tells kinds of images apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hgld.errors import ConfigurationError
from hgld.rejection import SavedDetector, load_detector
from hgld.rejection.detector_files import Figure
from hgld.search.detector_fit import FILE_INPUTS, check_same_model, detection_figures, read_score_inputs
from hgld.search.settings import IMAGES, ScoredFiles
from hgld.tables import Provenance, write_results
from hgld.version import __version__

#: Shares of the images below the quantiles that describe scores.
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True, eq=False)
class ScoredImages:
    """Scores of images."""

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
    """Format what there is to say of scores as JSON, without those of single images.

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

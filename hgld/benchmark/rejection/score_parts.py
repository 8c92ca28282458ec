"""Scores of the queries of each split, in files that a later run of the same comparison does not compute again.

::

    OUT/scores/EMBEDDING/split0/queries.parquet   a row per query: its set, class, and nearest image of the index
    OUT/scores/EMBEDDING/split0/SCORE.parquet     a row per query: its score, and whether the answer is right

Rows are in the order of the sets (calibration, known, near, other unknown images) and of their images.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from hgld.benchmark.rejection.comparison_settings import INDEX, RejectionSettings, ScoreSettings
from hgld.benchmark.rejection.image_sets import ComparedImages, ImageSet
from hgld.benchmark.rejection.model_embeddings import SetEmbeddings, embed_sets, embedding_files, head_checkpoint
from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.errors import HgldError, InputError
from hgld.io.files import atomic_write
from hgld.io.settings import to_dict
from hgld.progress import Progress
from hgld.rejection.detector import Detector
from hgld.rejection.linear_classifier import fit_linear_classifier, save_classifier
from hgld.rejection.open_set import open_set_answers
from hgld.rejection.registry import build_detector
from hgld.tables import Provenance, input_digests, is_up_to_date, with_provenance

log = logging.getLogger(__name__)
#: Value of the option ``classifier`` of scores that fit one on the index.
_FITTED = "softmax"


@dataclass(frozen=True, eq=False)
class ScorePart:
    """Scores of the queries of a split by one score on one kind of embeddings.

    Args:
        embedding: Name of the embeddings.
        score: Name of the score in the settings.
        split: Seed of the split.
        queries: Columns ``set``, ``kind``, ``id``, ``source``, ``class``; ``nearest``, ``cosine`` and
            ``nearest_class`` of the nearest image of the index, and the finest ``level`` that the query shares with
            it, L for the same landmark, 0 for none; ``score``, and ``right``, whether the score's own answer is the
            query's landmark. A row per query.
    """

    embedding: str
    score: str
    split: int
    queries: pd.DataFrame


@dataclass(frozen=True)
class FailedPart:
    """A score that could not be computed, and why."""

    embedding: str
    score: str
    split: int
    reason: str


class PartFiles:
    """The files of scores of a comparison.

    Args:
        settings: Settings of the comparison.
        out: Output folder.
        force: Whether to compute again what is there.
    """

    def __init__(self, settings: RejectionSettings, out: Path, *, force: bool = False) -> None:
        self._settings, self._out, self._force = settings, out, force
        self._done: set[Path] = set()

    def path(self, embedding: str, split: int, name: str) -> Path:
        """Return the file of a score, or of the ``queries``."""
        return self._out / "scores" / embedding / f"split{split}" / f"{name}.parquet"

    def is_finished(self, embedding: str, split: int, name: str) -> bool:
        """Return whether a file is there that the same settings, images, embeddings and options made."""
        path = self.path(embedding, split, name)
        if self._force and path not in self._done:
            return False
        return is_up_to_date(path, self._provenance(embedding, split, name))

    def read(self, embedding: str, split: int, name: str) -> pd.DataFrame:
        """Read a file."""
        table: pd.DataFrame = pq.read_table(self.path(embedding, split, name)).to_pandas()
        return table

    def write(self, embedding: str, split: int, name: str, table: pd.DataFrame) -> None:
        """Write a file atomically."""
        path = self.path(embedding, split, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = pa.Table.from_pandas(table, preserve_index=False)
        schema = with_provenance(columns.schema, "rejection_scores/1", self._provenance(embedding, split, name))
        with atomic_write(path) as draft:
            pq.write_table(columns.replace_schema_metadata(schema.metadata), draft, compression="zstd")
        self._done.add(path)

    def _provenance(self, embedding: str, split: int, name: str) -> Provenance:
        settings = self._settings
        parameters: dict[str, Any] = {
            "index": to_dict(settings.index),
            "unknown": {key: to_dict(images) for key, images in settings.unknown.items()},
            "split": split,
        }
        if name in settings.score_settings():
            detector = _detector(settings, name)
            parameters |= {"score": detector.name, "options": detector.options()}
        return Provenance("reject compare", parameters, self._digests(embedding, split))

    def _digests(self, embedding: str, split: int) -> dict[str, str]:
        settings = self._settings
        manifests = {name: images.manifest for name, images in settings.unknown.items()}
        files = {f"manifest/{name}": path for name, path in {INDEX: settings.index.manifest, **manifests}.items()}
        embedded = settings.embeddings[embedding]
        files |= {f"embeddings/{name}": path for name, path in embedding_files(embedded, split).items()}
        if (checkpoint := head_checkpoint(embedded, split)) is not None:
            files["head"] = checkpoint
        return {role: _digest(path) for role, path in files.items()}


class SplitQueries:
    """Queries and index of a split on one kind of embeddings, which all scores share.

    Args:
        settings: Settings of the comparison.
        images: Images of the comparison.
        embedding: Name of the embeddings.
        split: Seed of the split.
    """

    def __init__(self, settings: RejectionSettings, images: ComparedImages, embedding: str, split: int) -> None:
        self._embedding, self._split = settings.embeddings[embedding], split
        self.sets = images.sets(split)

    @cached_property
    def index(self) -> SetEmbeddings:
        """Embeddings of the index."""
        return self._embedded[INDEX]

    @cached_property
    def queries(self) -> SetEmbeddings:
        """Embeddings of all queries, set by set."""
        parts = [self._embedded[images.name] for images in self._query_sets]
        deviations = [part.deviations for part in parts if part.deviations is not None]
        return SetEmbeddings(
            torch.cat([part.vectors for part in parts]), torch.cat(deviations) if deviations else None
        )

    def describe(self) -> pd.DataFrame:
        """Return the set, the class and the nearest image of the index of each query; see :class:`ScorePart`."""
        index = self.sets[INDEX]
        cosines, positions = nearest_neighbours(self.queries.vectors, self.index.vectors, 1)
        nearest = positions[:, 0]
        table = pd.concat([_describe(images) for images in self._query_sets], ignore_index=True)
        same = np.concatenate([images.labels for images in self._query_sets]) == index.labels[nearest]
        described: pd.DataFrame = table.assign(
            nearest=index.ids[nearest],
            cosine=cosines[:, 0],
            nearest_class=index.classes[nearest],
            level=same.sum(1),
        )
        return described

    def score(self, detector: Detector) -> pd.DataFrame:
        """Fit a score on the index, and return its columns ``score`` and ``right`` of each query."""
        if detector.options().get("classifier") == _FITTED:
            detector = build_detector(detector.name, detector.options() | {"classifier": str(self._classifier)})
        wants_deviations = "deviations" in detector.requires | detector.uses
        index, queries, labels = self.index, self.queries, self.sets[INDEX].labels
        detector.fit(index.vectors, labels, deviations=index.deviations if wants_deviations else None)
        answers = open_set_answers(
            detector,
            index.vectors,
            labels,
            queries.vectors,
            np.concatenate([images.labels for images in self._query_sets]),
            deviations=queries.deviations if wants_deviations else None,
        )
        columns: pd.DataFrame = pd.DataFrame({"score": answers.scores, "right": answers.right[:, 0]})
        return columns

    @cached_property
    def _classifier(self) -> Path:
        """The file of the classifier of the index, which is fitted once for all scores of classifiers."""
        folder = mkdtemp(prefix="hgld-classifier-")
        weakref.finalize(self, rmtree, folder, ignore_errors=True)
        path = Path(folder) / "classifier.safetensors"
        labels = np.ascontiguousarray(self.sets[INDEX].labels[:, 0])
        save_classifier(fit_linear_classifier(self.index.vectors, labels), path)
        return path

    @cached_property
    def _embedded(self) -> dict[str, SetEmbeddings]:
        return embed_sets(self._embedding, self.sets, self._split)

    @property
    def _query_sets(self) -> list[ImageSet]:
        return [images for images in self.sets.values() if images.name != INDEX]


def score_parts(
    settings: RejectionSettings, out: Path, *, force: bool = False, progress: Progress
) -> Iterator[ScorePart | FailedPart]:
    """Compute the missing scores of a comparison, and yield all.

    Args:
        settings: Settings of the comparison.
        out: Output folder.
        force: Whether to compute again what is there.
        progress: Progress in scores, embeddings and splits counted apart.

    Raises:
        InputError: A file of the images or of the embeddings cannot be read or lacks images.
        ConfigurationError: The settings do not fit the images, or a head was trained on them.
    """
    files, images = PartFiles(settings, out, force=force), ComparedImages(settings)
    progress.start(len(settings.embeddings) * len(settings.splits) * len(settings.score_settings()))
    for embedding in settings.embeddings:
        for split in settings.splits:
            queries = SplitQueries(settings, images, embedding, split)
            if not files.is_finished(embedding, split, "queries"):
                files.write(embedding, split, "queries", queries.describe())
            table = files.read(embedding, split, "queries")
            for name in settings.score_settings():
                yield _score_part(settings, files, queries, table, (embedding, name, split))
                progress.advance()


def n_finished(settings: RejectionSettings, out: Path) -> int:
    """Return how many scores of a comparison a run would not compute again."""
    files = PartFiles(settings, out)
    return sum(
        files.is_finished(embedding, split, name)
        for embedding in settings.embeddings
        for split in settings.splits
        for name in settings.score_settings()
    )


def _score_part(
    settings: RejectionSettings,
    files: PartFiles,
    queries: SplitQueries,
    table: pd.DataFrame,
    part: tuple[str, str, int],
) -> ScorePart | FailedPart:
    embedding, name, split = part
    if not files.is_finished(embedding, split, name):
        start = time.monotonic()
        try:
            scores = queries.score(_detector(settings, name))
        except HgldError as error:  # such as a covariance that the index does not suffice for
            log.warning("%s, split %d: %s is not computed: %s", embedding, split, name, error)
            return FailedPart(embedding, name, split, str(error))
        log.info("%s, split %d: %s in %.1f s", embedding, split, name, time.monotonic() - start)
        files.write(embedding, split, name, pd.concat([table[["set", "id"]], scores], axis=1))
    scored = files.read(embedding, split, name)
    return ScorePart(embedding, name, split, pd.concat([table, scored[["score", "right"]]], axis=1))


def _detector(settings: RejectionSettings, name: str) -> Detector:
    score: ScoreSettings = settings.score_settings()[name]
    return build_detector(score.score or name, score.options)


def _describe(images: ImageSet) -> pd.DataFrame:
    columns: Mapping[str, object] = {
        "set": images.name,
        "kind": images.kind,
        "id": images.ids,
        "source": images.source,
        "class": images.classes,
    }
    table: pd.DataFrame = pd.DataFrame(columns)
    return table


_digests: dict[tuple[Path, int, int], str] = {}


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file, which is computed once while the file does not change."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; write it, or name another in the settings")
    status = path.stat()
    key = (path, status.st_mtime_ns, status.st_size)
    if key not in _digests:
        _digests[key] = input_digests(file=path)["file"]
    return _digests[key]

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
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from hgld.benchmark.rejection.image_sets import (
    ComparedImages,
    SetEmbeddings,
    embed_sets,
    embedding_files,
    head_checkpoint,
)
from hgld.benchmark.rejection.settings import INDEX, RejectionSettings
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
_QUERIES = "queries"
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

    def __str__(self) -> str:
        return f"{self.embedding}, split {self.split}, {self.score}: {self.reason}"


class SplitScores:
    """Scores of the queries of a split on one kind of embeddings."""

    def __init__(
        self, settings: RejectionSettings, images: ComparedImages, out: Path, embedding: str, split: int
    ) -> None:
        self._settings, self._images, self.embedding, self.split = settings, images, embedding, split
        self._embedding, self._names = settings.embeddings[embedding], tuple(settings.score_settings())
        self._folder = out / "scores" / embedding / f"split{split}"
        self.failed: dict[str, FailedPart] = {}

    def finished(self) -> list[str]:
        """Return the scores whose files the same settings, images, embeddings and options made."""
        return [name for name in self._names if self._is_finished(name)]

    def compute(self, progress: Progress, *, force: bool) -> None:
        """Compute the scores that are not finished, or all if ``force``; note those that fail in ``failed``.

        Raises:
            InputError: A file of the images or of the embeddings cannot be read or lacks images.
            ConfigurationError: The settings do not fit the images, or a head was trained on them.
        """
        if force or not self._is_finished(_QUERIES):
            self._write(_QUERIES, self.describe())
        for name in self._names:
            if force or not self._is_finished(name):
                start = time.monotonic()
                try:
                    scores = self.score(self._detector(name))
                except HgldError as error:  # such as a covariance that the index does not suffice for
                    log.warning("%s, split %d: %s is not computed: %s", self.embedding, self.split, name, error)
                    self.failed[name] = FailedPart(self.embedding, name, self.split, str(error))
                else:
                    seconds = time.monotonic() - start
                    log.info("%s, split %d: %s in %.1f s", self.embedding, self.split, name, seconds)
                    self._write(name, pd.concat([self._read(_QUERIES)[["set", "id"]], scores], axis=1))
            progress.advance()

    def parts(self) -> list[ScorePart]:
        """Read all scores but those that failed."""
        queries, names = self._read(_QUERIES), [name for name in self._names if name not in self.failed]
        tables = {name: pd.concat([queries, self._read(name)[["score", "right"]]], axis=1) for name in names}
        return [ScorePart(self.embedding, name, self.split, table) for name, table in tables.items()]

    def describe(self) -> pd.DataFrame:
        """Return the set, the class and the nearest image of the index of each query; see :class:`ScorePart`."""
        index, *queries = self._images.sets(self.split).values()
        cosines, positions = nearest_neighbours(self._queries.vectors, self._embedded[INDEX].vectors, 1)
        nearest = positions[:, 0]
        tables = [
            pd.DataFrame(
                {
                    "set": images.name,
                    "kind": images.kind,
                    "id": images.ids,
                    "source": images.source,
                    "class": images.classes,
                }
            )
            for images in queries
        ]
        described: pd.DataFrame = pd.concat(tables, ignore_index=True).assign(
            nearest=index.ids[nearest],
            cosine=cosines[:, 0],
            nearest_class=index.classes[nearest],
            level=(self._query_labels == index.labels[nearest]).sum(1),
        )
        return described

    def score(self, detector: Detector) -> pd.DataFrame:
        """Fit a score on the index, and return its columns ``score`` and ``right`` of each query."""
        if detector.options().get("classifier") == _FITTED:
            detector = build_detector(detector.name, detector.options() | {"classifier": str(self._classifier)})
        wants_deviations = "deviations" in detector.requires | detector.uses
        index, queries, labels = self._embedded[INDEX], self._queries, self._images.sets(self.split)[INDEX].labels
        detector.fit(index.vectors, labels, deviations=index.deviations if wants_deviations else None)
        answers = open_set_answers(
            detector,
            index.vectors,
            labels,
            queries.vectors,
            self._query_labels,
            deviations=queries.deviations if wants_deviations else None,
        )
        columns: pd.DataFrame = pd.DataFrame({"score": answers.scores, "right": answers.right[:, 0]})
        return columns

    @cached_property
    def _embedded(self) -> dict[str, SetEmbeddings]:
        return embed_sets(self._embedding, self._images.sets(self.split), self.split)

    @cached_property
    def _queries(self) -> SetEmbeddings:
        """Embeddings of all queries, set by set."""
        parts = [part for name, part in self._embedded.items() if name != INDEX]
        deviations = [part.deviations for part in parts if part.deviations is not None]
        return SetEmbeddings(
            torch.cat([part.vectors for part in parts]), torch.cat(deviations) if deviations else None
        )

    @property
    def _query_labels(self) -> np.ndarray:
        _, *queries = self._images.sets(self.split).values()
        return np.concatenate([images.labels for images in queries])

    @cached_property
    def _classifier(self) -> Path:
        """The file of the classifier of the index, which is fitted once for all scores of classifiers."""
        folder = mkdtemp(prefix="hgld-classifier-")
        weakref.finalize(self, rmtree, folder, ignore_errors=True)
        path = Path(folder) / "classifier.safetensors"
        labels = np.ascontiguousarray(self._images.sets(self.split)[INDEX].labels[:, 0])
        save_classifier(fit_linear_classifier(self._embedded[INDEX].vectors, labels), path)
        return path

    def _detector(self, name: str) -> Detector:
        score = self._settings.score_settings()[name]
        return build_detector(score.score or name, score.options)

    def _is_finished(self, name: str) -> bool:
        return is_up_to_date(self._folder / f"{name}.parquet", self._provenance(name))

    def _read(self, name: str) -> pd.DataFrame:
        table: pd.DataFrame = pq.read_table(self._folder / f"{name}.parquet").to_pandas()
        return table

    def _write(self, name: str, table: pd.DataFrame) -> None:
        write_parquet(self._folder / f"{name}.parquet", table, "rejection_scores/1", self._provenance(name))

    def _provenance(self, name: str) -> Provenance:
        settings = self._settings
        parameters: dict[str, Any] = {
            "index": to_dict(settings.index),
            "unknown": {key: to_dict(images) for key, images in settings.unknown.items()},
            "split": self.split,
        }
        if name in self._names:
            detector = self._detector(name)
            parameters |= {"score": detector.name, "options": detector.options()}
        manifests = {INDEX: settings.index.manifest, **{key: one.manifest for key, one in settings.unknown.items()}}
        files = {f"manifest/{key}": path for key, path in manifests.items()}
        files |= {f"embeddings/{key}": path for key, path in embedding_files(self._embedding, self.split).items()}
        if (checkpoint := head_checkpoint(self._embedding, self.split)) is not None:
            files["head"] = checkpoint
        return Provenance("reject compare", parameters, {role: _digest(path) for role, path in files.items()})


def write_parquet(path: Path, table: pd.DataFrame, schema_id: str, provenance: Provenance) -> None:
    """Write a table with its provenance atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = pa.Table.from_pandas(table, preserve_index=False)
    schema = with_provenance(columns.schema, schema_id, provenance)
    with atomic_write(path) as draft:
        pq.write_table(columns.replace_schema_metadata(schema.metadata), draft, compression="zstd")


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file, which is computed once while the file does not change."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; write it, or name another in the settings")
    status = path.stat()
    return _digest_of_version(path, status.st_mtime_ns, status.st_size)


@cache
def _digest_of_version(path: Path, mtime_ns: int, size: int) -> str:
    return input_digests(file=path)["file"]

"""The table of a comparison of models, and comparisons that are up to date, without importing torch or pandas."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq

from hgld.benchmark.engine import is_complete_report, read_report_record, record_report_request
from hgld.benchmark.model_comparison_settings import ModelComparisonConfig, ModelEntry
from hgld.errors import HgldError
from hgld.io.files import sha256_of
from hgld.models.embedding_files import embedding_request, is_unchanged, recorded_distance
from hgld.models.settings import EmbedImagesConfig
from hgld.tables import input_digests
from hgld.version import __version__

#: Suffixes of files of embeddings.
EMBEDDING_SUFFIXES = (".parquet", ".npy", ".safetensors")


class ComparedModels:
    """Rows of the table of a comparison, by metric and name.

    Args:
        rows: Rows of :func:`hgld.benchmark.statistics.compare`, with its columns as attributes.
    """

    def __init__(self, rows: Iterable[Any]) -> None:
        self.rows: dict[tuple[str, str], Any] = {}
        for row in rows:
            self.rows[str(row.metric), str(row.name)] = row
        #: Metrics of the table, in its order.
        self.metrics = list(dict.fromkeys(metric for metric, _ in self.rows))
        #: Metric by which models are sorted: H-AP, or the first where it is missing.
        self.main_metric = "H-AP" if "H-AP" in self.metrics else self.metrics[0]
        #: Names in tables, the best by the main metric first.
        self.names = sorted(
            dict.fromkeys(name for _, name in self.rows),
            key=lambda name: self.rows[self.main_metric, name].rank,
        )


def comparison_request(
    models: Sequence[ModelEntry],
    manifest: Path,
    root: Path | None,
    config: ModelComparisonConfig,
) -> str | None:
    """Return a SHA-256 that identifies a comparison by its settings, models and images; None if a model is not found.

    Equal requests give equal results. Different requests may give equal results, too: the provenances of the results
    then decide.

    Args:
        root: Folder that the paths of the manifest are relative to; None for its own.
    """
    requests: list[Any] = []
    try:
        for entry in models:
            file = Path(entry.model)
            if file.suffix in EMBEDDING_SUFFIXES:
                ids = file.with_suffix(".ids.txt")
                digests = input_digests(embeddings=file, ids=ids if ids.is_file() else None)
                requests.append([digests, recorded_distance(file)])
                continue
            options = dict(entry.options)
            pretrained = options.pop("pretrained", None)
            request = embedding_request(
                manifest, entry.model, pretrained, options, EmbedImagesConfig()
            )
            if request is None:
                return None
            requests.append(request)
        values = {
            "models": [[asdict(entry) for entry in models], requests],
            "images": [str(root), str(manifest), sha256_of(manifest)],
            "config": asdict(config),
            "version": __version__,
        }
    except (HgldError, OSError):  # which the comparison reports
        return None
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def read_finished(
    out: Path, request: str | None, models: Sequence[ModelEntry]
) -> tuple[ComparedModels, list[Path]] | None:
    """Return the table and the files of a comparison that is up to date; None if it is not.

    Args:
        request: See :func:`comparison_request`.
        models: The models of the comparison.
    """
    record = read_report_record(report_record(out))
    if request is None or record.request != request or not is_complete_report(record.files):
        return None
    for entry in models:
        file = embeddings_file(out, entry.name)
        if Path(entry.model).suffix not in EMBEDDING_SUFFIXES and not is_unchanged(file):
            return None
    for name, digest in record.provenance.inputs.items():
        file = result_path(out, name)
        if not file.is_file() or sha256_of(file) != digest:
            return None
    rows = pq.read_table(out / "results.parquet").to_pylist()
    return ComparedModels(SimpleNamespace(**row) for row in rows), record.files


def record_request(out: Path, request: str) -> None:
    """Record the request that a comparison without failures was made by, or would be made by again."""
    record_report_request(report_record(out), request)


def report_record(out: Path) -> Path:
    """Return the record of the reports of a comparison."""
    return out / "results.made.json"


def embeddings_file(out: Path, model: str) -> Path:
    """Return the file of the embeddings by a model, by its name."""
    return out / "embeddings" / f"{model}.parquet"


def result_path(out: Path, run: str) -> Path:
    """Return the file of the results of a run, by its name in tables."""
    return out / "evaluations" / f"{run.replace(' + ', '+')}.parquet"

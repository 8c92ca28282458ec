"""Results in a Parquet file, with a row per query."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hgld.errors import InputError
from hgld.evaluation.json_report import to_json_values
from hgld.evaluation.result_columns import metric_names
from hgld.evaluation.results import RetrievalResult
from hgld.io.files import atomic_write, require_suffix
from hgld.tables import Provenance, read_provenance, with_provenance

_RESULTS_KEY = b"hgld.results"


def write_per_query(results: Sequence[RetrievalResult], path: Path, provenance: Provenance) -> None:
    """Write a Parquet file with a row per query of every result, atomically; :func:`read_per_query` reads it.

    Columns: ``part``, the name of the result, where there are several; ``query``; the metrics, float64, from 0 to 1;
    ``positives_l1`` and so on, int64. What a result or a query does not have is null. The file's metadata hold the
    provenance, as those of every table do (see :mod:`hgld.tables`).

    Args:
        results: Results of the parts.
        path: File to write or replace.
        provenance: Command, parameters and inputs of the evaluation.

    Raises:
        ConfigurationError: The suffix of the file is not ``.parquet``.
    """
    require_suffix(path, ".parquet")
    parts = []
    for result in results:
        part = pa.Table.from_pandas(result.per_query.reset_index(), preserve_index=False).replace_schema_metadata()
        parts.append(part.add_column(0, "part", pa.array([result.name] * len(part), pa.string())))
    table = pa.concat_tables(parts, promote_options="default")
    metrics = metric_names(results)
    others = [name for name in table.column_names if name not in {"part", "query", *metrics}]
    table = table.select([*(["part"] if len(results) > 1 else []), "query", *metrics, *others])
    entries = [
        {
            "name": result.name,
            "columns": list(result.per_query.columns),
            "metrics": list(result.metrics),
            "counts": result.counts,
            "settings": result.settings,
        }
        for result in results
    ]
    metadata = with_provenance(table.schema, "per_query/1", provenance).metadata | {
        _RESULTS_KEY: json.dumps(to_json_values(entries))
    }
    with atomic_write(path) as draft:
        pq.write_table(table.replace_schema_metadata(metadata), draft, compression="zstd")


def read_per_query(path: Path) -> list[RetrievalResult]:
    """Read the results that :func:`write_per_query` wrote; settings are JSON values.

    Raises:
        InputError: There is no such file, or it is another table.
    """
    read_provenance(path)  # raises for files that hgld did not write
    table = pq.read_table(path)
    if _RESULTS_KEY not in table.schema.metadata:
        raise InputError(f"{path}: expected the results of queries, as hgld writes them; evaluate again")
    results = []
    for entry in json.loads(table.schema.metadata[_RESULTS_KEY]):
        part = table.filter(pc.field("part") == entry["name"]) if "part" in table.column_names else table
        columns = part.select(["query", *entry["columns"]]).replace_schema_metadata()
        results.append(
            RetrievalResult(
                name=entry["name"],
                per_query=columns.to_pandas().set_index("query"),
                metrics=tuple(entry["metrics"]),
                counts=entry["counts"],
                settings=entry["settings"],
            )
        )
    return results

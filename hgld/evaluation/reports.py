"""Results as text and files: notes on settings, JSON, LaTeX as in the paper's Table VII, a row per query."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hgld.compute.resampling import Interval
from hgld.errors import InputError
from hgld.evaluation.results import (
    WITHOUT_POSITIVES,
    RetrievalResult,
    is_distance,
    mark_best,
    metric_names,
    select_metrics,
    shown_value,
)
from hgld.io.files import atomic_write, require_suffix
from hgld.tables import Provenance, read_provenance, with_provenance
from hgld.version import __version__

#: Beginning of the metrics that depend on a setting, and the sentence about it.
_OF_METRICS = {
    "relevance": ("H-", "H-AP: relevance {}."),
    "query_counted": ("H-", "Query counted in |Omega^(L)|: {}."),
    "gain": ("NDCG", "NDCG: gain {}."),
    "level_weights": ("wAP", "wAP: weights of the levels, coarsest first: {}."),
}


def setting_notes(results: Sequence[RetrievalResult]) -> list[str]:
    """Describe what the numbers depend on; a sentence that is not true of all results begins with their names."""
    names_by_note: dict[str, list[str]] = {}
    for result in results:
        for note in _notes(result):
            names_by_note.setdefault(note, []).append(result.name)
    return [
        note if len(names) == len(results) else f"{', '.join(names)}: {note}" for note, names in names_by_note.items()
    ]


def _notes(result: RetrievalResult) -> list[str]:
    sentences = (_sentence(name, value, result.metrics) for name, value in result.settings.items())
    notes = [sentence for sentence in sentences if sentence is not None]
    if distances := [name for name in result.metrics if is_distance(name)]:
        notes.append(f"{', '.join(distances)}: in levels of the tree and not in %; lower is better.")
    for name, count in result.counts.items():
        if count and name not in {"queries", "gallery"} and not name.startswith(WITHOUT_POSITIVES):
            notes.append(f"{_capitalised(name)}: {count:,}.")
    return notes


def _sentence(setting: str, value: Any, metrics: Sequence[str]) -> str | None:
    """Return a setting as a sentence; None where no metric depends on it."""
    if setting in _OF_METRICS:
        beginning, sentence = _OF_METRICS[setting]
        return sentence.format(value) if any(name.startswith(beginning) for name in metrics) else None
    if setting == "ties":
        first = "lower" if value == "pessimistic" else "higher"
        return f"Ties: {value}; among items with equal scores, the {first} level ranks first."
    if setting == "normalize":
        return f"Scores: {'cosine similarity' if value else 'inner product, embeddings not normalised'}."
    return f"{'Score precision' if setting == 'precision' else _capitalised(setting)}: {value}."


def _capitalised(name: str) -> str:
    words = name.replace("_", " ")
    return words[:1].upper() + words[1:]


def results_to_json(
    results: Sequence[RetrievalResult],
    *,
    intervals: Sequence[Mapping[str, Interval]] | None = None,
    mean: Mapping[str, float] | None = None,
    **further: object,
) -> str:
    """Format results as JSON.

    ``{"hgld": version, "results": [...], "mean": over the results, by metric, or null}`` with, for each result,
    ``name``; ``means``, from 0 to 1, by metric; ``intervals``, [low, high] of 95 % by metric, or null where they are
    not given; ``counts``; ``settings``. NaN is null.

    Args:
        results: Results of the parts.
        intervals: Confidence intervals of each result, from :meth:`RetrievalResult.intervals`.
        mean: Mean of each metric over the results, for protocols that report it.
        **further: Further values, such as figures of rejected queries.
    """
    entries = [
        {
            "name": result.name,
            "means": result.means,
            "intervals": intervals[row] if intervals is not None else None,
            "counts": result.counts,
            "settings": result.settings,
        }
        for row, result in enumerate(results)
    ]
    values = {"hgld": __version__, "results": entries, "mean": mean} | further
    return json.dumps(to_json_values(values), indent=2, ensure_ascii=False, allow_nan=False)


def to_json_values(value: Any) -> Any:
    """Return a value as JSON can hold it: NaN as null, NumPy's numbers as numbers, anything unknown as text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(key): to_json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_values(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


#: Columns of the paper's Table VII; ``map100_labelled`` is what it calls mAP@100.
TABLE_VII = ("mAP@100", "map100_labelled", "H-AP", "ASI", "NDCG")
_HEADS = {"map100_labelled": "mAP@100 (labelled)", "map100_official": "mAP@100 (official)"}
_ESCAPES = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


@dataclass(frozen=True)
class LatexRow:
    """Row of a table.

    Args:
        head: Name of the row, in LaTeX.
        means: Means by metric.
        deviations: Standard deviations over runs, by metric; NaN or absent where there is one run.
    """

    head: str
    means: Mapping[str, float]
    deviations: Mapping[str, float] = field(default_factory=dict)


def results_to_latex(
    results: Sequence[RetrievalResult], *, metrics: Sequence[str] | None = None, caption: str | None = None
) -> str:
    """Format results as a table for the package booktabs.

    A row per result that has any of the columns, values in percent (distances in levels) with one decimal. With two
    rows or more the best of a column is bold and the second underlined, as far as the decimals shown tell them apart:
    several can be best, and then none is second.

    Args:
        results: Results of the methods.
        metrics: Columns; by default those of :data:`TABLE_VII` that a result has.
        caption: LaTeX, put above the table.

    Raises:
        ConfigurationError: No result has any of the metrics.
    """
    columns = select_metrics(TABLE_VII if metrics is None else metrics, metric_names(results))
    rows = [
        LatexRow(escape_latex(result.name), result.means)
        for result in results
        if set(result.metrics).intersection(columns)
    ]
    return latex_table(rows, columns, caption=caption)


def latex_table(
    rows: Sequence[LatexRow], metrics: Sequence[str], *, caption: str | None = None, mark: bool = True
) -> str:
    """Format the table that :func:`results_to_latex` describes; deviations follow the means in a small font.

    Args:
        rows: Rows of the table.
        metrics: Columns.
        caption: LaTeX, put above the table.
        mark: Whether to mark the best and the second of each column.
    """
    best, second = (r"\textbf{{{}}}", r"\underline{{{}}}") if mark else ("{}", "{}")
    cells = [[row.head for row in rows]]
    for name in metrics:
        means = mark_best(name, [row.means.get(name, math.nan) for row in rows], best, second)
        deviations = (row.deviations.get(name, math.nan) for row in rows)
        cells.append(
            [
                mean if math.isnan(deviation) else rf"{mean} {{\scriptsize $\pm$ {shown_value(name, deviation):.1f}}}"
                for mean, deviation in zip(means, deviations, strict=True)
            ]
        )
    header, *body = (
        f"    {' & '.join(row)} \\\\" for row in [["Method", *map(_head, metrics)], *zip(*cells, strict=True)]
    )
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            *([rf"  \caption{{{caption}}}"] if caption else []),
            rf"  \begin{{tabular}}{{l{'c' * len(metrics)}}}",
            r"    \toprule",
            header,
            r"    \midrule",
            *body,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
        ]
    )


def escape_latex(text: str) -> str:
    """Return text with LaTeX's special characters escaped and whitespace joined."""
    return "".join(_ESCAPES.get(character, character) for character in " ".join(text.split()))


def _head(metric: str) -> str:
    if metric.startswith("H-"):
        return rf"$\mathcal{{H}}$-{escape_latex(metric[2:])}"
    return escape_latex(_HEADS.get(metric, metric))


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

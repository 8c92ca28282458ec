"""Results of an evaluation: a value per query and metric, their means and confidence intervals."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hgld.arrays import Booleans
from hgld.compute.cluster_intervals import mean_intervals
from hgld.compute.resampling import Interval, check_resampling
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.metric_units import goodness, is_distance, shown_value
from hgld.io.files import atomic_write
from hgld.io.writable import require_suffix
from hgld.tables import Provenance, read_provenance, with_provenance
from hgld.tables.parquet import require_own_table
from hgld.version import __version__

#: Prefix of the counts of queries without positives of a level.
WITHOUT_POSITIVES = "without_positives"


@dataclass(frozen=True, eq=False, repr=False)
class RetrievalResult:
    """Result of an evaluation.

    Args:
        name: Name of the evaluated data, such as a protocol and its part.
        per_query: Table with a row per query: float64 columns named like the metrics (NaN where a
            query has no positive for the metric), then ``positives_l1``, ..., the number of gallery
            items of that level or finer, and, where queries have labels, ``class``: the name or
            number of the query's finest class, the first of several. The index ``query`` holds the
            ids of the queries, or their positions.
        metrics: Names of the metrics, in the order of tables.
        counts: Numbers of ``queries`` and of items in the ``gallery``, if known;
            ``without_positives_l1``, ...: the number of queries without a gallery item of that
            level or finer, which are excluded from means of that level; and numbers of excluded
            images: ``images_without_labels``, or ``queries_`` and ``gallery_without_labels``.
        settings: Settings on which the numbers depend, by name: relevance, ties, precision of scores
            and so on.
    """

    name: str
    per_query: pd.DataFrame
    metrics: tuple[str, ...]
    counts: dict[str, int]
    settings: dict[str, Any]

    @property
    def means(self) -> dict[str, float]:
        """Mean of each metric over the queries that have a value; NaN if no query has a value."""
        return {name: float(self.per_query[name].mean()) for name in self.metrics}

    def intervals(
        self, confidence: float = 0.95, *, n_resamples: int = 1000, seed: int = 0
    ) -> dict[str, Interval]:
        """Return confidence intervals of the means, as these would vary with another sample of classes.

        Queries of the same class, in the column ``class``, are not independent of one another;
        without that column each query is a class of its own. See
        :mod:`hgld.compute.cluster_intervals`.

        Args:
            confidence: Probability with which an interval holds the true mean, between 0 and 1.
            n_resamples: Number of random patterns of signs.
            seed: Seed of these patterns.

        Returns:
            (low, high) by metric; NaN where the queries with a value have too few classes (fewer
            than 6 for 95 %), and infinite where a few classes hold most of these queries.

        Raises:
            ConfigurationError: The confidence is not between 0 and 1, or there are no resamples.
        """
        check_resampling(confidence, n_resamples)
        values = self.per_query[list(self.metrics)].to_numpy()
        if "class" in self.per_query:
            codes = pd.factorize(self.per_query["class"], use_na_sentinel=False)[0]
            clusters = codes.astype(np.int64)
        else:
            clusters = np.arange(len(values))
        ends = mean_intervals(
            values, clusters, confidence=confidence, n_resamples=n_resamples, seed=seed
        )
        intervals = {}
        for column, name in enumerate(self.metrics):
            intervals[name] = within_range(name, float(ends[0, column]), float(ends[1, column]))
        return intervals

    def part(self, name: str, queries: Booleans) -> RetrievalResult:
        """Return the result of some of the queries, under another name."""
        per_query = self.per_query[queries]
        counts = self.counts | count_queries(per_query)
        return replace(self, name=name, per_query=per_query, counts=counts)

    def renamed(self, names: Mapping[str, str]) -> RetrievalResult:
        """Return the result with some metrics under other names."""
        metrics = tuple(names.get(metric, metric) for metric in self.metrics)
        return replace(self, per_query=self.per_query.rename(columns=dict(names)), metrics=metrics)

    def __repr__(self) -> str:
        shown_means = []
        for name, mean in self.means.items():
            shown_means.append(f"{name} {shown_value(name, mean):.2f}")
        size = f"{self.counts['queries']:,} queries"
        if "gallery" in self.counts:
            size += f" x {self.counts['gallery']:,}"
        return f"{self.name} | {' | '.join(shown_means)} | {size}"


def within_range(metric: str, low: float, high: float) -> Interval:
    """Return an interval of a mean, clipped to the values that the metric can have.

    Shares lie between 0 and 1. An interval that is unbounded or missing stays as it is.

    >>> within_range("R@1", -0.1, 0.3), within_range("mistake_severity", 1.0, 1.5)
    ((0.0, 0.3), (1.0, 1.5))
    """
    if is_distance(metric) or not (math.isfinite(low) and math.isfinite(high)):
        return low, high
    return max(low, 0.0), min(high, 1.0)


def interval_text(low: float, high: float, *, signed: bool = False) -> str:
    """Format the ends of an interval.

    >>> interval_text(-0.25, 1.5, signed=True), interval_text(float("nan"), float("nan"))
    ('[-0.25, +1.50]', '[no interval]')
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return "[no interval]"
    if signed:
        return f"[{low:+.2f}, {high:+.2f}]"
    return f"[{low:.2f}, {high:.2f}]"


def warn_without_positives(name: str, per_query: pd.DataFrame, levels: Iterable[int]) -> None:
    """Warn of levels at which no query has a positive.

    Args:
        name: Name of the result.
        per_query: Table of queries with the columns ``positives_l1``, ...
        levels: Levels to check.
    """
    if not len(per_query):
        return
    lacking = []
    for level in levels:
        if not per_query[f"positives_l{level}"].any():
            lacking.append(str(level))
    if lacking:
        warnings.warn(
            f"{name}: none of {len(per_query):,} queries has a positive in the gallery at level "
            f"{', '.join(lacking)}, so metrics of it are NaN",
            stacklevel=2,
        )


def count_queries(per_query: pd.DataFrame) -> dict[str, int]:
    """Count the queries, and for each column ``positives_l1``, ... the queries without positives."""
    counts = {"queries": len(per_query)}
    for column in per_query.columns:
        if column.startswith("positives_l"):
            counts[f"without_{column}"] = int((per_query[column] == 0).sum())
    return counts


def metric_names(results: Iterable[RetrievalResult]) -> list[str]:
    """Return the metrics of all results, without repetition, in their order."""
    names: dict[str, None] = {}
    for result in results:
        names.update(dict.fromkeys(result.metrics))
    return list(names)


def select_metrics(wanted: Sequence[str], available: Sequence[str]) -> list[str]:
    """Return the wanted metrics that are available.

    Raises:
        ConfigurationError: No wanted metric is available.
    """
    columns = [name for name in wanted if name in available]
    if not columns:
        raise ConfigurationError(
            f"no result has {', '.join(wanted)}; the metrics are {', '.join(available)}"
        )
    return columns


def mark_best(
    metric: str, means: Sequence[float], best: str, second: str, *, decimals: int = 1
) -> list[str]:
    """Format the cells of a column in the unit of its metric, and mark the best and second-best.

    Means are compared after rounding: several can be best, and then no cell is second-best. A
    single mean is not marked.

    Args:
        metric: Metric of the column: shares are shown in percent, distances in levels, where lower
            is better.
        means: Values; the cell of NaN is empty.
        best: Format of the best cells, with ``{}`` for the number.
        second: Format of the second-best cells.
        decimals: Number of decimals shown.

    >>> mark_best("H-AP", [0.1234, 0.25, math.nan, 0.1], "**{}**", "_{}_")
    ['_12.3_', '**25.0**', '', '10.0']
    """
    shown = [round(shown_value(metric, mean), decimals) for mean in means]
    ranked = [value for value in shown if not math.isnan(value)]
    ranked.sort(key=lambda value: goodness(metric, value), reverse=True)
    formats: dict[float, str] = {}
    if len(ranked) > 1:
        formats[ranked[1]] = second
        formats[ranked[0]] = best  # overwrites the second-best if both values are equal
    cells = []
    for value in shown:
        if math.isnan(value):
            cells.append("")
        else:
            cells.append(formats.get(value, "{}").format(f"{value:.{decimals}f}"))
    return cells


#: Scores in words, by distance.
_SCORES = {
    "cosine": "cosine similarity",
    "dot": "inner product, embeddings not normalised",
    "euclidean": "minus the Euclidean distance",
    "poincare": "minus the Poincaré distance",
}
#: Settings on which some metrics depend: prefix of the names of these metrics, and a sentence.
_METRIC_SETTINGS = {
    "relevance": ("H-", "H-AP: relevance {}."),
    "query_counted": ("H-", "Query counted in |Omega^(L)|: {}."),
    "gain": ("NDCG", "NDCG: gain {}."),
    "level_weights": ("wAP", "wAP: weights of the levels, coarsest first: {}."),
}


def setting_notes(results: Sequence[RetrievalResult]) -> list[str]:
    """Describe the settings of results; sentences that hold for some results begin with their names."""
    names_by_note: dict[str, list[str]] = {}
    for result in results:
        for note in _notes(result):
            names_by_note.setdefault(note, []).append(result.name)
    notes = []
    for note, names in names_by_note.items():
        if len(names) < len(results):
            note = f"{', '.join(names)}: {note}"
        notes.append(note)
    return notes


def _notes(result: RetrievalResult) -> list[str]:
    """Return the sentences about the settings, units and counts of a result."""
    notes = []
    for name, value in result.settings.items():
        sentence = _sentence(name, value, result.metrics)
        if sentence is not None:
            notes.append(sentence)
    distances = [name for name in result.metrics if is_distance(name)]
    if distances:
        notes.append(
            f"{', '.join(distances)}: in levels of the tree and not in %; lower is better."
        )
    for name, count in result.counts.items():
        is_size = name in {"queries", "gallery"} or name.startswith(WITHOUT_POSITIVES)
        if count and not is_size:
            notes.append(f"{_capitalised(name)}: {count:,}.")
    return notes


def _sentence(setting: str, value: Any, metrics: Sequence[str]) -> str | None:
    """Return a setting as a sentence; None if the setting concerns other metrics only."""
    if setting in _METRIC_SETTINGS:
        prefix, sentence = _METRIC_SETTINGS[setting]
        if any(name.startswith(prefix) for name in metrics):
            return sentence.format(value)
        return None
    if setting == "ties":
        if value == "heaviside":
            return "Ties: heaviside; items with equal scores are all ranked before each other, as H(0) = 1 in Eq. 3."
        first = "lower" if value == "pessimistic" else "higher"
        return f"Ties: {value}; among items with equal scores, the {first} level ranks first."
    if setting == "distance":
        return f"Scores: {_SCORES[value]}."
    if isinstance(value, float):
        value = f"{value:.6g}"
    label = "Score precision" if setting == "precision" else _capitalised(setting)
    return f"{label}: {value}."


def _capitalised(name: str) -> str:
    """Return the name of a setting or count as the beginning of a sentence."""
    words = name.replace("_", " ")
    return words[:1].upper() + words[1:]


def results_to_json(
    results: Sequence[RetrievalResult],
    *,
    intervals: Sequence[Mapping[str, Interval]] | None = None,
    mean: Mapping[str, float] | None = None,
) -> str:
    """Format results as JSON.

    ``{"hgld": version, "results": [...], "mean": mean by metric, or null}``. Each result has
    ``name``; ``means``, from 0 to 1, by metric; ``intervals``, [low, high] of 95 % by metric, or
    null if they are not given; ``counts``; ``settings``. NaN is null.

    Args:
        results: Results of one evaluation.
        intervals: Confidence intervals of each result, from :meth:`RetrievalResult.intervals`.
        mean: Mean of each metric over the results, for protocols that report it.
    """
    entries = []
    for number, result in enumerate(results):
        entry = {
            "name": result.name,
            "means": result.means,
            "intervals": None if intervals is None else intervals[number],
            "counts": result.counts,
            "settings": result.settings,
        }
        entries.append(entry)
    values = {"hgld": __version__, "results": entries, "mean": mean}
    return json.dumps(to_json_values(values), indent=2, ensure_ascii=False, allow_nan=False)


def to_json_values(value: Any) -> Any:
    """Convert a value for JSON: NaN to null, NumPy's numbers to numbers, unknown types to text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(key): to_json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_values(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)


#: Columns of the paper's Table VII, which calls ``map100_labelled`` mAP@100.
TABLE_VII = ("mAP@100", "map100_labelled", "H-AP", "ASI", "NDCG")
_HEADS = {"map100_labelled": "mAP@100 (labelled)", "map100_official": "mAP@100 (official)"}
_ESCAPES = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


@dataclass(frozen=True)
class LatexRow:
    """Row of a LaTeX table.

    Args:
        head: Name of the row, in LaTeX.
        means: Means by metric.
        deviations: Standard deviations over runs, by metric; NaN or absent for a single run.
    """

    head: str
    means: Mapping[str, float]
    deviations: Mapping[str, float] = field(default_factory=dict)


def results_to_latex(
    results: Sequence[RetrievalResult], *, metrics: Sequence[str] | None = None
) -> str:
    """Format results as a table for the package booktabs.

    The table has a row per result with any of the columns. Values are percentages (distances are
    levels) with one decimal. In tables of two rows or more the best value of a column is bold and
    the second-best underlined, as :func:`mark_best` describes.

    Args:
        results: Results of one evaluation.
        metrics: Columns; by default the columns of :data:`TABLE_VII` that any result has.

    Raises:
        ConfigurationError: No result has any of the metrics.
    """
    wanted = TABLE_VII if metrics is None else metrics
    columns = select_metrics(wanted, metric_names(results))
    rows = []
    for result in results:
        if set(result.metrics).intersection(columns):
            rows.append(LatexRow(escape_latex(result.name), result.means))
    return latex_table(rows, columns)


def latex_table(
    rows: Sequence[LatexRow], metrics: Sequence[str], *, caption: str | None = None
) -> str:
    """Format a table like :func:`results_to_latex`, with deviations after the means in a small font.

    Args:
        rows: Rows of the table.
        metrics: Columns of the table.
        caption: LaTeX, put above the table.
    """
    lines_of_cells = [[row.head] for row in rows]
    for name in metrics:
        values = [row.means.get(name, math.nan) for row in rows]
        means = mark_best(name, values, r"\textbf{{{}}}", r"\underline{{{}}}")
        for row, mean, cells in zip(rows, means, lines_of_cells, strict=True):
            deviation = row.deviations.get(name, math.nan)
            if not math.isnan(deviation):
                mean = rf"{mean} {{\scriptsize $\pm$ {shown_value(name, deviation):.1f}}}"
            cells.append(mean)

    header = ["Method"] + [_column_head(name) for name in metrics]
    lines = [r"\begin{table}", r"  \centering"]
    if caption:
        lines.append(rf"  \caption{{{caption}}}")
    lines.append(rf"  \begin{{tabular}}{{l{'c' * len(metrics)}}}")
    lines.append(r"    \toprule")
    lines.append(_latex_line(header))
    lines.append(r"    \midrule")
    for cells in lines_of_cells:
        lines.append(_latex_line(cells))
    lines.append(r"    \bottomrule")
    lines.append(r"  \end{tabular}")
    lines.append(r"\end{table}")
    return "\n".join(lines)


def _latex_line(cells: Sequence[str]) -> str:
    """Return the cells of a row as a line of a tabular environment."""
    return f"    {' & '.join(cells)} \\\\"


def escape_latex(text: str) -> str:
    """Return text with LaTeX's special characters escaped and whitespace joined."""
    return "".join(_ESCAPES.get(character, character) for character in " ".join(text.split()))


def _column_head(metric: str) -> str:
    """Return the head of a metric's column, in LaTeX."""
    if metric.startswith("H-"):
        return rf"$\mathcal{{H}}$-{escape_latex(metric[2:])}"
    return escape_latex(_HEADS.get(metric, metric))


#: Key of the results in the metadata of a file of values per query.
_RESULTS_KEY = b"hgld.results"


def write_per_query(results: Sequence[RetrievalResult], path: Path, provenance: Provenance) -> None:
    """Write a Parquet file with a row per query of every result, atomically.

    :func:`read_per_query` reads it. Columns: ``part``, the name of the result, if there are several
    results; ``query``; the metrics, float64, from 0 to 1; ``positives_l1`` and so on, int64. Values
    that a result or a query lacks are null. The file's metadata hold the provenance, as in every
    table of hgld (see :mod:`hgld.tables`).

    Args:
        results: Results of one evaluation.
        path: Path of the file.
        provenance: Origin of the results.

    Raises:
        ConfigurationError: The suffix of the file is not ``.parquet``.
    """
    require_suffix(path, ".parquet")
    parts = []
    for result in results:
        part = pa.Table.from_pandas(result.per_query.reset_index(), preserve_index=False)
        part = part.replace_schema_metadata()
        part_names = pa.array([result.name] * len(part), pa.string())
        parts.append(part.add_column(0, "part", part_names))
    table = pa.concat_tables(parts, promote_options="default")
    columns = ["query", *metric_names(results)]
    if len(results) > 1:
        columns.insert(0, "part")
    for name in table.column_names:
        if name not in columns and name != "part":
            columns.append(name)
    table = table.select(columns)

    entries = []
    for result in results:
        entry = {
            "name": result.name,
            "columns": list(result.per_query.columns),
            "metrics": list(result.metrics),
            "counts": result.counts,
            "settings": result.settings,
        }
        entries.append(entry)
    metadata = dict(with_provenance(table.schema, "per_query/1", provenance).metadata)
    metadata[_RESULTS_KEY] = json.dumps(to_json_values(entries))
    require_own_table(path)
    with atomic_write(path) as draft:
        pq.write_table(table.replace_schema_metadata(metadata), draft, compression="zstd")


def read_per_query(path: Path) -> list[RetrievalResult]:
    """Read the results that :func:`write_per_query` wrote; settings are JSON values.

    Raises:
        InputError: The file does not exist, or is another table.
    """
    read_provenance(path)  # raises for files that hgld did not write
    table = pq.read_table(path)
    if _RESULTS_KEY not in table.schema.metadata:
        raise InputError(
            f"{path}: expected the results of queries, as hgld writes them; evaluate again"
        )
    results = []
    for entry in json.loads(table.schema.metadata[_RESULTS_KEY]):
        part = table
        if "part" in table.column_names:
            part = table.filter(pc.field("part") == entry["name"])
        columns = part.select(["query", *entry["columns"]]).replace_schema_metadata()
        result = RetrievalResult(
            name=entry["name"],
            per_query=columns.to_pandas().set_index("query"),
            metrics=tuple(entry["metrics"]),
            counts=entry["counts"],
            settings=entry["settings"],
        )
        results.append(result)
    return results

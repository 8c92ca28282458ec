"""Results of an evaluation: a value per query and metric, their means and confidence intervals, and their units.

Most metrics are shares from 0 to 1, shown in percent, and higher is better. Distances are levels of a tree,
shown as they are, and lower is better.
"""

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
from hgld.io.files import atomic_write, require_suffix
from hgld.tables import Provenance, read_provenance, with_provenance
from hgld.tables.parquet import require_own_table
from hgld.version import __version__

#: Metrics in levels, without their cutoff.
DISTANCES = ("mistake_severity", "avg_hdist", "min_hdist")


def is_distance(metric: str) -> bool:
    """Return whether a metric is a number of levels, of which fewer are better, and not a share.

    The name of a test set may come before that of the metric, as in comparisons on several sets.

    >>> is_distance("avg_hdist@5"), is_distance("small avg_hdist@5"), is_distance("H-AP")
    (True, True, False)
    """
    return metric.rpartition(" ")[2].partition("@")[0] in DISTANCES


def shown_value(metric: str, value: float) -> float:
    """Return a value in the unit of tables: levels for a distance, else percent.

    >>> shown_value("mistake_severity", 1.5), shown_value("H-AP", 0.5)
    (1.5, 50.0)
    """
    return value if is_distance(metric) else 100 * value


def goodness(metric: str, value: float) -> float:
    """Return a number that is higher for a better value of the metric; the least for NaN."""
    if math.isnan(value):
        return -math.inf
    return -value if is_distance(metric) else value


def with_unit(metric: str) -> str:
    """Return the name of a metric with its unit, for the axis of a figure.

    >>> with_unit("avg_hdist@5"), with_unit("H-AP")
    ('avg_hdist@5 in levels', 'H-AP in %')
    """
    return f"{metric} in {'levels' if is_distance(metric) else '%'}"


#: Prefix of the counts of queries without positives of a level.
WITHOUT_POSITIVES = "without_positives"


@dataclass(frozen=True, eq=False, repr=False)
class RetrievalResult:
    """Result of an evaluation.

    Args:
        name: Name of what was evaluated, such as a protocol and its part.
        per_query: Table with a row per query: float64 columns named like the metrics (NaN where a query has no
            positive for the metric), then ``positives_l1``, ..., the number of gallery items of that level or finer,
            and, where queries have labels, ``class``: the name or number of the query's finest class, the first of
            several. The index ``query`` holds the ids of the queries, or their positions.
        metrics: Names of the metrics, in the order of tables.
        counts: ``queries``, ``gallery`` (where it is known), and ``without_positives_l1``, ...: the number of queries
            that have no gallery item of that level or finer, which are excluded from means of that level. Of images
            that are excluded: ``images_without_labels``, or ``queries_`` and ``gallery_without_labels``.
        settings: Settings that the numbers depend on, by name: relevance, ties, precision of scores and so on.
    """

    name: str
    per_query: pd.DataFrame
    metrics: tuple[str, ...]
    counts: dict[str, int]
    settings: dict[str, Any]

    @property
    def means(self) -> dict[str, float]:
        """Mean of each metric over the queries that have it; NaN where none has."""
        return {name: float(self.per_query[name].mean()) for name in self.metrics}

    def intervals(
        self, confidence: float = 0.95, *, n_resamples: int = 1000, seed: int = 0
    ) -> dict[str, Interval]:
        """Return confidence intervals of the means, as these would vary with another sample of classes.

        Queries of the same class, in the column ``class``, are not independent of one another; without that column
        each query is a class of its own. See :mod:`hgld.compute.cluster_intervals`.

        Args:
            confidence: Probability with which an interval holds the true mean, between 0 and 1.
            n_resamples: Number of random patterns of signs.
            seed: Seed of these patterns.

        Returns:
            (low, high) by metric; NaN where the queries that have the metric are of too few classes (fewer than 6 for
            95 %), and infinite where a few classes hold most of them.

        Raises:
            ConfigurationError: The confidence is not between 0 and 1, or there are no resamples.
        """
        check_resampling(confidence, n_resamples)
        values = self.per_query[list(self.metrics)].to_numpy()
        if "class" in self.per_query:
            clusters = pd.factorize(self.per_query["class"], use_na_sentinel=False)[0].astype(
                np.int64
            )
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
        numbers = " | ".join(
            f"{name} {shown_value(name, mean):.2f}" for name, mean in self.means.items()
        )
        gallery = f" x {self.counts['gallery']:,}" if "gallery" in self.counts else ""
        return f"{self.name} | {numbers} | {self.counts['queries']:,} queries{gallery}"


def within_range(metric: str, low: float, high: float) -> Interval:
    """Return an interval of a mean without values that the metric cannot have; shares lie between 0 and 1.

    An interval that is unbounded or missing stays as it is.

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
    return f"[{low:+.2f}, {high:+.2f}]" if signed else f"[{low:.2f}, {high:.2f}]"


def warn_without_positives(name: str, per_query: pd.DataFrame, levels: Iterable[int]) -> None:
    """Warn of levels at which no query has a positive."""
    lacking = [
        str(level)
        for level in levels
        if len(per_query) and not per_query[f"positives_l{level}"].any()
    ]
    if lacking:
        warnings.warn(
            f"{name}: none of {len(per_query):,} queries has a positive in the gallery at level "
            f"{', '.join(lacking)}, so metrics of it are NaN",
            stacklevel=2,
        )


def count_queries(per_query: pd.DataFrame) -> dict[str, int]:
    """Count the queries, and those without positives of each level from the columns ``positives_l1``, ..."""
    columns = [column for column in per_query.columns if column.startswith("positives_l")]
    return {"queries": len(per_query)} | {
        f"without_{column}": int((per_query[column] == 0).sum()) for column in columns
    }


def metric_names(results: Iterable[RetrievalResult]) -> list[str]:
    """Return the metrics of all results, without repetition, in their order."""
    return list(dict.fromkeys(name for result in results for name in result.metrics))


def select_metrics(wanted: Sequence[str], available: Sequence[str]) -> list[str]:
    """Return those of the wanted metrics that are available.

    Raises:
        ConfigurationError: None of them is.
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
    """Format the cells of a column in the unit of its metric, the best and the second in formats of their own.

    Means are compared after rounding: several can be best, and then none is second; a single one is neither.

    Args:
        metric: Metric of the column: shares are shown in percent, distances in levels, of which fewer are better.
        means: Values; the cell of NaN is empty.
        best: Format of the best cells, with ``{}`` for the number.
        second: Format of the second-best cells.

    >>> mark_best("H-AP", [0.1234, 0.25, math.nan, 0.1], "**{}**", "_{}_")
    ['_12.3_', '**25.0**', '', '10.0']
    """
    shown = [round(shown_value(metric, mean), decimals) for mean in means]
    known = (value for value in shown if not math.isnan(value))
    order = sorted(known, key=lambda value: goodness(metric, value), reverse=True)
    formats = (
        {order[1]: second, order[0]: best} if len(order) > 1 else {}
    )  # the same value twice: both are best
    return [
        "" if math.isnan(value) else formats.get(value, "{}").format(f"{value:.{decimals}f}")
        for value in shown
    ]


#: What scores are, by distance.
_SCORES = {
    "cosine": "cosine similarity",
    "dot": "inner product, embeddings not normalised",
    "euclidean": "minus the Euclidean distance",
    "poincare": "minus the Poincaré distance",
}
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
        note if len(names) == len(results) else f"{', '.join(names)}: {note}"
        for note, names in names_by_note.items()
    ]


def _notes(result: RetrievalResult) -> list[str]:
    sentences = (_sentence(name, value, result.metrics) for name, value in result.settings.items())
    notes = [sentence for sentence in sentences if sentence is not None]
    if distances := [name for name in result.metrics if is_distance(name)]:
        notes.append(
            f"{', '.join(distances)}: in levels of the tree and not in %; lower is better."
        )
    for name, count in result.counts.items():
        if count and name not in {"queries", "gallery"} and not name.startswith(WITHOUT_POSITIVES):
            notes.append(f"{_capitalised(name)}: {count:,}.")
    return notes


def _sentence(setting: str, value: Any, metrics: Sequence[str]) -> str | None:
    """Return a setting as a sentence; None where no metric depends on it."""
    if setting in _OF_METRICS:
        beginning, sentence = _OF_METRICS[setting]
        return (
            sentence.format(value) if any(name.startswith(beginning) for name in metrics) else None
        )
    if setting == "ties":
        if value == "heaviside":
            return "Ties: heaviside; items with equal scores are all ranked before each other, as H(0) = 1 in Eq. 3."
        first = "lower" if value == "pessimistic" else "higher"
        return f"Ties: {value}; among items with equal scores, the {first} level ranks first."
    if setting == "distance":
        return f"Scores: {_SCORES[value]}."
    if isinstance(value, float):
        value = f"{value:.6g}"
    return f"{'Score precision' if setting == 'precision' else _capitalised(setting)}: {value}."


def _capitalised(name: str) -> str:
    words = name.replace("_", " ")
    return words[:1].upper() + words[1:]


def results_to_json(
    results: Sequence[RetrievalResult],
    *,
    intervals: Sequence[Mapping[str, Interval]] | None = None,
    mean: Mapping[str, float] | None = None,
) -> str:
    """Format results as JSON.

    ``{"hgld": version, "results": [...], "mean": over the results, by metric, or null}`` with, for each result,
    ``name``; ``means``, from 0 to 1, by metric; ``intervals``, [low, high] of 95 % by metric, or null where they are
    not given; ``counts``; ``settings``. NaN is null.

    Args:
        intervals: Confidence intervals of each result, from :meth:`RetrievalResult.intervals`.
        mean: Mean of each metric over the results, for protocols that report it.
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
    values = {"hgld": __version__, "results": entries, "mean": mean}
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
    results: Sequence[RetrievalResult], *, metrics: Sequence[str] | None = None
) -> str:
    """Format results as a table for the package booktabs.

    A row per result that has any of the columns, values in percent (distances in levels) with one decimal. With two
    rows or more the best of a column is bold and the second underlined, as far as the decimals shown tell them apart:
    several can be best, and then none is second.

    Args:
        metrics: Columns; by default those of :data:`TABLE_VII` that a result has.

    Raises:
        ConfigurationError: No result has any of the metrics.
    """
    columns = select_metrics(TABLE_VII if metrics is None else metrics, metric_names(results))
    rows = [
        LatexRow(escape_latex(result.name), result.means)
        for result in results
        if set(result.metrics).intersection(columns)
    ]
    return latex_table(rows, columns)


def latex_table(
    rows: Sequence[LatexRow], metrics: Sequence[str], *, caption: str | None = None
) -> str:
    """Format the table that :func:`results_to_latex` describes; deviations follow the means in a small font.

    Args:
        caption: LaTeX, put above the table.
    """
    cells = [[row.head for row in rows]]
    for name in metrics:
        values = [row.means.get(name, math.nan) for row in rows]
        means = mark_best(name, values, r"\textbf{{{}}}", r"\underline{{{}}}")
        deviations = (row.deviations.get(name, math.nan) for row in rows)
        cells.append(
            [
                mean
                if math.isnan(deviation)
                else rf"{mean} {{\scriptsize $\pm$ {shown_value(name, deviation):.1f}}}"
                for mean, deviation in zip(means, deviations, strict=True)
            ]
        )
    header, *body = (
        f"    {' & '.join(row)} \\\\"
        for row in [["Method", *map(_head, metrics)], *zip(*cells, strict=True)]
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

    Raises:
        ConfigurationError: The suffix of the file is not ``.parquet``.
    """
    require_suffix(path, ".parquet")
    parts = []
    for result in results:
        part = pa.Table.from_pandas(
            result.per_query.reset_index(), preserve_index=False
        ).replace_schema_metadata()
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
    require_own_table(path)
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
        raise InputError(
            f"{path}: expected the results of queries, as hgld writes them; evaluate again"
        )
    results = []
    for entry in json.loads(table.schema.metadata[_RESULTS_KEY]):
        part = (
            table.filter(pc.field("part") == entry["name"])
            if "part" in table.column_names
            else table
        )
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

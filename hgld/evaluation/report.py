"""Results as people and programs read them: a table in a terminal, JSON, LaTeX, a row per query.

All functions take several results: the parts of a protocol, such as Easy, Medium and Hard. Parts need not have the
same metrics; a cell stays empty then.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.results import Interval, RetrievalResult
from hgld.io.files import atomic_write
from hgld.tables import Provenance, read_provenance, with_provenance
from hgld.version import __version__

#: The 95 % intervals of each result, from :meth:`RetrievalResult.intervals`.
Intervals = Sequence[Mapping[str, Interval]]

#: The columns of the paper's Table VII; ``map100_labelled`` is what it calls mAP@100.
TABLE_VII = ("mAP@100", "map100_labelled", "H-AP", "ASI", "NDCG")
_WITHOUT = "without_positives"
_LEFT_OUT = (
    'Means leave out the queries without a positive of the metric\'s level; "no l1" counts those without any, as l1 '
    "is the coarsest level."
)
_RESULTS_KEY = b"hgld.results"
_LATEX_HEADS = {"map100_labelled": "mAP@100 (labelled)", "map100_official": "mAP@100 (official)"}
_LATEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


def summary(
    results: Sequence[RetrievalResult],
    *,
    intervals: Intervals | None = None,
    mean: Mapping[str, float] | None = None,
    width: int = 80,
) -> str:
    """What the command line prints: tables of means and of counts, and in words what the numbers depend on.

    Args:
        results: of the parts, one or more.
        intervals: shown below the means.
        mean: over the results, in a row of its own, for protocols that say so.
        width: of a line; metrics that do not fit go into a further table.
    """
    console = Console(file=StringIO(), width=width, color_system=None, highlight=False, emoji=False, markup=False)
    with console.capture() as text:
        means = partial(means_table, results, intervals=intervals, mean=mean)
        for table in _fitting(means, metrics_of(results), console):
            console.print(table, "")
        for table in _fitting(partial(counts_table, results), _counts_of(results), console):
            console.print(table, "")
        for note in (_LEFT_OUT, *notes(results)):
            console.print(note)
    return "\n".join(line.rstrip() for line in text.get().splitlines())


def means_table(
    results: Sequence[RetrievalResult],
    metrics: Sequence[str] | None = None,
    *,
    intervals: Intervals | None = None,
    mean: Mapping[str, float] | None = None,
) -> Table:
    """A row per result that has any of the metrics, a column per metric: means in percent and their intervals.

    Args:
        results: of the parts.
        metrics: the columns; all metrics unless given.
        intervals: of the means.
        mean: over the results, for the last row.
    """
    metrics = metrics_of(results) if metrics is None else metrics
    table = _table("mean in %", metrics)
    for row, result in enumerate(results):
        if not set(metrics).intersection(result.metrics):
            continue
        table.add_row(Text(result.name), *_cells(metrics, result.means))
        if intervals is not None:
            for end, words in enumerate(("  95 % from", "  to")):
                ends = {name: interval[end] for name, interval in intervals[row].items()}
                table.add_row(words, *_cells(metrics, ends))
    if mean is not None:
        table.add_row("mean", *_cells(metrics, mean))
    return table


def rows_table(rows: Mapping[str, Mapping[str, float]], *, width: int = 80) -> str:
    """Means in percent, a row for each name, in a table of at most this width; the metrics are those of the first."""
    metrics = list(next(iter(rows.values())))
    return text_table(
        "mean in %", metrics, {name: _cells(metrics, means) for name, means in rows.items()}, width=width
    )


def text_table(corner: str, heads: Sequence[str], rows: Mapping[str, Sequence[str]], *, width: int = 80) -> str:
    """Texts in a table for a terminal; columns that do not fit go into a further one.

    Args:
        corner: above the names of the rows.
        heads: of the columns.
        rows: the cells by the name of the row.
        width: of a line.
    """
    console = Console(file=StringIO(), width=width, color_system=None, highlight=False, emoji=False, markup=False)

    def table_of(chosen: Sequence[str]) -> Table:
        table = _table(corner, chosen)
        for name, cells in rows.items():
            cell_of = dict(zip(heads, cells, strict=True))
            table.add_row(Text(name), *(cell_of[head] for head in chosen))
        return table

    with console.capture() as text:
        for table in _fitting(table_of, heads, console):
            console.print(table, "")
    return "\n".join(line.rstrip() for line in text.get().splitlines())


def counts_table(results: Sequence[RetrievalResult], counts: Sequence[str] | None = None) -> Table:
    """A row per result: queries, gallery, and by level the queries without a positive of that level or finer.

    Args:
        results: of the parts.
        counts: the columns, such as ``queries`` and ``without_positives_l1``; these unless given.
    """
    counts = _counts_of(results) if counts is None else counts
    table = _table("count", [name.replace(f"{_WITHOUT}_", "no ") for name in counts])
    for result in results:
        found = (result.counts.get(name) for name in counts)
        table.add_row(Text(result.name), *("" if count is None else f"{count:,}" for count in found))
    return table


def notes(results: Sequence[RetrievalResult]) -> list[str]:
    """What the numbers depend on, in words; what is not so for all results begins with their names."""
    whose: dict[str, list[str]] = {}
    for result in results:
        for note in _notes(result):
            whose.setdefault(note, []).append(result.name)
    return [note if len(names) == len(results) else f"{', '.join(names)}: {note}" for note, names in whose.items()]


def to_json(
    results: Sequence[RetrievalResult],
    *,
    intervals: Intervals | None = None,
    mean: Mapping[str, float] | None = None,
) -> str:
    """Everything but the values of single queries.

    ``{"hgld": version, "results": [...], "mean": over the results, by metric, or null}`` with, for each result,
    ``name``; ``means``, from 0 to 1, by metric; ``intervals``, [low, high] by metric, of 95 %, or null where they are
    not given; ``counts``; ``settings``. NaN is null.
    """
    said = [
        {
            "name": result.name,
            "means": result.means,
            "intervals": intervals[row] if intervals is not None else None,
            "counts": result.counts,
            "settings": result.settings,
        }
        for row, result in enumerate(results)
    ]
    plain = _plain({"hgld": __version__, "results": said, "mean": mean})
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)


def to_latex(
    results: Sequence[RetrievalResult], *, metrics: Sequence[str] | None = None, caption: str | None = None
) -> str:
    """A table in the layout of the paper's Table VII, for the package booktabs.

    A row per result that has any of the columns, values in percent with one decimal. With two rows or more the best
    of a column is bold and the second underlined, as far as the decimals shown tell them apart: several can be best,
    and then none is second.

    Args:
        results: of the methods.
        metrics: the columns; unless given those of :data:`TABLE_VII` that a result has.
        caption: LaTeX, put above the table.

    Raises:
        ConfigurationError: no result has any of the metrics.
    """
    columns = columns_there(TABLE_VII if metrics is None else metrics, metrics_of(results))
    rows = [
        LatexRow(latex_text(result.name), result.means)
        for result in results
        if set(result.metrics).intersection(columns)
    ]
    return latex_table(rows, columns, caption=caption)


def columns_there(wanted: Sequence[str], there: Sequence[str]) -> list[str]:
    """Those of the wanted metrics that there are.

    Raises:
        ConfigurationError: there are none of them.
    """
    columns = [name for name in wanted if name in there]
    if not columns:
        raise ConfigurationError(f"no result has {', '.join(wanted)}; the metrics are {', '.join(there)}")
    return columns


@dataclass(frozen=True)
class LatexRow:
    """A row of a table.

    Args:
        head: its name in LaTeX.
        means: by metric, from 0 to 1.
        spreads: how much the runs differ that the means are of, likewise; NaN or nothing where there is one.
    """

    head: str
    means: Mapping[str, float]
    spreads: Mapping[str, float] = field(default_factory=dict)


def latex_table(rows: Sequence[LatexRow], metrics: Sequence[str], *, caption: str | None = None) -> str:
    """The table that :func:`to_latex` describes, of these rows and columns; spreads stand small behind the means."""
    cells = [[row.head for row in rows]]
    for name in metrics:
        texts = marked([row.means.get(name, math.nan) for row in rows], r"\textbf{{{}}}", r"\underline{{{}}}")
        spreads = (row.spreads.get(name, math.nan) for row in rows)
        cells.append(
            [
                text if math.isnan(spread) else rf"{text} {{\scriptsize $\pm$ {100 * spread:.1f}}}"
                for text, spread in zip(texts, spreads, strict=True)
            ]
        )
    head, *body = (
        f"    {' & '.join(row)} \\\\" for row in [["Method", *map(_latex_head, metrics)], *zip(*cells, strict=True)]
    )
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            *([rf"  \caption{{{caption}}}"] if caption else []),
            rf"  \begin{{tabular}}{{l{'c' * len(metrics)}}}",
            r"    \toprule",
            head,
            r"    \midrule",
            *body,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
        ]
    )


def marked(means: Sequence[float], best: str, second: str, *, decimals: int = 1) -> list[str]:
    """The cells of a column in percent, the best and the second in formats of their own; empty where there is none.

    As far as the decimals shown tell them apart: several can be best, and then none is second; a single one is
    neither.

    >>> marked([0.1234, 0.25, math.nan, 0.1], "**{}**", "_{}_")
    ['_12.3_', '**25.0**', '', '10.0']
    """
    percents = [round(100 * mean, decimals) for mean in means]
    order = sorted((value for value in percents if not math.isnan(value)), reverse=True)
    marks = {order[1]: second, order[0]: best} if len(order) > 1 else {}  # the same value twice: both are best
    return ["" if math.isnan(value) else marks.get(value, "{}").format(f"{value:.{decimals}f}") for value in percents]


def latex_text(text: str) -> str:
    """Text with the characters escaped that mean something to LaTeX."""
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


def write_per_query(results: Sequence[RetrievalResult], path: Path, provenance: Provenance) -> None:
    """Write a Parquet file with a row per query of every result, atomically; :func:`read_per_query` reads it.

    Columns: ``part``, the name of the result, where there are several; ``query``; the metrics, float64, from 0 to 1;
    ``positives_l1`` and so on, int64. What a result or a query does not have is null. The file's metadata hold what
    made it, as those of every table do (see :mod:`hgld.tables`).

    Args:
        results: of the parts.
        path: the file to write or replace.
        provenance: what made them.
    """
    parts = []
    for result in results:
        table = pa.Table.from_pandas(result.per_query.reset_index(), preserve_index=False).replace_schema_metadata()
        parts.append(table.add_column(0, "part", pa.array([result.name] * len(table), pa.string())))
    table = pa.concat_tables(parts, promote_options="default")
    metrics = metrics_of(results)
    others = [name for name in table.column_names if name not in {"part", "query", *metrics}]
    table = table.select([*(["part"] if len(results) > 1 else []), "query", *metrics, *others])
    said = [
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
        _RESULTS_KEY: json.dumps(_plain(said))
    }
    with atomic_write(path) as draft:
        pq.write_table(table.replace_schema_metadata(metadata), draft, compression="zstd")


def read_per_query(path: Path) -> list[RetrievalResult]:
    """The results that :func:`write_per_query` wrote; settings are values of JSON.

    Raises:
        InputError: there is no such file, or it is another.
    """
    read_provenance(path)  # or tell that it is not hgld's
    table = pq.read_table(path)
    if _RESULTS_KEY not in table.schema.metadata:
        raise InputError(f"{path}: expected the results of queries, as hgld writes them; evaluate again")
    results = []
    for said in json.loads(table.schema.metadata[_RESULTS_KEY]):
        part = table.filter(pc.field("part") == said["name"]) if "part" in table.column_names else table
        per_query = part.select(["query", *said["columns"]]).replace_schema_metadata().to_pandas().set_index("query")
        results.append(
            RetrievalResult(said["name"], per_query, tuple(said["metrics"]), said["counts"], said["settings"])
        )
    return results


def metrics_of(results: Sequence[RetrievalResult]) -> list[str]:
    """The metrics of all results, each once, in their order."""
    return list(dict.fromkeys(name for result in results for name in result.metrics))


def _counts_of(results: Sequence[RetrievalResult]) -> list[str]:
    """The counts that have a column."""
    n_levels = max(map(_n_levels, results))
    return ["queries", "gallery", *(f"{_WITHOUT}_l{level}" for level in range(n_levels, 0, -1))]


def _n_levels(result: RetrievalResult) -> int:
    return sum(name.startswith(_WITHOUT) for name in result.counts)


def _fitting(table_of: Callable[[Sequence[str]], Table], columns: Sequence[str], console: Console) -> Iterator[Table]:
    """As few tables as hold all columns in the console's width."""
    unlimited = console.options.update(width=10_000)
    while columns:
        n_shown = len(columns)
        while (
            n_shown > 1 and Measurement.get(console, unlimited, table_of(columns[:n_shown])).maximum > console.width
        ):
            n_shown -= 1
        yield table_of(columns[:n_shown])
        columns = columns[n_shown:]


def _table(corner: str, heads: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(corner, overflow="fold")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _cells(metrics: Sequence[str], values: Mapping[str, float]) -> list[str]:
    """Values in percent; nothing where there is no such metric, a dash where no query has it."""
    shown = {name: "–" if math.isnan(value) else f"{100 * value:.2f}" for name, value in values.items()}
    return [shown.get(name, "") for name in metrics]


def _notes(result: RetrievalResult) -> list[str]:
    said = list(filter(None, (_wording(*setting, result.metrics) for setting in result.settings.items())))
    for name, count in result.counts.items():
        if count and name not in {"queries", "gallery"} and not name.startswith(_WITHOUT):
            said.append(f"{name.replace('_', ' ').capitalize()}: {count:,}.")
    return said


def _wording(setting: str, value: Any, metrics: Sequence[str]) -> str | None:
    """A setting as a sentence; None where no metric depends on it."""
    weighted = any(name.startswith("H-") for name in metrics)
    match setting:
        case "relevance":
            return f"H-AP: relevance {value}." if weighted else None
        case "query_counted":
            return f"Query counted in |Omega^(L)|: {value}." if weighted else None
        case "gain":
            return f"NDCG: gain {value}." if any(name.startswith("NDCG") for name in metrics) else None
        case "ties":
            first = "lower" if value == "pessimistic" else "higher"
            return f"Ties: {value}, of equal scores the item of {first} level stands first."
        case "precision":
            return f"Precision of scores: {value}."
        case "normalize":
            return f"Scores: {'cosine similarity' if value else 'inner product, embeddings not normalised'}."
    return f"{setting.replace('_', ' ').capitalize()}: {value}."


def _plain(value: Any) -> Any:
    """What JSON can hold: NaN as null, numbers of NumPy's as numbers, anything unknown as text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _latex_head(metric: str) -> str:
    if metric.startswith("H-"):
        return rf"$\mathcal{{H}}$-{latex_text(metric[2:])}"
    return latex_text(_LATEX_HEADS.get(metric, metric))

"""Results as LaTeX, in the layout of the paper's Table VII."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hgld.evaluation.metric_units import shown_value
from hgld.evaluation.result_columns import mark_best, metric_names, select_metrics
from hgld.evaluation.results import RetrievalResult

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

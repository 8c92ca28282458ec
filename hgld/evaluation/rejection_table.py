"""Figures of rejected queries as LaTeX: a row for each result and set of unknown images."""

from __future__ import annotations

from collections.abc import Sequence

from hgld.evaluation.latex_table import LatexRow, escape_latex, latex_table
from hgld.evaluation.rejection_report import RejectionReport

_COLUMNS = {
    "auroc": "AUROC",
    "fpr95_known": "FPR95 (known)",
    "fpr95_unknown": "FPR95 (unknown)",
    "aupr_known": "AUPR (known)",
    "aupr_unknown": "AUPR (unknown)",
}


def rejection_to_latex(reports: Sequence[RejectionReport]) -> str:
    """Format figures of rejected queries as a table for the package booktabs, in percent with one decimal.

    The rows of a result are that of its own queries, with GAP and the area under risk over coverage (AURC), and those
    of its sets of unknown images. None is marked as the best, as rows are about different images.

    Args:
        reports: Figures of each result.
    """
    rows = []
    for report in reports:
        rows.append(_row(report.name, {"GAP": report.levels[0].gap, "AURC": report.levels[0].area}))
        for name, figures in report.unknown.items():
            detection = {title: figures.detection[key] for key, title in _COLUMNS.items()}
            first = figures.levels[0]
            rows.append(_row(f"{report.name}, {name}", {"GAP": first.gap, "AURC": first.area, **detection}))
    has_sets = any(report.unknown for report in reports)
    return latex_table(rows, ["GAP", "AURC", *(_COLUMNS.values() if has_sets else ())], mark=False)


def _row(name: str, means: dict[str, float]) -> LatexRow:
    return LatexRow(escape_latex(name), means)

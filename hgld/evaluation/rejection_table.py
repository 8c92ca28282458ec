"""Figures of rejected queries as LaTeX: a row for each result and set of unknown images."""

from __future__ import annotations

from collections.abc import Sequence

from hgld.evaluation.latex_table import LatexRow, escape_latex, latex_table
from hgld.evaluation.rejection_report import RejectionReport
from hgld.rejection.detection_metrics import DETECTION_METRICS

#: Metrics of detection that tables show, by name, with their titles; reports as JSON have all.
SHOWN_METRICS = {
    name: DETECTION_METRICS[name] for name in ("auroc", "fpr95_known", "fpr95_unknown", "aupr_known", "aupr_unknown")
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
        rows.append(_row(report.name, {"GAP": report.levels[0].gap, "AURC": report.levels[0].aurc}))
        for name, figures in report.unknown.items():
            detection = {title: figures.detection[key] for key, title in SHOWN_METRICS.items()}
            first = figures.levels[0]
            rows.append(_row(f"{report.name}, {name}", {"GAP": first.gap, "AURC": first.aurc, **detection}))
    has_sets = any(report.unknown for report in reports)
    return latex_table(rows, ["GAP", "AURC", *(SHOWN_METRICS.values() if has_sets else ())], mark=False)


def _row(name: str, means: dict[str, float]) -> LatexRow:
    return LatexRow(escape_latex(name), means)

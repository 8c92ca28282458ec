"""Results as LaTeX."""

from __future__ import annotations

import math
import re

import pytest

from hgld.errors import ConfigurationError
from hgld.evaluation.reports import LatexRow, latex_table, results_to_latex
from hgld.evaluation.results import RetrievalResult
from tests.evaluation.sample_results import result


def rows_of(latex: str) -> list[list[str]]:
    """The cells between the rules."""
    body = latex[latex.index(r"\midrule") + len(r"\midrule") : latex.index(r"\bottomrule")]
    return [[cell.strip() for cell in row.split(" & ")] for row in body.strip().removesuffix(r"\\").split(r"\\")]


#: The paper's Table VII.
TABLE_VII = {
    "SoftBin": (39.0, 35.2, 74.6, 94.4),
    "Smooth-AP": (42.5, 37.3, 76.9, 94.7),
    "R@k": (41.6, 36.8, 77.1, 94.7),
    "ROADMAP": (42.9, 37.0, 75.0, 94.4),
    "CSL": (37.5, 36.2, 85.4, 95.7),
    "HAPPIER": (41.6, 38.8, 83.8, 95.7),
    "HAPPIER_F": (43.7, 38.3, 77.5, 94.8),
}


def table_vii() -> list[RetrievalResult]:
    names = ("map100_labelled", "H-AP", "ASI", "NDCG")
    # In another order, with a further metric, and with decimals that are not shown.
    return [
        result(
            method,
            {"R@1": 0.5} | dict(reversed([(name, (v + 0.01) / 100) for name, v in zip(names, row, strict=True)])),
        )
        for method, row in TABLE_VII.items()
    ]


def test_latex_has_the_layout_of_table_vii() -> None:
    latex = results_to_latex(table_vii(), caption=r"Retrieval on $\mathcal{H}$-GLDv2")
    assert latex.splitlines()[:7] == [
        r"\begin{table}",
        r"  \centering",
        r"  \caption{Retrieval on $\mathcal{H}$-GLDv2}",
        r"  \begin{tabular}{lcccc}",
        r"    \toprule",
        r"    Method & mAP@100 (labelled) & $\mathcal{H}$-AP & ASI & NDCG \\",
        r"    \midrule",
    ]
    assert latex.splitlines()[-3:] == [r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]
    rows = rows_of(latex)
    assert [row[0] for row in rows] == [*list(TABLE_VII)[:-1], r"HAPPIER\_F"]
    bare = [[re.sub(r"\\(textbf|underline)\{(.*)\}", r"\2", cell) for cell in row[1:]] for row in rows]
    assert bare == [[f"{value:.1f}" for value in row] for row in TABLE_VII.values()]


def test_latex_marks_best_and_second_best() -> None:
    columns = list(zip(*rows_of(results_to_latex(table_vii())), strict=True))
    bold = [[row for row, cell in enumerate(column) if cell.startswith(r"\textbf{")] for column in columns]
    second = [[row for row, cell in enumerate(column) if cell.startswith(r"\underline{")] for column in columns]
    assert bold == [[], [6], [5], [4], [4, 5]]  # 95.7 twice: both are best, and none is second
    assert second == [[], [3], [6], [5], []]


def test_latex_of_one_result_marks_nothing() -> None:
    assert rows_of(results_to_latex([result(means={"ASI": 0.5, "H-AP": math.nan})])) == [["all", "", "50.0"]]


def test_latex_has_the_metrics_asked_for() -> None:
    parts = [result("easy", {"mAP": 0.5, "H-R@10": 0.25}), result("hard", {"mAP": 0.75}), result("x", {"ASI": 0.1})]
    latex = results_to_latex(parts, metrics=["H-R@10", "mAP", "no such"])
    assert r"Method & $\mathcal{H}$-R@10 & mAP \\" in latex
    assert rows_of(latex) == [["easy", "25.0", r"\underline{50.0}"], ["hard", "", r"\textbf{75.0}"]]
    with pytest.raises(ConfigurationError, match=r"no result has mAP@100, .*; the metrics are mAP, H-R@10"):
        results_to_latex(parts[:2])


def test_latex_shows_deviations_of_several_runs() -> None:
    rows = [
        LatexRow("A", {"ASI": 0.5, "H-AP": 0.25}, {"ASI": 0.0123, "H-AP": math.nan}),
        LatexRow(r"$B$", {"ASI": 0.75}),
    ]
    assert rows_of(latex_table(rows, ["ASI", "H-AP"])) == [
        ["A", r"\underline{50.0} {\scriptsize $\pm$ 1.2}", "25.0"],
        ["$B$", r"\textbf{75.0}", ""],
    ]


def test_latex_escapes_names() -> None:
    ((name, _),) = rows_of(results_to_latex([result("50 % of R&D_#1 {a\\b}~^$\n2")]))
    assert name == r"50 \% of R\&D\_\#1 \{a\textbackslash{}b\}\textasciitilde{}\textasciicircum{}\$ 2"

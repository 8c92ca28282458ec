"""Results as they are shown and kept."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hgld import tables
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation import evaluate_retrieval
from hgld.evaluation.report import (
    LatexRow,
    latex_table,
    means_table,
    notes,
    read_per_query,
    rows_table,
    summary,
    to_json,
    to_latex,
    write_per_query,
)
from hgld.evaluation.results import RetrievalResult

PROVENANCE = tables.Provenance("evaluate", {"protocol": "leave-one-out"}, {"embeddings": "0" * 64})
SETTINGS = {
    "relevance": "(l/L)^1 / |Omega^(l)|",
    "gain": "2^l - 1",
    "ties": "pessimistic",
    "precision": "float32",
    "normalize": True,
    "query_counted": "H-AP_selfcount only",
}


def result(
    name: str = "all",
    means: Mapping[str, float] | None = None,
    counts: Mapping[str, int] | None = None,
    settings: Mapping[str, Any] | None = None,
    n_levels: int = 3,
) -> RetrievalResult:
    """Two queries, both with these values."""
    means = means or {"H-AP": 0.5}
    positives = {f"positives_l{level}": 2 for level in range(1, n_levels + 1)}
    without = {f"without_{column}": 0 for column in positives}
    return RetrievalResult(
        name=name,
        per_query=pd.DataFrame(dict(means) | positives, index=pd.Index(["a", "b"], name="query")),
        metrics=tuple(means),
        counts={"queries": 2, "gallery": 1234567} | without | dict(counts or {}),
        settings=SETTINGS | dict(settings or {}),
    )


@pytest.fixture(scope="module")
def evaluated() -> RetrievalResult:
    rng = np.random.default_rng(0)
    rows = np.arange(240)
    return evaluate_retrieval(rng.normal(size=(240, 8)), np.stack([rows // 3, rows // 24, rows // 120], axis=1))


# In a terminal


def test_what_the_papers_report_fits_into_80_columns(evaluated: RetrievalResult) -> None:
    lines = summary([evaluated], intervals=[evaluated.intervals()]).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[3:] == list(evaluated.metrics)  # after "mean in %"
    assert lines[2].split()[1:] == [f"{100 * mean:.2f}" for mean in evaluated.means.values()]
    low, high = zip(*evaluated.intervals().values(), strict=True)
    assert lines[3].split()[3:] == [f"{100 * end:.2f}" for end in low]  # after "95 % from"
    assert lines[4].split()[1:] == [f"{100 * end:.2f}" for end in high]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_metrics_that_do_not_fit_go_into_a_further_table(evaluated: RetrievalResult, width: int) -> None:
    lines = summary([evaluated], width=width).splitlines()
    heads = [line for line in lines if line.startswith("mean in %")]
    assert [name for head in heads for name in head.split()[3:]] == list(evaluated.metrics)
    assert len(heads) == {40: 3, 60: 2, 80: 1}[width]
    assert "…" not in "".join(lines)
    assert max(map(len, lines)) <= width


def test_a_metric_that_a_part_lacks_is_an_empty_cell_and_one_without_queries_a_dash() -> None:
    parts = [result("labelled", {"H-AP": 0.25, "ASI": math.nan}), result("official", {"ASI": 0.75}, n_levels=1)]
    lines = summary(parts).splitlines()
    assert [line.split() for line in lines[2:4]] == [["labelled", "25.00", "–"], ["official", "75.00"]]
    assert lines[3].endswith(" 75.00")
    assert lines[0].endswith("H-AP    ASI")
    counted = lines.index("", 4) + 1
    assert lines[counted].split()[1:] == ["queries", "gallery", "no", "l3", "no", "l2", "no", "l1"]
    assert lines[counted + 3].split() == ["official", "2", "1,234,567", "0"]
    assert lines[counted + 3].index(" 0") == lines[counted].index(" l1") + 1  # below level 1


def test_queries_left_out_are_counted_by_level() -> None:
    text = summary([result(counts={"without_positives_l3": 12, "without_positives_l2": 3})])
    (line,) = re.findall("^all .*1,234,567.*$", text, re.MULTILINE)
    assert line.split() == ["all", "2", "1,234,567", "12", "3", "0"]
    assert text.index("Means leave out the queries without a positive") > text.index(line)


def test_names_are_text_and_not_markup() -> None:
    assert "[bold]x[/] :smile: [/]" in summary([result("[bold]x[/] :smile: [/]")])


def test_there_are_no_colours(monkeypatch: pytest.MonkeyPatch, evaluated: RetrievalResult) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in summary([evaluated])


def test_a_table_has_a_row_per_result_that_has_something_to_say() -> None:
    parts = [result("easy", {"mAP": 0.5}), result("hard", {"ASI": 0.5})]
    assert means_table(parts).row_count == 2
    assert means_table(parts, ["ASI"]).row_count == 1
    assert means_table(parts, ["ASI"], intervals=[part.intervals() for part in parts]).row_count == 3


# What the numbers depend on


def test_all_that_numbers_depend_on_is_said() -> None:
    said = notes([result(means={"H-AP": 0.5, "NDCG": 0.5}, settings={"ties": "optimistic", "seen_from": "above"})])
    assert said == [
        "H-AP: relevance (l/L)^1 / |Omega^(l)|.",
        "NDCG: gain 2^l - 1.",
        "Ties: optimistic, of equal scores the item of higher level stands first.",
        "Precision of scores: float32.",
        "Scores: cosine similarity.",
        "Query counted in |Omega^(L)|: H-AP_selfcount only.",
        "Seen from: above.",
    ]


def test_what_no_metric_depends_on_is_not_said() -> None:
    said = " ".join(notes([result(means={"mAP@100": 0.5})]))
    assert "relevance" not in said
    assert "gain" not in said
    assert "Omega" not in said
    assert "Ties" in said


def test_what_is_so_for_some_parts_only_names_them() -> None:
    parts = [result("a"), result("b"), result("c", settings={"normalize": False}, counts={"ignored_queries": 1129})]
    said = notes(parts)
    assert "a, b: Scores: cosine similarity." in said
    assert "c: Scores: inner product, embeddings not normalised." in said
    assert "c: Ignored queries: 1,129." in said
    assert "Precision of scores: float32." in said


# JSON


def test_json_says_all_but_the_queries(evaluated: RetrievalResult) -> None:
    said = json.loads(to_json([evaluated], intervals=[evaluated.intervals()]))
    (part,) = said["results"]
    assert part["name"] == "leave-one-out"
    assert part["means"] == evaluated.means
    assert {name: tuple(ends) for name, ends in part["intervals"].items()} == evaluated.intervals()
    assert part["counts"] == evaluated.counts
    assert part["settings"] == evaluated.settings


def test_json_has_null_where_there_is_no_number() -> None:
    settings = {"alpha": np.float32(0.5), "k": np.int64(3), "path": Path("a/b"), "nothing": None, "of": (math.inf, 1)}
    (part,) = json.loads(to_json([result(means={"ASI": math.nan}, settings=settings)]))["results"]
    assert part["means"] == {"ASI": None}
    assert part["intervals"] is None
    assert {name: part["settings"][name] for name in settings} == {
        "alpha": 0.5, "k": 3, "path": "a/b", "nothing": None, "of": [None, 1],
    }  # fmt: skip


# LaTeX


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


def test_latex_is_laid_out_as_the_papers_table() -> None:
    latex = to_latex(table_vii(), caption=r"Retrieval on $\mathcal{H}$-GLDv2")
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


def test_latex_marks_the_best_and_the_second() -> None:
    columns = list(zip(*rows_of(to_latex(table_vii())), strict=True))
    bold = [[row for row, cell in enumerate(column) if cell.startswith(r"\textbf{")] for column in columns]
    second = [[row for row, cell in enumerate(column) if cell.startswith(r"\underline{")] for column in columns]
    assert bold == [[], [6], [5], [4], [4, 5]]  # 95.7 twice: both are best, and none is second
    assert second == [[], [3], [6], [5], []]


def test_latex_of_one_result_marks_nothing() -> None:
    assert rows_of(to_latex([result(means={"ASI": 0.5, "H-AP": math.nan})])) == [["all", "", "50.0"]]


def test_latex_has_other_metrics_only_when_asked() -> None:
    parts = [result("easy", {"mAP": 0.5, "H-R@10": 0.25}), result("hard", {"mAP": 0.75}), result("x", {"ASI": 0.1})]
    latex = to_latex(parts, metrics=["H-R@10", "mAP", "no such"])
    assert r"Method & $\mathcal{H}$-R@10 & mAP \\" in latex
    assert rows_of(latex) == [["easy", "25.0", r"\underline{50.0}"], ["hard", "", r"\textbf{75.0}"]]
    with pytest.raises(ConfigurationError, match=r"no result has mAP@100, .*; the metrics are mAP, H-R@10"):
        to_latex(parts[:2])


def test_latex_of_several_runs_says_how_much_they_differ() -> None:
    rows = [
        LatexRow("A", {"ASI": 0.5, "H-AP": 0.25}, {"ASI": 0.0123, "H-AP": math.nan}),
        LatexRow(r"$B$", {"ASI": 0.75}),
    ]
    assert rows_of(latex_table(rows, ["ASI", "H-AP"])) == [
        ["A", r"\underline{50.0} {\scriptsize $\pm$ 1.2}", "25.0"],
        ["$B$", r"\textbf{75.0}", ""],
    ]


def test_latex_escapes_names() -> None:
    ((name, _),) = rows_of(to_latex([result("50 % of R&D_#1 {a\\b}~^$\n2")]))
    assert name == r"50 \% of R\&D\_\#1 \{a\textbackslash{}b\}\textasciitilde{}\textasciicircum{}\$ 2"


# A row per query


def test_queries_are_kept_for_pandas(tmp_path: Path, evaluated: RetrievalResult) -> None:
    write_per_query([evaluated], tmp_path / "per_query.parquet", PROVENANCE)
    found = pd.read_parquet(tmp_path / "per_query.parquet")
    pd.testing.assert_frame_equal(found.set_index("query"), evaluated.per_query)
    assert tables.read_provenance(tmp_path / "per_query.parquet") == PROVENANCE
    assert tables.is_up_to_date(tmp_path / "per_query.parquet", PROVENANCE)
    assert [path.name for path in tmp_path.iterdir()] == ["per_query.parquet"]


def test_parts_with_other_metrics_and_levels_share_a_file(tmp_path: Path) -> None:
    parts = [
        result("labelled", {"map100_labelled": 0.5, "H-AP": math.nan}),
        result("official", {"map100_official": 0.25}, n_levels=1),
    ]
    write_per_query(parts, tmp_path / "per_query.parquet", PROVENANCE)
    found = pd.read_parquet(tmp_path / "per_query.parquet", dtype_backend="pyarrow")
    assert list(found.columns) == [
        "part", "query", "map100_labelled", "H-AP", "map100_official", "positives_l1", "positives_l2", "positives_l3",
    ]  # fmt: skip
    assert found["part"].tolist() == ["labelled"] * 2 + ["official"] * 2
    assert found["query"].tolist() == ["a", "b"] * 2
    assert found["H-AP"].isna().all()
    assert found["map100_labelled"].isna().tolist() == [False, False, True, True]
    assert found["positives_l3"].fillna(-1).tolist() == [2, 2, -1, -1]
    assert str(found["positives_l3"].dtype) == "int64[pyarrow]"


def test_what_was_written_is_read_again(tmp_path: Path, evaluated: RetrievalResult) -> None:
    ids = pd.Index([f"image {row}" for row in range(240)], name="query")
    named = evaluated.per_query.set_axis(ids).assign(**{"class": [f"landmark {row // 3}" for row in range(240)]})
    parts = [
        replace(evaluated, per_query=named),
        result("official", {"map100_official": 0.25, "H-AP": math.nan}, n_levels=1),
    ]
    for written in (parts, parts[:1], parts[1:]):
        write_per_query(written, tmp_path / "per_query.parquet", PROVENANCE)
        found = read_per_query(tmp_path / "per_query.parquet")
        assert len(found) == len(written)
        for one, other in zip(found, written, strict=True):
            pd.testing.assert_frame_equal(one.per_query, other.per_query)
            assert (one.name, one.metrics) == (other.name, other.metrics)
            assert (one.counts, one.settings) == (other.counts, other.settings)


def test_other_tables_are_no_results_of_queries(tmp_path: Path) -> None:
    tables.write_table(tmp_path / "images.parquet", tables.IMAGES, tables.IMAGES.schema.empty_table(), PROVENANCE)
    with pytest.raises(InputError, match=r"images.parquet: expected the results of queries"):
        read_per_query(tmp_path / "images.parquet")


def test_rows_have_the_metrics_of_the_first_and_fit_the_width() -> None:
    rows = {"epoch 0": {"H-AP": 0.5, "R@1": 0.25}, "epoch 4": {"H-AP": 0.612, "R@1": math.nan}}
    text = rows_table(rows)
    assert [line.split() for line in text.splitlines()[2:4]] == [
        ["epoch", "0", "50.00", "25.00"],
        ["epoch", "4", "61.20", "–"],
    ]
    assert len(rows_table(rows, width=20).split("mean in %")) == 3  # a table for each metric

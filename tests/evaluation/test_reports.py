"""Notes on settings, JSON, LaTeX and the Parquet file of queries."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hgld import tables
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.results import (
    LatexRow,
    RetrievalResult,
    latex_table,
    read_per_query,
    results_to_json,
    results_to_latex,
    setting_notes,
    write_per_query,
)
from tests.evaluation.sample_results import result


def test_every_relevant_setting_has_a_sentence() -> None:
    notes = setting_notes(
        [result(means={"H-AP": 0.5, "NDCG": 0.5}, settings={"ties": "optimistic", "seen_from": "above"})]
    )
    assert notes == [
        "H-AP: relevance (l/L)^1 / |Omega^(l)|.",
        "NDCG: gain 2^l - 1.",
        "Ties: optimistic; among items with equal scores, the higher level ranks first.",
        "Score precision: float32.",
        "Scores: cosine similarity.",
        "Query counted in |Omega^(L)|: H-AP_selfcount only.",
        "Seen from: above.",
    ]


def test_settings_without_effect_on_the_metrics_are_omitted() -> None:
    notes = " ".join(setting_notes([result(means={"mAP@100": 0.5})]))
    assert "relevance" not in notes
    assert "gain" not in notes
    assert "Omega" not in notes
    assert "Ties" in notes


def test_sentences_true_of_some_results_name_them() -> None:
    parts = [result("a"), result("b"), result("c", settings={"distance": "dot"}, counts={"ignored_queries": 1129})]
    notes = setting_notes(parts)
    assert "a, b: Scores: cosine similarity." in notes
    assert "c: Scores: inner product, embeddings not normalised." in notes
    assert "c: Ignored queries: 1,129." in notes
    assert "Score precision: float32." in notes


def test_json_has_means_intervals_counts_and_settings(evaluated: RetrievalResult) -> None:
    report = json.loads(results_to_json([evaluated], intervals=[evaluated.intervals()]))
    (part,) = report["results"]
    assert part["name"] == "leave-one-out"
    assert part["means"] == evaluated.means
    assert {name: tuple(ends) for name, ends in part["intervals"].items()} == evaluated.intervals()
    assert part["counts"] == evaluated.counts
    assert part["settings"] == evaluated.settings


def test_nan_is_null_in_json() -> None:
    settings = {"alpha": np.float32(0.5), "k": np.int64(3), "path": Path("a/b"), "nothing": None, "of": (math.inf, 1)}
    (part,) = json.loads(results_to_json([result(means={"ASI": math.nan}, settings=settings)]))["results"]
    assert part["means"] == {"ASI": None}
    assert part["intervals"] is None
    assert {name: part["settings"][name] for name in settings} == {
        "alpha": 0.5, "k": 3, "path": "a/b", "nothing": None, "of": [None, 1],
    }  # fmt: skip


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


PROVENANCE = tables.Provenance("evaluate", {"protocol": "leave-one-out"}, {"embeddings": "0" * 64})


def test_per_query_table_is_read_by_pandas(tmp_path: Path, evaluated: RetrievalResult) -> None:
    write_per_query([evaluated], tmp_path / "per_query.parquet", PROVENANCE)
    table = pd.read_parquet(tmp_path / "per_query.parquet")
    pd.testing.assert_frame_equal(table.set_index("query"), evaluated.per_query)
    assert tables.read_provenance(tmp_path / "per_query.parquet") == PROVENANCE
    assert tables.is_up_to_date(tmp_path / "per_query.parquet", PROVENANCE)
    assert [path.name for path in tmp_path.iterdir()] == ["per_query.parquet"]


def test_parts_with_different_metrics_and_levels_share_a_file(tmp_path: Path) -> None:
    parts = [
        result("labelled", {"map100_labelled": 0.5, "H-AP": math.nan}),
        result("official", {"map100_official": 0.25}, n_levels=1),
    ]
    write_per_query(parts, tmp_path / "per_query.parquet", PROVENANCE)
    table = pd.read_parquet(tmp_path / "per_query.parquet", dtype_backend="pyarrow")
    assert list(table.columns) == [
        "part", "query", "map100_labelled", "H-AP", "map100_official", "positives_l1", "positives_l2", "positives_l3",
    ]  # fmt: skip
    assert table["part"].tolist() == ["labelled"] * 2 + ["official"] * 2
    assert table["query"].tolist() == ["a", "b"] * 2
    assert table["H-AP"].isna().all()
    assert table["map100_labelled"].isna().tolist() == [False, False, True, True]
    assert table["positives_l3"].fillna(-1).tolist() == [2, 2, -1, -1]
    assert str(table["positives_l3"].dtype) == "int64[pyarrow]"


def test_per_query_table_round_trip(tmp_path: Path, evaluated: RetrievalResult) -> None:
    ids = pd.Index([f"image {row}" for row in range(240)], name="query")
    named = evaluated.per_query.set_axis(ids).assign(**{"class": [f"landmark {row // 3}" for row in range(240)]})
    parts = [
        replace(evaluated, per_query=named),
        result("official", {"map100_official": 0.25, "H-AP": math.nan}, n_levels=1),
    ]
    for written in (parts, parts[:1], parts[1:]):
        write_per_query(written, tmp_path / "per_query.parquet", PROVENANCE)
        results = read_per_query(tmp_path / "per_query.parquet")
        assert len(results) == len(written)
        for restored, other in zip(results, written, strict=True):
            pd.testing.assert_frame_equal(restored.per_query, other.per_query)
            assert (restored.name, restored.metrics) == (other.name, other.metrics)
            assert (restored.counts, restored.settings) == (other.counts, other.settings)


def test_other_tables_are_refused(tmp_path: Path) -> None:
    tables.write_table(tmp_path / "images.parquet", tables.IMAGES, tables.IMAGES.schema.empty_table(), PROVENANCE)
    with pytest.raises(InputError, match=r"images.parquet: expected the results of queries"):
        read_per_query(tmp_path / "images.parquet")

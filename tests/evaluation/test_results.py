"""Means, intervals and counts of results, and the units of metrics."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hgld import tables
from hgld.cli.evaluate import format_evaluation, format_means
from hgld.compute.cluster_intervals import mean_intervals
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.metric_units import DISTANCES, goodness, is_distance
from hgld.evaluation.metrics import METRICS
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


def result_of(**columns: list[float]) -> RetrievalResult:
    per_query = pd.DataFrame(columns, index=pd.Index(range(len(next(iter(columns.values())))), name="query"))
    return RetrievalResult(
        "leave-one-out", per_query, tuple(columns), {"queries": len(per_query), "gallery": 1234}, {}
    )


def values(n: int, seed: int = 0) -> list[float]:
    sample: list[float] = np.random.default_rng(seed).beta(2, 5, size=n).tolist()
    return sample


def test_means_exclude_queries_without_the_metric() -> None:
    means = result_of(**{"H-AP": [0.5, np.nan, 1.0], "R@1": [np.nan] * 3}).means
    assert means["H-AP"] == 0.75
    assert np.isnan(means["R@1"])


def test_repr_is_one_line() -> None:
    assert repr(result_of(**{"H-AP": [0.5, 0.25], "R@1": [1.0, 0.0]})) == (
        "leave-one-out | H-AP 37.50 | R@1 50.00 | 2 queries x 1,234"
    )


def test_intervals_are_over_classes_where_queries_have_classes() -> None:
    columns = {"A": values(60), "B": [*values(40, 1), *[np.nan] * 20]}
    single, classes = result_of(**columns), [f"class {number // 5}" for number in range(60)]
    of_classes = replace(single, per_query=single.per_query.assign(**{"class": classes}))
    for some, clusters in ((single, np.arange(60)), (of_classes, np.arange(60) // 5)):
        table = some.per_query[["A", "B"]].to_numpy()
        expected = mean_intervals(table, clusters, confidence=0.9, n_resamples=500, seed=3)
        intervals = some.intervals(0.9, n_resamples=500, seed=3)
        assert intervals == {"A": tuple(expected[:, 0]), "B": tuple(expected[:, 1])}
    assert single.intervals() == single.intervals(0.95, n_resamples=1000, seed=0) != single.intervals(seed=1)


def test_few_queries_have_no_intervals() -> None:
    intervals = result_of(A=[0.5, np.nan], B=[np.nan, np.nan]).intervals()
    assert np.isnan(intervals["A"]).all()
    assert np.isnan(intervals["B"]).all()


@pytest.mark.parametrize(
    "options", [{"confidence": 0.0}, {"confidence": 1.0}, {"confidence": 95}, {"n_resamples": 0}]
)
def test_invalid_resampling_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="expected 0 < confidence < 1, and 1 or more resamples"):
        result_of(AP=[0.5]).intervals(**options)


def test_a_part_has_its_own_queries_and_counts() -> None:
    whole = result_of(AP=[0.5, 1.0, np.nan], positives_l1=[2, 3, 0])
    whole = RetrievalResult(
        "all", whole.per_query, ("AP",), {"queries": 3, "gallery": 9, "without_positives_l1": 1}, {}
    )
    part = whole.part("Public", np.array([True, False, True]))
    assert (part.name, part.means, len(whole.per_query)) == ("Public", {"AP": 0.5}, 3)
    assert part.counts == {"queries": 2, "gallery": 9, "without_positives_l1": 1}
    nothing = whole.part("none", np.zeros(3, bool))
    assert np.isnan(nothing.means["AP"])
    assert np.isnan(nothing.intervals()["AP"]).all()


def test_metrics_can_be_renamed() -> None:
    renamed = result_of(A=[0.5], B=[1.0]).renamed({"A": "map100_labelled"})
    assert renamed.metrics == ("map100_labelled", "B")
    assert renamed.means == {"map100_labelled": 0.5, "B": 1.0}


def test_distances_are_metrics() -> None:
    assert {name.partition("@")[0] for name in METRICS if is_distance(name)} == set(DISTANCES)


def test_fewer_levels_are_better() -> None:
    assert goodness("mistake_severity", 1.0) > goodness("mistake_severity", 1.5)
    assert goodness("small avg_hdist@5", 1.0) > goodness("small avg_hdist@5", 1.5)
    assert goodness("H-AP", 0.5) > goodness("H-AP", 0.4)
    for metric in ("H-AP", "mistake_severity"):
        assert goodness(metric, 0.1) > goodness(metric, math.nan)


def test_tables_mark_the_least_distance() -> None:
    metrics = ["H-AP", "mistake_severity", "avg_hdist@5"]
    rows = [
        result("a", dict(zip(metrics, (0.5, 2.25, 1.0), strict=True))),
        result("b", dict(zip(metrics, (0.4, 1.5, 2.0), strict=True))),
    ]
    table = results_to_latex(rows, metrics=metrics)
    assert r"a & \textbf{50.0} & \underline{2.2} & \textbf{1.0} \\" in table
    assert r"b & \underline{40.0} & \textbf{1.5} & \underline{2.0} \\" in table
    assert repr(rows[0]).startswith("a | H-AP 50.00 | mistake_severity 2.25 |")
    notes = setting_notes(rows)
    assert "mistake_severity, avg_hdist@5: in levels of the tree and not in %; lower is better." in notes


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
    latex = results_to_latex(table_vii())
    assert latex.splitlines()[:6] == [
        r"\begin{table}",
        r"  \centering",
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


def test_default_metrics_fit_into_80_columns(evaluated: RetrievalResult) -> None:
    lines = format_evaluation([evaluated], intervals=[evaluated.intervals()]).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[3:] == list(evaluated.metrics)  # after "mean in %"
    assert lines[2].split()[1:] == [f"{100 * mean:.2f}" for mean in evaluated.means.values()]
    low, high = zip(*evaluated.intervals().values(), strict=True)
    assert lines[3].split()[3:] == [f"{100 * end:.2f}" for end in low]  # after "95 % from"
    assert lines[4].split()[1:] == [f"{100 * end:.2f}" for end in high]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_metrics_that_do_not_fit_continue_in_a_further_table(evaluated: RetrievalResult, width: int) -> None:
    lines = format_evaluation([evaluated], width=width).splitlines()
    heads = [line for line in lines if line.startswith("mean in %")]
    assert [name for head in heads for name in head.split()[3:]] == list(evaluated.metrics)
    assert len(heads) == {40: 3, 60: 2, 80: 1}[width]
    assert "…" not in "".join(lines)
    assert max(map(len, lines)) <= width


def test_absent_metric_is_an_empty_cell_and_nan_a_dash() -> None:
    parts = [result("labelled", {"H-AP": 0.25, "ASI": math.nan}), result("official", {"ASI": 0.75}, n_levels=1)]
    lines = format_evaluation(parts).splitlines()
    assert [line.split() for line in lines[2:4]] == [["labelled", "25.00", "–"], ["official", "75.00"]]
    assert lines[3].endswith(" 75.00")
    assert lines[0].endswith("H-AP    ASI")
    counted = lines.index("", 4) + 1
    assert lines[counted].split()[1:] == ["queries", "gallery", "no", "l3", "no", "l2", "no", "l1"]
    assert lines[counted + 3].split() == ["official", "2", "1,234,567", "0"]
    assert lines[counted + 3].index(" 0") == lines[counted].index(" l1") + 1  # below level 1


def test_excluded_queries_are_counted_by_level() -> None:
    text = format_evaluation([result(counts={"without_positives_l3": 12, "without_positives_l2": 3})])
    (line,) = re.findall("^all .*1,234,567.*$", text, re.MULTILINE)
    assert line.split() == ["all", "2", "1,234,567", "12", "3", "0"]
    assert text.index("Means exclude queries without a positive") > text.index(line)


def test_names_are_not_markup() -> None:
    assert "[bold]x[/] :smile: [/]" in format_evaluation([result("[bold]x[/] :smile: [/]")])


def test_there_are_no_colours(monkeypatch: pytest.MonkeyPatch, evaluated: RetrievalResult) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in format_evaluation([evaluated])


def test_table_omits_results_without_its_metrics() -> None:
    parts = [result("easy", {"mAP": 0.5}), result("hard", {"ASI": 0.5})]
    intervals = [part.intervals() for part in parts]
    texts = [format_evaluation(parts, intervals=bounds, width=20) for bounds in (None, intervals)]
    for text, n_rows in zip(texts, (1, 3), strict=True):  # each table has a single metric
        for table in text.split("mean in %")[1:]:
            assert len(table[: table.index("\n\n")].splitlines()) == 2 + n_rows


def test_means_have_the_metrics_of_the_first_row_and_fit_the_width() -> None:
    rows = {"epoch 0": {"H-AP": 0.5, "R@1": 0.25}, "epoch 4": {"H-AP": 0.612, "R@1": math.nan}}
    text = format_means(rows)
    assert [line.split() for line in text.splitlines()[2:4]] == [
        ["epoch", "0", "50.00", "25.00"],
        ["epoch", "4", "61.20", "–"],
    ]
    assert len(format_means(rows, width=20).split("mean in %")) == 3  # a table for each metric


def test_distances_among_percentages_have_their_unit() -> None:
    lines = format_means({"first": {"R@1": 0.5, "avg_hdist@5": 1.25}}).splitlines()
    assert any("avg_hdist@5 in levels" in line for line in lines)
    (row,) = [line for line in lines if line.startswith("first")]
    assert row.split() == ["first", "50.00", "1.25"]

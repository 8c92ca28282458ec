"""What `hgld evaluate` prints."""

import math
import re

import pytest

from hgld.cli.evaluate import format_evaluation, format_means
from hgld.evaluation.results import RetrievalResult
from tests.evaluation.sample_results import result


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

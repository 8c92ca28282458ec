"""Result files of comparisons, from runs with invented values."""

import json
import math
import re
import statistics
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from hgld import tables
from hgld.benchmark.comparison import ComparisonSummary
from hgld.benchmark.result_files import write_results, write_sweep
from hgld.benchmark.runs import (
    BenchmarkSettings,
    EvaluatedRun,
    Run,
    per_query_file,
    read_benchmark,
    sweep_runs,
    table_runs,
)
from hgld.benchmark.statistics import (
    MethodResults,
    best_baselines,
    difference,
    difference_over_splits,
    paired_difference,
)
from hgld.cli.benchmark import format_results
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.results import RetrievalResult, write_per_query
from tests.benchmark.comparisons import write_comparison, write_data

LANDMARKS = [f"l{query // 2}" for query in range(12)]


def evaluated(run: Run, **means: float) -> EvaluatedRun:
    """Return a run of three steps whose values have the given means."""
    noise = np.random.default_rng(run.seed).normal(0, 0.02, 12)
    columns = {name.replace("_at_", "@").replace("H_", "H-"): mean for name, mean in means.items()}
    values = {name: mean + noise - noise.mean() for name, mean in columns.items()}
    result = RetrievalResult(
        name="leave-one-out",
        per_query=pd.DataFrame(
            values | {"positives_l1": 2, "class": LANDMARKS},
            index=pd.Index([f"q{query}" for query in range(12)], name="query"),
        ),
        metrics=tuple(columns),
        counts={"queries": 12, "gallery": 12, "without_positives_l1": 0},
        settings={"ties": "pessimistic"},
    )
    run.folder.mkdir(parents=True)
    record = {"machine": "a machine", "device": "cpu", "versions": {"hgld": "1"}, "finished": True}
    (run.folder / "run.json").write_text(json.dumps(record))
    (run.folder / "settings.yaml").write_text("{}")
    steps = [{"kind": "step", "step": step, "images_per_s": 8 / step} for step in (1, 2, 3)]
    lines = [{"kind": "test", "step": 0}, *steps]
    (run.folder / "history.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    write_per_query([result], per_query_file(run), tables.Provenance("test"))
    return EvaluatedRun(**vars(run), result=result)


@pytest.fixture
def settings(tmp_path: Path) -> BenchmarkSettings:
    write_data(tmp_path)
    comparison = read_benchmark(write_comparison(tmp_path, seeds=(0, 1)))
    roadmap, happier = comparison.methods["roadmap"], comparison.methods["happier"]
    methods = {
        "smooth_ap": roadmap.model_copy(update={"title": "Smooth-AP"}),
        "roadmap": roadmap,
        "happier": happier.model_copy(update={"title": "HAPPIER_F", "latex": r"\textbf{HAPPIER\textsubscript{F}}"}),
    }
    return comparison.model_copy(update={"methods": methods, "columns": ("R@1", "H-AP")})


#: Of seeds 0 and 1: H-AP, R@1 and AP_l1.
MEANS = {
    "smooth_ap": [(0.40, 0.80, 0.5), (0.42, 0.80, 0.5)],
    "roadmap": [(0.45, 0.70, 0.5), (0.45, 0.74, 0.5)],
    "happier": [(0.50, 0.79, 0.6), (0.54, 0.77, 0.5)],
}


def results(settings: BenchmarkSettings, name: str, runs: tuple[EvaluatedRun, ...]) -> MethodResults:
    method = settings.methods[name]
    return MethodResults(name, method.title, method.latex, method.baseline, runs)


@pytest.fixture
def methods(settings: BenchmarkSettings, tmp_path: Path) -> list[MethodResults]:
    runs = {
        name: tuple(
            evaluated(run, H_AP=h_ap, R_at_1=recall, AP_l1=ap)
            for run, (h_ap, recall, ap) in zip(runs, MEANS[name], strict=True)
        )
        for name, runs in table_runs(settings, tmp_path / "out").items()
    }
    return [results(settings, name, method_runs) for name, method_runs in runs.items()]


class Written(NamedTuple):
    """Files of the results of a table."""

    markdown: Path
    latex: Path
    parquet: Path


class ResultsWriter:
    """Writes the results of methods, by default of all, into ``tmp_path / "out"``."""

    def __init__(self, settings: BenchmarkSettings, methods: list[MethodResults], out: Path) -> None:
        self.settings, self.methods, self.out = settings, methods, out

    def __call__(self, methods: list[MethodResults] | None = None, *columns: str) -> Written:
        settings = self.settings.model_copy(update={"columns": columns} if columns else {})
        return Written(*write_results(settings, methods or self.methods, self.out, tables.Provenance("test")))


@pytest.fixture
def write(settings: BenchmarkSettings, methods: list[MethodResults], tmp_path: Path) -> ResultsWriter:
    return ResultsWriter(settings, methods, tmp_path / "out")


def summary(settings: BenchmarkSettings, methods: list[MethodResults]) -> ComparisonSummary:
    return ComparisonSummary(tuple(methods), settings.columns, (), 0, 0)


def values_of(method: MethodResults) -> np.ndarray:
    return np.array([run.result.per_query["H-AP"] for run in method.runs], np.float64)


def markdown_tables(path: Path) -> list[dict[str, dict[str, str]]]:
    """Return the cells of each table by row and column."""
    tables = []
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        if block.startswith("| "):
            heads, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines())
            tables.append({row[0]: dict(zip(heads[1:], row[1:], strict=True)) for row in rows})
    return tables


def test_markdown_has_means_and_differences(write: ResultsWriter) -> None:
    files, methods = write(), write.methods
    means, gains, by_level, _, trainings = markdown_tables(files.markdown)
    assert means == {
        "Smooth-AP": {"R@1": "**80.00** ± 0.00", "H-AP": "41.00 ± 1.41"},
        "ROADMAP": {"R@1": "72.00 ± 2.83", "H-AP": "<ins>45.00</ins> ± 0.00"},
        "HAPPIER_F": {"R@1": "<ins>78.00</ins> ± 1.41", "H-AP": "**52.00** ± 2.83"},
    }
    assert gains["*best baseline*"] == {"R@1": "*Smooth-AP*", "H-AP": "*ROADMAP*"}
    assert gains["ROADMAP"]["H-AP"] == gains["Smooth-AP"]["R@1"] == "0"
    difference = paired_difference(values_of(methods[2]), values_of(methods[1]), LANDMARKS)
    mean, low, high = (100 * end for end in difference)
    assert gains["HAPPIER_F"]["H-AP"] == f"+7.00 [{low:+.2f}, {high:+.2f}]"
    assert low <= mean <= high
    assert {name: row["AP_l1"] for name, row in by_level.items()} == {
        "Smooth-AP": "<ins>50.00</ins> ± 0.00", "ROADMAP": "<ins>50.00</ins> ± 0.00", "HAPPIER_F": "**55.00** ± 7.07",
    }  # fmt: skip
    assert trainings["HAPPIER_F"] == {
        "Seeds": "0, 1", "Steps": "3", "Batch size": "8", "Minutes per run": "0.1", "Device": "cpu",
    }  # fmt: skip
    notes = files.markdown.read_text(encoding="utf-8").split("## Setup")[1]
    for sentence in (
        "Trained on 16 images of 4 classes (landmark), evaluated on 16 images of 4 classes, none of which",
        "12 queries, each of which ranks all other images.",
        "without a positive: 0 at level 1.",
        "The last checkpoint",
        "Machine: a machine. Software: hgld 1.",
        "- Ties: pessimistic",
    ):
        assert sentence in notes


def test_untrained_models_were_trained_on_nothing(settings: BenchmarkSettings, tmp_path: Path) -> None:
    (run, *_) = table_runs(settings, tmp_path / "out", ["steps=0"])["roadmap"]
    values = evaluated(run, H_AP=0.5, R_at_1=0.5)
    write = ResultsWriter(settings, [MethodResults("roadmap", "ROADMAP", None, True, (values,))], tmp_path)
    notes = write().markdown.read_text(encoding="utf-8")
    assert "Evaluated on 16 images of 4 classes (landmark); nothing was trained." in notes


def test_parquet_has_a_row_per_run_and_metric(write: ResultsWriter) -> None:
    path = write().parquet
    table = tables.read_table(path, tables.COMPARISON).to_pandas()
    assert len(table) == 3 * 2 * 3
    (row,) = table[(table.method == "happier") & (table.seed == 1) & (table.metric == "H-AP")].to_dict("records")
    assert row.pop("value") == pytest.approx(0.54)
    assert row.pop("train_seconds") == pytest.approx(6)  # 1, 2 and 3 seconds for 8 images
    assert math.isnan(row.pop("split"))  # pandas' null
    assert row == {
        "method": "happier", "title": "HAPPIER_F", "baseline": False, "seed": 1, "metric": "H-AP",
        "steps": 3, "device": "cpu", "machine": "a machine",
    }  # fmt: skip


def test_results_over_splits(settings: BenchmarkSettings, tmp_path: Path) -> None:
    """Two splits of two seeds; Smooth-AP is evaluated with one."""
    settings = settings.model_copy(update={"splits": (0, 1)})
    h_ap: dict[str, dict[tuple[int | None, int], float]] = {
        "smooth_ap": {(0, 0): 0.30, (1, 0): 0.50},
        "roadmap": {(0, 0): 0.39, (1, 0): 0.50, (0, 1): 0.41, (1, 1): 0.50},
        "happier": {(0, 0): 0.41, (1, 0): 0.54, (0, 1): 0.45, (1, 1): 0.54},
    }
    runs = {
        name: tuple(
            evaluated(run, H_AP=h_ap[name][run.split, run.seed])
            for run in runs
            if (run.split, run.seed) in h_ap[name]
        )
        for name, runs in table_runs(settings, tmp_path / "out").items()
    }
    methods = [results(settings, name, method_runs) for name, method_runs in runs.items()]
    _, roadmap, happier = methods
    files = ResultsWriter(settings, methods, tmp_path / "out")(None, "H-AP")
    means, gains, variation, trainings = markdown_tables(files.markdown)
    deviation = 100 * statistics.stdev([0.43, 0.54])
    assert means["HAPPIER_F"]["H-AP"] == f"**48.50** ± {deviation:.2f}"
    assert means["Smooth-AP"]["H-AP"] == f"40.00 ± {100 * statistics.stdev([0.3, 0.5]):.2f}"
    interval = difference_over_splits([0.03, 0.04], test_train_ratio=1)
    assert difference(happier, roadmap, "H-AP") == pytest.approx(interval)
    _, low, high = (100 * end for end in interval)
    assert gains["HAPPIER_F"]["H-AP"] == f"+3.50 [{low:+.2f}, {high:+.2f}]"
    over_seeds = 100 * math.sqrt((statistics.variance([0.41, 0.45]) + 0) / 2)
    assert variation["HAPPIER_F"]["H-AP"] == f"{deviation:.2f} / {over_seeds:.2f}"
    assert variation["Smooth-AP"]["H-AP"].endswith(" / –")
    assert (trainings["HAPPIER_F"]["Splits"], trainings["Smooth-AP"]["Seeds"]) == ("0, 1", "0")
    text = files.markdown.read_text(encoding="utf-8")
    assert text.count("corrected resampled") == 1
    assert "bootstrap" not in text
    assert "mean over 2 random splits and their seeds" in files.latex.read_text(encoding="utf-8")
    rows = tables.read_table(files.parquet, tables.COMPARISON).to_pandas()
    assert rows[rows.method == "happier"][["split", "seed"]].to_numpy().tolist() == [[0, 0], [1, 0], [0, 1], [1, 1]]
    apart = [replace(method, runs=tuple(run for run in method.runs if run.split == 1)) for method in methods]
    values, baseline = values_of(apart[2]), values_of(apart[1])
    assert difference(apart[2], apart[1], "H-AP") == pytest.approx(paired_difference(values, baseline, LANDMARKS))


def test_latex_has_the_columns_of_the_settings(write: ResultsWriter) -> None:
    lines = write().latex.read_text().splitlines()
    assert r"    Method & R@1 & $\mathcal{H}$-AP \\" in lines
    assert (
        r"    \textbf{HAPPIER\textsubscript{F}} & \underline{78.0} {\scriptsize $\pm$ 1.4} & "
        r"\textbf{52.0} {\scriptsize $\pm$ 2.8} \\"
    ) in lines
    with pytest.raises(ConfigurationError, match="no result has ASI; the metrics are H-AP, R@1, AP_l1"):
        write(None, "ASI")


def test_terminal_text_has_80_columns(settings: BenchmarkSettings, methods: list[MethodResults]) -> None:
    text = format_results(summary(settings, methods))
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"HAPPIER_F +78\.00 ± 1\.41 +52\.00 ± 2\.83$", text, re.MULTILINE)
    assert re.search(r"HAPPIER_F +-2\.00 \[.*\] +\+7\.00 \[.*\]$", text, re.MULTILINE)
    assert text.endswith("Best baseline, from which differences are taken: R@1 Smooth-AP, H-AP ROADMAP.")


def test_markdown_links_existing_figures(write: ResultsWriter) -> None:
    out = write.out
    assert "## Figures" not in write().markdown.read_text()
    (out / "figures").mkdir()
    for name in ("figures/learning.png", "figures/learning.pdf", "strips.png", "strips.html"):
        (out / name).touch()
    text = write().markdown.read_text()
    links = re.findall(r"^(!?)\[.*\]\((.*)\)$", text, re.MULTILINE)
    assert links == [("!", "figures/learning.png"), ("!", "strips.png"), ("", "strips.html")]


def test_single_seed_without_baselines(write: ResultsWriter) -> None:
    alone = [replace(method, baseline=False, runs=method.runs[:1]) for method in write.methods]
    files = write(alone)
    means, _, trainings = markdown_tables(files.markdown)
    assert means["HAPPIER_F"] == {"R@1": "<ins>79.00</ins>", "H-AP": "**50.00**"}
    assert trainings["HAPPIER_F"]["Seeds"] == "0"
    assert "scriptsize" not in files.latex.read_text()
    assert "difference" not in format_results(summary(write.settings, alone)).lower()
    assert best_baselines(alone, ["H-AP"]) == {}


def renamed(method: MethodResults, names: dict[str, str]) -> MethodResults:
    return replace(method, runs=tuple(replace(run, result=run.result.renamed(names)) for run in method.runs))


def test_the_best_baseline_in_a_distance_has_the_lowest(write: ResultsWriter) -> None:
    """The same values, as severities: in levels instead of %, and the other way round."""
    severe = [renamed(method, {"H-AP": "mistake_severity"}) for method in write.methods]
    best, worst = best_baselines(write.methods, ["H-AP"]), best_baselines(severe, ["mistake_severity"])
    assert (best["H-AP"].title, worst["mistake_severity"].title) == ("ROADMAP", "Smooth-AP")
    means, *_ = markdown_tables(write(severe, "R@1", "mistake_severity").markdown)
    assert means["Smooth-AP"]["mistake_severity"].startswith("**0.41** ±")


def test_missing_metric_is_a_dash(write: ResultsWriter) -> None:
    _, roadmap, happier = write.methods
    happier = renamed(replace(happier, title="HAPPIER", runs=happier.runs[:1]), {"R@1": "R"})
    means, gains, *_ = markdown_tables(write([roadmap, happier]).markdown)
    assert means["HAPPIER"]["R@1"] == gains["HAPPIER"]["R@1"] == "–"
    assert "R" not in gains["*best baseline*"]  # no baseline has it


def test_queries_are_paired_by_id(methods: list[MethodResults]) -> None:
    _, roadmap, happier = methods
    fewer, same = (run.result for run in happier.runs)
    fewer = fewer.part("some", np.arange(12) != 5)
    turned = [
        replace(original, result=replace(result, per_query=result.per_query[::-1]))
        for original, result in zip(happier.runs, (fewer, same), strict=True)
    ]
    rows = [query for query in range(12) if query != 5]
    values = np.array([run.result.per_query["H-AP"].loc[[f"q{row}" for row in rows]] for run in turned], np.float64)
    baseline = np.array([run.result.per_query["H-AP"].iloc[rows] for run in roadmap.runs], np.float64)
    actual = difference(MethodResults("happier", "", None, False, tuple(turned)), roadmap, "H-AP")
    assert actual == pytest.approx(paired_difference(values, baseline, [LANDMARKS[row] for row in rows]))


def test_missing_run_is_an_error(methods: list[MethodResults]) -> None:
    (methods[0].runs[0].folder / "run.json").unlink()
    with pytest.raises(InputError, match="seed0: there is no run"):
        _ = methods[0].trainings


# Sweeps


def test_sweep_has_a_table_per_metric(settings: BenchmarkSettings, tmp_path: Path) -> None:
    sweep = settings.sweeps["lambda"]
    curves = {
        "A": sweep.curves["HAPPIER"],
        "B": sweep.curves["HAPPIER"].model_copy(update={"set": ("loss.alpha=2",)}),
    }
    sweep = sweep.model_copy(update={"curves": curves, "relative_to": "A"})
    settings = settings.model_copy(update={"sweeps": {"lambda": sweep}})
    value_of = {("A", 0.1): 0.5, ("A", 0.5): 0.4, ("B", 0.1): 0.55}
    points = [
        (
            point,
            tuple(
                evaluated(run, H_AP=value_of[point.curve, float(point.value)] + 0.02 * run.seed)
                for run in point.runs
                if (point.curve, point.value) in value_of
            ),
        )
        for point in sweep_runs(settings, "lambda", tmp_path / "out")
    ]
    assert len(points) == 4
    path = tmp_path / "out" / "sweeps" / "lambda.png"
    table, text = write_sweep(settings.sweeps["lambda"], points, path, tables.Provenance("test"))
    means, relative = markdown_tables(text)
    assert means == {"0.1": {"A": "51.00 ± 1.41", "B": "56.00 ± 1.41"}, "0.5": {"A": "41.00 ± 1.41", "B": "–"}}
    assert relative == {"0.1": {"B": f"{100 * (0.56 / 0.51 - 1):+.2f}"}, "0.5": {"B": "–"}}
    assert "mean over the seeds ± standard deviation (seeds 0, 1)" in text.read_text(encoding="utf-8")
    assert "![" not in text.read_text(encoding="utf-8")
    rows = tables.read_table(table, tables.STUDY).to_pandas()
    assert rows[["curve", "setting", "seed"]].to_numpy().tolist() == [
        ["A", "0.1", 0], ["A", "0.1", 1], ["A", "0.5", 0], ["A", "0.5", 1], ["B", "0.1", 0], ["B", "0.1", 1],
    ]  # fmt: skip
    assert rows["value"].tolist() == pytest.approx([0.5, 0.52, 0.4, 0.42, 0.55, 0.57])
    assert not math.isnan(rows["train_seconds"].sum())

    path.touch()
    _, text = write_sweep(settings.sweeps["lambda"], points, path, tables.Provenance("test"))
    assert "![The weight of the decomposability loss](lambda.png)" in text.read_text(encoding="utf-8")


def test_runs_with_galleries_of_different_sizes_are_not_compared(write: ResultsWriter) -> None:
    _, roadmap, happier = write.methods
    first, *others = happier.runs
    smaller = replace(first, result=replace(first.result, counts=first.result.counts | {"gallery": 7}))
    larger = [replace(run, result=replace(run.result, counts=run.result.counts | {"gallery": 9})) for run in others]
    with pytest.raises(ConfigurationError, match="galleries of different sizes"):
        difference(replace(happier, runs=(smaller, *larger)), roadmap, "H-AP")

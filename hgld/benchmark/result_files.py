"""Result files of a comparison: tables to read, and tables for programs.

::

    OUT/results.parquet       a row per method, split, seed and metric
    OUT/results.md            tables with confidence intervals, and the setup
    OUT/results.tex           in the layout of the paper's Table VII
    OUT/sweeps/NAME.parquet   a row per curve, value, split, seed and metric of a sweep
    OUT/sweeps/NAME.md        a table per metric
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgld.benchmark.runs import (
    BenchmarkSettings,
    EvaluatedPoint,
    EvaluatedRun,
    SweepSettings,
    read_training_record,
)
from hgld.benchmark.statistics import (
    MethodResults,
    best_baselines,
    by_split,
    difference,
    means_of,
    seed_stds,
    stds_of,
)
from hgld.evaluation.metric_units import shown_value
from hgld.evaluation.results import (
    WITHOUT_POSITIVES,
    LatexRow,
    escape_latex,
    latex_table,
    mark_best,
    metric_names,
    select_metrics,
    setting_notes,
)
from hgld.io.files import write_text
from hgld.io.markdown import markdown_link, markdown_table
from hgld.tables import COMPARISON, STUDY, Provenance, TableSpec, write_table

_LEVEL_METRIC = re.compile(r"AP_l\d+")
_MISSING = "–"
_BEST = "the best is bold, the second best underlined."
_LEVELS = "Level 1 is the coarsest. Positives are the images that share the level, or a finer one."
_CLASS_INTERVALS = """\
Difference from the best baseline, the one with the highest mean of the metric: mean of the differences per query,
each averaged over the seeds, with a 95 % confidence interval. The finest classes are the independent units of the
interval, because queries of one class resemble one another; with fewer than 6 classes, or where a few classes hold
most queries, there is no interval. It reflects the choice of the classes to evaluate on, not of the classes to train
on; the ± above reflects the choice of seeds. An interval that contains 0 leaves open which of the two is better, and
about one in twenty intervals misses the true difference."""
_SPLIT_INTERVALS = """\
Difference from the best baseline, the one with the highest mean of the metric: mean over the splits, each of which
gives one difference between the means of its queries and seeds, with a 95 % confidence interval. The splits are drawn
from the same images, so they share classes and are not independent: the interval is that of the corrected resampled
t-test of Nadeau and Bengio (Machine Learning 52, 2003), in which the variance of the mean of J differences is
(1/J + n_test/n_train) times their variance, with J - 1 degrees of freedom. It reflects the choice of the classes to
train on and to evaluate on, and of the seeds, but no other kinds of images and no other settings. An interval that
contains 0 leaves open which of the two is better, and about one in twenty intervals misses the true difference."""
_VARIATION = """\
Standard deviation of the splits' means and, after the slash, over the seeds of a split, in percentage points. What a
split does to all methods alike cancels out in the differences above."""


def table_columns(settings: BenchmarkSettings, methods: Sequence[MethodResults]) -> tuple[str, ...]:
    """Return the metrics that are the columns of the table.

    Raises:
        ConfigurationError: No method has one of the metrics that the settings name as columns.
    """
    results = [run.result for run in _all_runs(methods)]
    return tuple(select_metrics(settings.columns, metric_names(results)))


def _all_runs(methods: Sequence[MethodResults]) -> list[EvaluatedRun]:
    runs: list[EvaluatedRun] = []
    for method in methods:
        runs += method.runs
    return runs


def write_results(
    settings: BenchmarkSettings, methods: Sequence[MethodResults], out: Path, provenance: Provenance
) -> list[Path]:
    """Write the table, whose text links existing figures, and return the files.

    Raises:
        ConfigurationError: No method has one of the metrics that the settings name as columns.
        InputError: A file of a run is missing.
    """
    columns = table_columns(settings, methods)
    splits = list(by_split(_all_runs(methods)))
    caption = settings.title
    if len(splits) > 1:
        caption += f"; {describe_means(splits)}"
    caption = escape_latex(caption).replace("±", r"$\pm$")
    latex_rows = []
    groups = []
    for method in methods:
        if set(method.metrics).intersection(columns):
            title = method.latex or escape_latex(method.title)
            latex_rows.append(LatexRow(title, method.means, method.stds))
        groups.append(({"title": method.title, "baseline": method.baseline}, method.runs))
    latex, markdown, parquet = out / "results.tex", out / "results.md", out / "results.parquet"
    write_text(latex, latex_table(latex_rows, columns, caption=caption) + "\n")
    write_text(markdown, results_markdown(settings, methods, columns, out) + "\n")
    _write_rows(parquet, COMPARISON, groups, provenance)
    return [markdown, latex, parquet]


def write_sweep(
    sweep: SweepSettings,
    points: Sequence[EvaluatedPoint],
    path: Path,
    provenance: Provenance,
) -> list[Path]:
    """Write the results of a sweep, and return the files; the text shows its figure if that exists.

    Args:
        path: Path of the figure, beside which the files are written.

    Raises:
        InputError: A file of a run is missing.
    """
    table, text = path.with_suffix(".parquet"), path.with_suffix(".md")
    write_text(text, sweep_markdown(sweep, points, figure=path) + "\n")
    groups = []
    for point, runs in points:
        groups.append(({"curve": point.curve, "setting": str(point.value)}, runs))
    _write_rows(table, STUDY, groups, provenance)
    return [table, text]


def _write_rows(
    path: Path,
    spec: TableSpec,
    groups: Iterable[tuple[Mapping[str, Any], Sequence[EvaluatedRun]]],
    provenance: Provenance,
) -> None:
    """Write a row per metric of each run, with the columns that name its group."""
    rows = []
    for names, runs in groups:
        for run in runs:
            record = read_training_record(run)
            del record["versions"]
            record |= {"method": run.method, "split": run.split, "seed": run.seed, **names}
            for metric, value in run.result.means.items():
                rows.append({"metric": metric, "value": value, **record})
    write_table(path, spec, pa.Table.from_pylist(rows, spec.schema), provenance)


def results_markdown(
    settings: BenchmarkSettings, methods: Sequence[MethodResults], columns: Sequence[str], out: Path
) -> str:
    """Return the text of ``results.md``."""
    runs = _all_runs(methods)
    main, level_metrics = list(columns), []
    for metric in metric_names([run.result for run in runs]):
        if metric in columns:
            continue
        if _LEVEL_METRIC.fullmatch(metric):
            level_metrics.append(metric)
        else:
            main.append(metric)
    splits = list(by_split(runs))
    intervals = _CLASS_INTERVALS if len(splits) == 1 else _SPLIT_INTERVALS
    sections = [
        f"# {settings.title}",
        f"In %, {describe_means(splits)}; {_BEST}",
        _means_table(methods, main),
    ]
    differences = _differences_table(methods, main)
    if differences:
        sections += ["## Difference from the best baseline", intervals, differences]
    if level_metrics:
        sections += ["## AP of each level", _LEVELS, _means_table(methods, level_metrics)]
        differences = _differences_table(methods, level_metrics)
        if differences:
            sections += ["Difference from the best baseline:", differences]
    if len(splits) > 1:
        table = _variation_table(methods, [*main, *level_metrics])
        sections += ["## Variation of splits and seeds", _VARIATION, table]
    sections += ["## Training runs", _trainings_table(methods)]
    sections += ["## Setup", "\n".join(f"- {sentence}" for sentence in _setup(settings, methods))]
    links = []
    for pattern in ("figures/*.png", "*.png", "*.html", "sweeps/*.md"):
        for path in sorted(out.glob(pattern)):
            links.append(markdown_link(path, out))
    if links:
        sections += ["## Figures", *links]
    return "\n\n".join(sections)


def sweep_markdown(
    settings: SweepSettings, points: Sequence[EvaluatedPoint], *, figure: Path
) -> str:
    """Return the text of ``sweeps/NAME.md``."""
    means, stds = {}, {}
    runs: list[EvaluatedRun] = []
    for point, point_runs in points:
        means[point.curve, point.value] = means_of(point_runs)
        stds[point.curve, point.value] = stds_of(point_runs)
        runs += point_runs
    splits = list(by_split(runs))
    drawn = f"seeds {_distinct(sorted({run.seed for run in runs}))}"
    if len(splits) > 1:
        drawn += f"; splits {_distinct(splits)}"
    sections = [
        f"# {settings.title}",
        f"`{settings.key}`; in %, {describe_means(splits)} ({drawn}).",
    ]
    for metric in settings.metrics:
        cells = {key: mean_and_std(means[key], stds[key], metric) for key in means}
        sections += [f"## {metric}", _grid(settings, list(settings.curves), cells)]
        base = settings.relative_to
        if base is None:
            continue
        relative = {}
        for (curve, value), point_means in means.items():
            base_mean = means[base, value].get(metric, math.nan)
            relative[curve, value] = _relative(point_means.get(metric, math.nan), base_mean)
        other_curves = [curve for curve in settings.curves if curve != base]
        sections.append(f"Relative difference from {base}, in %:")
        sections.append(_grid(settings, other_curves, relative))
    if figure.is_file():
        sections.append(f"![{settings.title}]({figure.name})")
    return "\n\n".join(sections)


def describe_means(splits: Sequence[int | None]) -> str:
    """Return the words for means and standard deviations over runs of some splits.

    >>> describe_means([None])
    'mean over the seeds ± standard deviation'
    """
    if len(splits) == 1:
        return "mean over the seeds ± standard deviation"
    return f"mean over {len(splits)} random splits and their seeds ± standard deviation of the splits' means"


def mean_and_std(means: Mapping[str, float], stds: Mapping[str, float], metric: str) -> str:
    """Return a cell such as ``47.21 ± 0.12``, in %; without ± for a single run, a dash without a value.

    >>> mean_and_std({"ASI": 0.47211}, {"ASI": 0.0012}, "ASI")
    '47.21 ± 0.12'
    """
    mean = means.get(metric, math.nan)
    if math.isnan(mean):
        return _MISSING
    return f"{shown_value(metric, mean):.2f}{_plus_minus(stds, metric)}"


def difference_text(method: MethodResults, baseline: MethodResults, metric: str) -> str:
    """Return a cell such as ``+0.52 [-0.10, +1.14]``, in points; ``0`` for the baseline itself."""
    if method is baseline:
        return "0"
    if metric not in method.metrics:
        return _MISSING
    return difference(method, baseline, metric).text(metric)


def _means_table(methods: Sequence[MethodResults], metrics: Sequence[str]) -> str:
    rows = [[method.title] for method in methods]
    for metric in metrics:
        means = [method.means.get(metric, math.nan) for method in methods]
        cells = mark_best(metric, means, "**{}**", "<ins>{}</ins>", decimals=2)
        for row, method, cell in zip(rows, methods, cells, strict=True):
            if cell:
                cell += _plus_minus(method.stds, metric)
            row.append(cell or _MISSING)
    return markdown_table(["Method", *metrics], rows, n_numeric=len(metrics))


def _differences_table(methods: Sequence[MethodResults], metrics: Sequence[str]) -> str:
    """Return the table of differences from the best baselines; empty without baselines."""
    baselines = best_baselines(methods, metrics)
    if not baselines:
        return ""
    head = ["*best baseline*"]
    for best in baselines.values():
        head.append(f"*{best.title}*")
    rows = [head]
    for method in methods:
        row = [method.title]
        for metric, best in baselines.items():
            row.append(difference_text(method, best, metric))
        rows.append(row)
    return markdown_table(["Method", *baselines], rows, n_numeric=len(baselines))


def _variation_table(methods: Sequence[MethodResults], metrics: Sequence[str]) -> str:
    """Return the table of standard deviations over splits, and over the seeds of a split."""
    rows = []
    for method in methods:
        stds_over_seeds = seed_stds(method.runs)
        row = [method.title]
        for metric in metrics:
            row.append(f"{_std_text(method.stds, metric)} / {_std_text(stds_over_seeds, metric)}")
        rows.append(row)
    return markdown_table(["Method", *metrics], rows, n_numeric=len(metrics))


def _trainings_table(methods: Sequence[MethodResults]) -> str:
    rows = []
    for method in methods:
        trainings = method.trainings
        seconds = sum(training["train_seconds"] for training in trainings)
        cells = {
            "Method": method.title,
            "Splits": _distinct(run.split for run in method.runs),
            "Seeds": _distinct(run.seed for run in method.runs),
            "Steps": _distinct(f"{training['steps']:,}" for training in trainings),
            "Batch size": _distinct(f"{run.settings.batch_size:,}" for run in method.runs),
            "Minutes per run": f"{seconds / 60 / len(trainings):.1f}",
            "Device": _distinct(training["device"] for training in trainings),
        }
        if cells["Splits"] == "None":
            del cells["Splits"]
        rows.append(cells)
    return markdown_table(
        list(rows[0]), [list(cells.values()) for cells in rows], n_numeric=len(rows[0]) - 1
    )


def _setup(settings: BenchmarkSettings, methods: Sequence[MethodResults]) -> list[str]:
    """Return sentences on data, protocol, machine and software."""
    runs = _all_runs(methods)
    sentences = []
    for split, split_runs in by_split(runs).items():
        result = split_runs[0].result
        texts = settings.evaluation.describe(result, [run.settings for run in split_runs])
        excluded = []
        for name, count in result.counts.items():
            prefix, _, level = name.partition("_l")
            if prefix == WITHOUT_POSITIVES:
                excluded.append(f"{count:,} at level {level}")
        texts.append(f"Means exclude queries without a positive: {', '.join(excluded)}.")
        if split is None:
            sentences += texts
        else:
            sentences.append(f"Split {split}: {' '.join(texts)}")
    sentences.append(
        "The last checkpoint of each training is evaluated, or the best one on validation images where there are "
        "some; no checkpoint was selected on the test images."
    )
    machines, versions = [], []
    for method in methods:
        for training in method.trainings:
            machines.append(training["machine"])
            for name, version in training["versions"].items():
                versions.append(f"{name} {version}")
    sentences.append(f"Machine: {_distinct(machines)}. Software: {_distinct(versions)}.")
    return sentences + setting_notes([runs[0].result])


def _grid(
    settings: SweepSettings,
    curves: Sequence[str],
    cells: Mapping[tuple[str, int | float | str], str],
) -> str:
    """Return a table with a row per value and a column per curve."""
    rows = []
    for value in settings.values:
        row = [str(value)]
        for curve in curves:
            row.append(cells.get((curve, value), _MISSING))
        rows.append(row)
    return markdown_table([settings.label, *curves], rows, n_numeric=len(curves))


def _relative(mean: float, base: float) -> str:
    if math.isnan(mean) or not base > 0:
        return _MISSING
    return f"{100 * (mean / base - 1):+.2f}"


def _plus_minus(stds: Mapping[str, float], metric: str) -> str:
    std = _std_text(stds, metric)
    if std == _MISSING:
        return ""
    return f" ± {std}"


def _std_text(stds: Mapping[str, float], metric: str) -> str:
    std = stds.get(metric, math.nan)
    if math.isnan(std):
        return _MISSING
    return f"{shown_value(metric, std):.2f}"


def _distinct(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(map(str, values)))

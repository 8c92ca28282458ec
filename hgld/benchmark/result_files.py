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
    results = [run.result for method in methods for run in method.runs]
    return tuple(select_metrics(settings.columns, metric_names(results)))


def write_results(
    settings: BenchmarkSettings, methods: Sequence[MethodResults], out: Path, provenance: Provenance
) -> list[Path]:
    """Write the table, whose text links existing figures, and return the files.

    Raises:
        ConfigurationError: No method has one of the metrics that the settings name as columns.
        InputError: A file of a run is missing.
    """
    runs = [run for method in methods for run in method.runs]
    columns = table_columns(settings, methods)
    markdown, latex, parquet = files = [
        out / f"results.{suffix}" for suffix in ("md", "tex", "parquet")
    ]
    splits = list(by_split(runs))
    caption = settings.title if len(splits) == 1 else f"{settings.title}; {describe_means(splits)}"
    latex_rows = [
        LatexRow(method.latex or escape_latex(method.title), method.means, method.stds)
        for method in methods
        if set(method.metrics).intersection(columns)
    ]
    caption = escape_latex(caption).replace("±", r"$\pm$")
    write_text(latex, latex_table(latex_rows, columns, caption=caption) + "\n")
    write_text(markdown, results_markdown(settings, methods, columns, out) + "\n")
    groups = [
        ({"title": method.title, "baseline": method.baseline}, method.runs) for method in methods
    ]
    _write_rows(parquet, COMPARISON, groups, provenance)
    return files


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
    groups = (({"curve": point.curve, "setting": str(point.value)}, runs) for point, runs in points)
    _write_rows(table, STUDY, groups, provenance)
    return [table, text]


def _write_rows(
    path: Path,
    spec: TableSpec,
    groups: Iterable[tuple[Mapping[str, Any], Sequence[EvaluatedRun]]],
    provenance: Provenance,
) -> None:
    """Write a row per metric of each run, with the columns that name its group."""
    rows: list[dict[str, Any]] = []
    for names, runs in groups:
        for run in runs:
            record = read_training_record(run)
            del record["versions"]
            record |= {"method": run.method, "split": run.split, "seed": run.seed, **names}
            rows += [
                {"metric": metric, "value": value, **record}
                for metric, value in run.result.means.items()
            ]
    write_table(path, spec, pa.Table.from_pylist(rows, spec.schema), provenance)


def results_markdown(
    settings: BenchmarkSettings, methods: Sequence[MethodResults], columns: Sequence[str], out: Path
) -> str:
    """Return the text of ``results.md``."""
    runs = [run for method in methods for run in method.runs]
    metrics = metric_names([run.result for run in runs])
    level_metrics = [metric for metric in metrics if _LEVEL_METRIC.fullmatch(metric)]
    main = [*columns, *(metric for metric in metrics if metric not in (*columns, *level_metrics))]
    level_metrics = [metric for metric in level_metrics if metric not in main]
    splits = list(by_split(runs))
    intervals = _CLASS_INTERVALS if len(splits) == 1 else _SPLIT_INTERVALS
    sections = [
        f"# {settings.title}",
        f"In %, {describe_means(splits)}; {_BEST}",
        _means_table(methods, main),
    ]
    if differences := _differences_table(methods, main):
        sections += ["## Difference from the best baseline", intervals, differences]
    if level_metrics:
        sections += ["## AP of each level", _LEVELS, _means_table(methods, level_metrics)]
        if differences := _differences_table(methods, level_metrics):
            sections += ["Difference from the best baseline:", differences]
    if len(splits) > 1:
        table = _variation_table(methods, [*main, *level_metrics])
        sections += ["## Variation of splits and seeds", _VARIATION, table]
    sections += ["## Training runs", _trainings_table(methods)]
    sections += ["## Setup", "\n".join(f"- {sentence}" for sentence in _setup(settings, methods))]
    shown = ((out / "figures", "*.png"), (out, "*.png"), (out, "*.html"), (out / "sweeps", "*.md"))
    if links := [
        markdown_link(path, out) for folder, glob in shown for path in sorted(folder.glob(glob))
    ]:
        sections += ["## Figures", *links]
    return "\n\n".join(sections)


def sweep_markdown(
    settings: SweepSettings, points: Sequence[EvaluatedPoint], *, figure: Path
) -> str:
    """Return the text of ``sweeps/NAME.md``."""
    means = {(point.curve, point.value): means_of(runs) for point, runs in points}
    stds = {(point.curve, point.value): stds_of(runs) for point, runs in points}
    runs = [run for _, of_point in points for run in of_point]
    seeds, splits = sorted({run.seed for run in runs}), list(by_split(runs))
    drawn = f"seeds {_distinct(seeds)}" + (
        f"; splits {_distinct(splits)}" if len(splits) > 1 else ""
    )
    sections = [
        f"# {settings.title}",
        f"`{settings.key}`; in %, {describe_means(splits)} ({drawn}).",
    ]
    for metric in settings.metrics:
        cells = {key: mean_and_std(means[key], stds[key], metric) for key in means}
        sections += [f"## {metric}", _grid(settings, list(settings.curves), cells)]
        if (base := settings.relative_to) is not None:
            relative = {
                (curve, value): _relative(
                    mean.get(metric, math.nan), means[base, value].get(metric, math.nan)
                )
                for (curve, value), mean in means.items()
                if curve != base
            }
            others = [curve for curve in settings.curves if curve != base]
            sections += [
                f"Relative difference from {base}, in %:",
                _grid(settings, others, relative),
            ]
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
    return (
        _MISSING
        if math.isnan(mean)
        else f"{shown_value(metric, mean):.2f}{_plus_minus(stds, metric)}"
    )


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
            row.append(f"{cell}{_plus_minus(method.stds, metric)}" if cell else _MISSING)
    return markdown_table(["Method", *metrics], rows, n_numeric=len(metrics))


def _differences_table(methods: Sequence[MethodResults], metrics: Sequence[str]) -> str:
    """Return the table of differences from the best baselines; empty without baselines."""
    baselines = best_baselines(methods, metrics)
    if not baselines:
        return ""
    rows = [["*best baseline*", *(f"*{best.title}*" for best in baselines.values())]]
    for method in methods:
        rows.append(
            [
                method.title,
                *(difference_text(method, best, metric) for metric, best in baselines.items()),
            ]
        )
    return markdown_table(["Method", *baselines], rows, n_numeric=len(baselines))


def _variation_table(methods: Sequence[MethodResults], metrics: Sequence[str]) -> str:
    """Return the table of standard deviations over splits, and over the seeds of a split."""
    rows = []
    for method in methods:
        over_splits, over_seeds = method.stds, seed_stds(method.runs)
        rows.append(
            [
                method.title,
                *(f"{_std_text(over_splits, m)} / {_std_text(over_seeds, m)}" for m in metrics),
            ]
        )
    return markdown_table(["Method", *metrics], rows, n_numeric=len(metrics))


def _trainings_table(methods: Sequence[MethodResults]) -> str:
    rows = []
    for method in methods:
        minutes = [training["train_seconds"] / 60 for training in method.trainings]
        cells = {
            "Method": method.title,
            "Splits": _distinct(run.split for run in method.runs),
            "Seeds": _distinct(run.seed for run in method.runs),
            "Steps": _distinct(f"{training['steps']:,}" for training in method.trainings),
            "Batch size": _distinct(f"{run.settings.batch_size:,}" for run in method.runs),
            "Minutes per run": f"{sum(minutes) / len(minutes):.1f}",
            "Device": _distinct(training["device"] for training in method.trainings),
        }
        if cells["Splits"] == "None":
            del cells["Splits"]
        rows.append(cells)
    return markdown_table(
        list(rows[0]), [list(cells.values()) for cells in rows], n_numeric=len(rows[0]) - 1
    )


def _setup(settings: BenchmarkSettings, methods: Sequence[MethodResults]) -> list[str]:
    """Return sentences on data, protocol, machine and software."""
    runs = [run for method in methods for run in method.runs]
    sentences = []
    for split, of_split in by_split(runs).items():
        result = of_split[0].result
        texts = settings.evaluation.describe(result, [run.settings for run in of_split])
        without = ", ".join(
            f"{count:,} at level {name.removeprefix('without_positives_l')}"
            for name, count in result.counts.items()
            if name.startswith("without_positives_l")
        )
        texts.append(f"Means exclude queries without a positive: {without}.")
        sentences += texts if split is None else [f"Split {split}: {' '.join(texts)}"]
    sentences.append(
        "The last checkpoint of each training is evaluated, or the best one on validation images where there are "
        "some; no checkpoint was selected on the test images."
    )
    trainings = [training for method in methods for training in method.trainings]
    versions = (
        f"{name} {version}"
        for training in trainings
        for name, version in training["versions"].items()
    )
    machines = _distinct(training["machine"] for training in trainings)
    sentences.append(f"Machine: {machines}. Software: {_distinct(versions)}.")
    return sentences + setting_notes([runs[0].result])


def _grid(
    settings: SweepSettings,
    curves: Sequence[str],
    cells: Mapping[tuple[str, int | float | str], str],
) -> str:
    """Return a table with a row per value and a column per curve."""
    rows = [
        [str(value), *(cells.get((curve, value), _MISSING) for curve in curves)]
        for value in settings.values
    ]
    return markdown_table([settings.label, *curves], rows, n_numeric=len(curves))


def _relative(mean: float, base: float) -> str:
    return _MISSING if math.isnan(mean) or not base > 0 else f"{100 * (mean / base - 1):+.2f}"


def _plus_minus(stds: Mapping[str, float], metric: str) -> str:
    return "" if (std := _std_text(stds, metric)) == _MISSING else f" ± {std}"


def _std_text(stds: Mapping[str, float], metric: str) -> str:
    std = stds.get(metric, math.nan)
    return _MISSING if math.isnan(std) else f"{shown_value(metric, std):.2f}"


def _distinct(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(map(str, values)))

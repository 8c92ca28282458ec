"""Result files of a comparison: tables to read, and tables for programs.

::

    OUT/results.parquet       a row per method, split, seed and metric
    OUT/results.md            tables with confidence intervals, and the setup
    OUT/results.tex           in the layout of the paper's Table VII
    OUT/sweeps/NAME.parquet   a row per curve, value, split, seed and metric of a sweep
    OUT/sweeps/NAME.md        a table per metric
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgld.benchmark.benchmark_settings import BenchmarkSettings
from hgld.benchmark.markdown import describe_means, results_markdown, sweep_markdown
from hgld.benchmark.method_results import MethodResults, by_split
from hgld.benchmark.run_evaluation import EvaluatedRun, per_query_file
from hgld.benchmark.runs import SweepPoint
from hgld.benchmark.training_records import TrainingRecord, read_training_record
from hgld.evaluation.reports import LatexRow, escape_latex, latex_table
from hgld.evaluation.results import metric_names, select_metrics
from hgld.io.files import atomic_write, sha256_of
from hgld.io.settings import to_dict
from hgld.tables import COMPARISON, STUDY, Provenance, TableSpec, write_table


@dataclass(frozen=True)
class ResultFiles:
    """Files of the table, and the metrics that are its columns."""

    parquet: Path
    markdown: Path
    latex: Path
    columns: tuple[str, ...]


def write_results(settings: BenchmarkSettings, methods: Sequence[MethodResults], out: Path) -> ResultFiles:
    """Write the results of the table; ``results.md`` links the figures that exist.

    Args:
        settings: Settings of the comparison.
        methods: Results in the order of the table.
        out: Output folder.

    Raises:
        ConfigurationError: No method has one of the metrics that the settings name as columns.
        InputError: A file of a run is missing.
    """
    runs = [run for method in methods for run in method.runs]
    columns = tuple(select_metrics(settings.columns, metric_names([run.result for run in runs])))
    files = ResultFiles(out / "results.parquet", out / "results.md", out / "results.tex", columns)
    latex = [
        LatexRow(method.latex or escape_latex(method.title), method.means, method.stds)
        for method in methods
        if set(method.metrics).intersection(columns)
    ]
    splits = list(by_split(runs))
    caption = settings.title if len(splits) == 1 else f"{settings.title}; {describe_means(splits)}"
    _write_text(files.latex, latex_table(latex, columns, caption=escape_latex(caption).replace("±", r"$\pm$")))
    _write_text(files.markdown, results_markdown(settings, methods, columns, out))
    rows = [
        {"method": method.name, "title": method.title, "baseline": method.baseline, **row}
        for method in methods
        for run, training in zip(method.runs, method.trainings, strict=True)
        for row in _rows(run, training)
    ]
    _write_rows(files.parquet, COMPARISON, rows, settings, runs, out)
    return files


def write_sweep(
    settings: BenchmarkSettings,
    name: str,
    points: Sequence[tuple[SweepPoint, tuple[EvaluatedRun, ...]]],
    out: Path,
) -> tuple[Path, Path]:
    """Write the results of a sweep; the text shows its figure if that exists.

    Args:
        settings: Settings of the comparison.
        name: Name of the sweep.
        points: Points in the order of curves and values, with their evaluated runs.
        out: Output folder of the comparison.

    Returns:
        The Parquet table and the Markdown text.

    Raises:
        InputError: A file of a run is missing.
    """
    folder = out / "sweeps"
    text, table = folder / f"{name}.md", folder / f"{name}.parquet"
    _write_text(text, sweep_markdown(settings.sweeps[name], points, figure=folder / f"{name}.png"))
    rows = [
        {"curve": point.curve, "setting": str(point.value), "method": run.run.method, **row}
        for point, runs in points
        for run in runs
        for row in _rows(run, read_training_record(run.run))
    ]
    _write_rows(table, STUDY, rows, settings, [run for _, runs in points for run in runs], out)
    return table, text


def _rows(run: EvaluatedRun, training: TrainingRecord) -> list[dict[str, Any]]:
    """Return a row per metric, without the columns that name the method."""
    record = {name: getattr(training, name) for name in ("steps", "train_seconds", "device", "machine")}
    return [
        {"split": run.run.split, "seed": run.run.seed, "metric": metric, "value": value, **record}
        for metric, value in run.result.means.items()
    ]


def _write_rows(
    path: Path,
    spec: TableSpec,
    rows: Sequence[Mapping[str, Any]],
    settings: BenchmarkSettings,
    runs: Sequence[EvaluatedRun],
    out: Path,
) -> None:
    digests = {str(run.run.folder.relative_to(out)): sha256_of(per_query_file(run.run)) for run in runs}
    write_table(
        path,
        spec,
        pa.Table.from_pylist([dict(row) for row in rows], spec.schema),
        Provenance("benchmark", to_dict(settings), digests),
    )


def _write_text(path: Path, text: str) -> None:
    with atomic_write(path) as draft:
        draft.write_text(f"{text}\n", encoding="utf-8")

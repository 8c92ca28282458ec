"""The files of a comparison's results, for people and programs.

::

    OUT/results.parquet       a row per method, seed and metric
    OUT/results.md            tables with intervals of confidence, and what the numbers depend on
    OUT/results.tex           in the layout of the paper's Table VII
    OUT/sweeps/NAME.parquet   a row per curve, value, seed and metric of a study
    OUT/sweeps/NAME.md        a table per metric
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import pyarrow as pa

from hgld.benchmark import markdown
from hgld.benchmark.benchmark_settings import BenchmarkSettings
from hgld.benchmark.method_results import MethodResults, best_baseline
from hgld.benchmark.run_evaluation import EvaluatedRun, per_query_file
from hgld.benchmark.runs import SweepPoint
from hgld.benchmark.training_jobs import Training, training_of
from hgld.evaluation.report import LatexRow, columns_there, latex_table, latex_text, metrics_of, text_table
from hgld.io.files import atomic_write, sha256_of
from hgld.io.settings import to_dict
from hgld.tables import COMPARISON, STUDY, Provenance, TableSpec, write_table


@dataclass(frozen=True)
class ResultFiles:
    """Where the results are."""

    parquet: Path
    markdown: Path
    latex: Path


def write_results(
    settings: BenchmarkSettings, methods: Sequence[MethodResults], out: Path, *, about: Sequence[str] = ()
) -> ResultFiles:
    """Write the results of the table; pictures that are there already are named in ``results.md``.

    Args:
        settings: of the comparison.
        methods: in the order of the table.
        out: the folder.
        about: sentences to add to what the numbers depend on.

    Raises:
        ConfigurationError: none of the metrics that are to be columns were taken.
        InputError: a file that a run was made from, or of the run, is missing.
    """
    files = ResultFiles(out / "results.parquet", out / "results.md", out / "results.tex")
    columns = _columns(settings, methods)
    latex = [
        LatexRow(method.latex or latex_text(method.title), method.means, method.spreads)
        for method in methods
        if set(method.metrics).intersection(columns)
    ]
    _write_text(files.latex, latex_table(latex, columns, caption=latex_text(settings.title)))
    _write_text(files.markdown, markdown.results(settings, methods, columns, out, about=about))
    rows = [
        {"method": method.name, "title": method.title, "baseline": method.baseline, **row}
        for method in methods
        for one, training in zip(method.runs, method.trainings, strict=True)
        for row in _rows(one, training)
    ]
    _write_rows(files.parquet, COMPARISON, rows, settings, [one for method in methods for one in method.runs], out)
    return files


def write_sweep(
    settings: BenchmarkSettings,
    name: str,
    points: Sequence[tuple[SweepPoint, tuple[EvaluatedRun, ...]]],
    out: Path,
) -> tuple[Path, Path]:
    """Write the results of a study; its picture, if it is there already, is shown.

    Args:
        settings: of the comparison.
        name: of the study.
        points: in the order of curves and values, with their runs that are evaluated, if there are any.
        out: the folder of the comparison.

    Returns:
        The table and the text.

    Raises:
        InputError: a file of a run is missing.
    """
    folder = out / "sweeps"
    text, table = folder / f"{name}.md", folder / f"{name}.parquet"
    _write_text(text, markdown.study(settings.sweeps[name], points, picture=folder / f"{name}.png"))
    rows = [
        {"curve": point.curve, "setting": str(point.value), "method": one.run.method, **row}
        for point, runs in points
        for one in runs
        for row in _rows(one, training_of(one.run))
    ]
    _write_rows(table, STUDY, rows, settings, [one for _, runs in points for one in runs], out)
    return table, text


def format_comparison(settings: BenchmarkSettings, methods: Sequence[MethodResults], *, width: int = 80) -> str:
    """What the command line prints: means, and how much better each method is than the best baseline.

    Raises:
        ConfigurationError: none of the metrics that are to be columns were taken.
    """
    columns = _columns(settings, methods)
    means = {
        method.title: [markdown.mean_and_spread(method.means, method.spreads, metric) for metric in columns]
        for method in methods
    }
    parts = [text_table("mean ± sd in %", columns, means, width=width)]
    baselines = {metric: best for metric in columns if (best := best_baseline(methods, metric)) is not None}
    if baselines:
        better = {
            method.title: [markdown.gain(method, best, metric) for metric, best in baselines.items()]
            for method in methods
        }
        parts.append(text_table("difference, 95 % CI", list(baselines), better, width=width))
        named = ", ".join(f"{metric} {best.title}" for metric, best in baselines.items())
        parts.append(fill(f"The best baseline, which the others are compared with: {named}.", width))
    return "\n".join(parts)


def _columns(settings: BenchmarkSettings, methods: Sequence[MethodResults]) -> list[str]:
    return columns_there(settings.columns, metrics_of([one.result for method in methods for one in method.runs]))


def _rows(one: EvaluatedRun, training: Training) -> list[dict[str, Any]]:
    """The rows of a run, but for whose it is."""
    took = {name: getattr(training, name) for name in ("steps", "train_seconds", "device", "machine")}
    return [
        {"seed": one.run.seed, "metric": metric, "value": value, **took} for metric, value in one.result.means.items()
    ]


def _write_rows(
    path: Path,
    spec: TableSpec,
    rows: Sequence[Mapping[str, Any]],
    settings: BenchmarkSettings,
    runs: Sequence[EvaluatedRun],
    out: Path,
) -> None:
    digests = {str(one.run.folder.relative_to(out)): sha256_of(per_query_file(one.run)) for one in runs}
    write_table(
        path,
        spec,
        pa.Table.from_pylist([dict(row) for row in rows], spec.schema),
        Provenance("benchmark", to_dict(settings), digests),
    )


def _write_text(path: Path, text: str) -> None:
    with atomic_write(path) as draft:
        draft.write_text(f"{text}\n", encoding="utf-8")

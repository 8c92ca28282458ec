"""Comparisons of methods, of models and of rejection scores: benchmark, compare-models, compare-rejection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.benchmark.model_comparison_settings import ModelComparisonConfig
from hgld.cli.application import SharedCommand, app
from hgld.cli.models import Images, Manifest, complete_comparison, with_images
from hgld.cli.options import field_options, help_panels
from hgld.cli.output import figure_formats, print_summary
from hgld.cli.render import WIDTH, aligned, wrapped_table
from hgld.cli.shared_options import OUT_FOLDER, FigureFormat, Force, part_option
from hgld.compute.parts import PartsConfig
from hgld.errors import indented_list
from hgld.evaluation.settings import RerankSettings
from hgld.progress import NoProgress, TerminalProgress

if TYPE_CHECKING:
    from hgld.benchmark.compared_models import ComparedModels
    from hgld.benchmark.comparison import ComparisonSummary
    from hgld.benchmark.cost_estimate import CostEstimate
    from hgld.benchmark.rejection import RejectionComparison
    from hgld.benchmark.rejection.values import RejectionValues
    from hgld.benchmark.runs import EvaluatedRun


@app.command(cls=SharedCommand, rich_help_panel="Retrieval")
@help_panels(
    {
        "Selection of runs": ["method", "seeds", "splits", "sweep"],
        "Several machines": ["part", "ray", "parts"],
    }
)
@field_options(
    PartsConfig,
    part=part_option(
        "Train one of several parts of the runs, such as 3/16; the same command without --part trains the missing "
        "runs, and writes the results. Default: all runs."
    ),
)
def benchmark(
    *,
    config: Annotated[str, typer.Argument(autocompletion=complete_comparison)],
    out: Annotated[Path, OUT_FOLDER],
    overrides: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None,
    manifest: Manifest = None,
    images: Images = None,
    method: list[str] | None = None,
    seeds: str | None = None,
    splits: str | None = None,
    sweep: list[str] | None = None,
    device: str | None = None,
    plan: bool = False,
    division: PartsConfig,
    formats: FigureFormat = None,
    force: bool = False,
) -> None:
    """Train methods with several seeds and splits, evaluate and compare them: tables, figures, confidence intervals.

    Finished runs are kept; an interrupted comparison is resumed. Jobs of a cluster share the runs by --part 1/16,
    --part 2/16 and so on. Several processes train each run together: torchrun --nproc-per-node 2 -m hgld benchmark
    ..., or srun --ntasks 2 hgld benchmark ...

    Example: hgld benchmark own_images --manifest grocery.parquet --images data/grocery -o runs/grocery

    Args:
        config: Preset, such as own_images (hgld presets lists all), or file of settings of the comparison (YAML).
        out: Folder of training runs and results.
        overrides: Setting to change in all training runs; repeatable.
        method: Method to run; repeatable. Default: all methods in CONFIG.
        seeds: Random seeds of the training runs, e.g. 0,1. Default: the seeds in CONFIG.
        splits: Seeds of random splits of the images, e.g. 0,1. Default: the seeds in CONFIG.
        sweep: Sweep in CONFIG to run instead of the methods, or all; repeatable.
        device: Device: cpu, cuda or cuda:N. Default: cuda if available, otherwise cpu.
        plan: Print the numbers of runs, steps and images, then exit.
        force: Retrain only runs whose settings or data changed, and rewrite the results.
    """
    from hgld.benchmark.comparison import compare_methods, parse_seeds, read_comparison
    from hgld.benchmark.cost_estimate import estimate_cost
    from hgld.compute.machine import disable_trimming
    from hgld.compute.processes import (
        default_device,
        joined_processes,
        local_device,
        training_backend,
    )

    comparison = read_comparison(
        config,
        out,
        overrides=with_images(overrides, manifest, images),
        methods=method or (),
        seeds=parse_seeds(seeds) if seeds else (),
        splits=parse_seeds(splits, "splits") if splits else (),
        sweeps=sweep or (),
    )
    if plan:
        typer.echo(format_cost(estimate_cost(comparison.settings, comparison.runs)))
        return
    disable_trimming()
    device = device or default_device()
    if division.ray is not None:
        work = partial(compare_methods, comparison, force=force, device=device)
        with TerminalProgress("benchmark", "parts", interval_s=60) as progress:
            division.run_on_ray(work, progress, device=device)
    # After the parts all runs are done, and only the reports are written.
    with (
        figure_formats(formats),
        joined_processes(training_backend(device)) as processes,
        TerminalProgress("benchmark", "runs", interval_s=60) as bar,
    ):
        summary = compare_methods(
            comparison,
            part=division.part,
            force=force,
            device=local_device(device),
            processes=processes,
            progress=NoProgress() if processes.rank else bar,
        )
    if processes.rank == 0:
        print_summary(out, summary, format_comparison)


def format_comparison(summary: ComparisonSummary) -> str:
    """Return the tables, the number of runs, and the files written."""
    lines = []
    if summary.methods:
        lines += [format_results(summary), ""]
    n_done_before = summary.n_runs - summary.n_new
    lines.append(f"{summary.n_runs} runs, {n_done_before} of them done before")
    lines += map(str, summary.files)
    return "\n".join(lines)


def format_results(summary: ComparisonSummary) -> str:
    """Return the means of all methods and their differences from the best baseline."""
    from hgld.benchmark.result_files import describe_means, difference_text, mean_and_std
    from hgld.benchmark.statistics import best_baselines, by_split

    means = []
    runs: list[EvaluatedRun] = []
    for method in summary.methods:
        cells = {}
        for metric in summary.columns:
            cells[metric] = mean_and_std(method.means, method.stds, metric)
        means.append((method.title, cells))
        runs += method.runs
    parts = [wrapped_table("mean ± sd in %", summary.columns, means)]
    baselines = best_baselines(summary.methods, summary.columns)
    if baselines:
        differences = []
        for method in summary.methods:
            cells = {}
            for metric, best in baselines.items():
                cells[metric] = difference_text(method, best, metric)
            differences.append((method.title, cells))
        parts.append(wrapped_table("difference, 95 % CI", list(baselines), differences))
        titles = ", ".join(f"{metric} {best.title}" for metric, best in baselines.items())
        parts.append(fill(f"Best baseline, from which differences are taken: {titles}.", WIDTH))
    splits = list(by_split(runs))
    if len(splits) > 1:
        meaning = describe_means(splits)
        note = f"Values are {meaning}; intervals cover the choice of the split."
        parts.append(fill(note, WIDTH))
    return "\n".join(parts)


def format_cost(cost: CostEstimate) -> str:
    """Return the runs, steps and images of a comparison, and the files that are missing."""
    n_runs = 0
    n_to_do = 0
    n_images = 0
    rows = []
    for run in cost.runs:
        n_runs += run.n_runs
        n_to_do += run.n_to_do
        n_images += run.n_to_train * run.steps * run.batch_size
        rows.append([run.title, run.n_to_do, run.steps])
    lines = [f"{cost.title}: {n_runs} runs, {n_runs - n_to_do} of them done", ""]
    lines += aligned(["run of", "to do", "steps"], rows)
    lines += ["", f"{n_images:,} training images, counting repetitions"]
    if cost.missing:
        lines.append("")
        lines.append(
            "Missing files (docs/how-to/gldv2.md and docs/how-to/reproduce.md say how to make them):"
        )
        lines.append(indented_list(cost.missing))
    return "\n".join(lines)


@app.command(rich_help_panel="Retrieval")
@help_panels(
    {
        "Treatments and reference": ["treatments", "train_split", "reference"],
        "Re-ranking": ["rerank", "rerank_neighbours", "rerank_alpha"],
        "Speed": ["device", "batch_size", "workers"],
    }
)
@field_options(ModelComparisonConfig, treatments="--treatment", metrics="--metric")
def compare_models(
    *,
    models: Annotated[list[str], typer.Argument(metavar="[NAME=]MODEL[?OPTION=VALUE&...]")],
    manifest: Annotated[Path, typer.Option()],
    images: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    out: Annotated[Path, OUT_FOLDER],
    config: ModelComparisonConfig,
    reranking: RerankSettings,
    formats: FigureFormat = None,
    force: Force = False,
) -> None:
    """Compare models on the same images: a table with intervals, differences and ranks, figures, and a page.

    Every model embeds the images once; an interrupted comparison is resumed. A model that fails is reported, and the
    others are compared.

    Example: hgld compare-models efficientnet-lite0 efficientnet-lite1 --manifest manifest.parquet -o models/

    Args:
        models: Model as for hgld embed-images, or a file of embeddings. Options: pretrained, size, resize, fit,
            interpolation; and seen=yes|no, whether the model was trained on images of the evaluated classes.
        manifest: Table from hgld manifest.
        images: Folder that the paths in the manifest start from. Default: the folder of --manifest.
        out: Folder of embeddings and results.
    """
    from hgld.benchmark.compared_models import comparison_request, read_finished, record_request
    from hgld.benchmark.model_comparison_settings import parse_model

    entries = [parse_model(text) for text in models]
    config = replace(config, reranking=reranking)
    request = comparison_request(entries, manifest, images, config)
    with figure_formats(formats), TerminalProgress("compare-models", "images") as progress:
        finished = None if force else read_finished(out, request, entries)
        if finished is not None:
            compared, files = finished
            _print_model_results(compared, files)
            return
        from hgld.benchmark import model_comparison

        outcome, files = model_comparison.compare_models(
            entries, manifest, out, config, root=images, force=force, progress=progress
        )
    failures = []
    for facts in outcome.facts:
        if facts.failure:
            failures.append(f"failed: {facts.name}: {facts.failure}")
    if request is not None and not failures:
        record_request(out, request)
    _print_model_results(outcome.compared, files, failures)


def _print_model_results(
    compared: ComparedModels, files: Sequence[Path], failures: Sequence[str] = ()
) -> None:
    from hgld.evaluation.metric_units import shown_value

    rank_title = f"rank by {compared.main_metric}"
    columns = [rank_title, *compared.metrics]
    rows = []
    for name in compared.names:
        main_row = compared.rows[compared.main_metric, name]
        cells = {rank_title: f"{main_row.best_rank} to {main_row.worst_rank}"}
        for metric in compared.metrics:
            mean = shown_value(metric, compared.rows[metric, name].mean)
            cells[metric] = f"{mean:.2f}"
        rows.append((name, cells))
    typer.echo(wrapped_table("mean, in % or levels", columns, rows))
    for failure in failures:
        typer.echo(failure)
    for file in files:
        typer.echo(file)


@app.command(rich_help_panel="Retrieval")
def compare_rejection(
    settings: Path,
    out: Annotated[Path, OUT_FOLDER],
    plan: bool = False,
    formats: FigureFormat = None,
    force: Force = False,
) -> None:
    """Compare rejection scores on known, near and far queries: tables, figures, intervals, confident mistakes.

    Scores that are finished are kept; an interrupted comparison is resumed.

    Example: hgld compare-rejection washington -o runs/rejection

    Args:
        settings: Settings of the comparison: a YAML file, or the name of settings of hgld, such as washington.
        out: Folder of scores and results.
        plan: Print the sets of images, the missing files and the finished scores, then exit.
    """
    from hgld.benchmark import rejection
    from hgld.io.presets import rejection_file

    study = rejection.RejectionComparison(
        rejection.read_rejection_settings(rejection_file(settings)), out
    )
    if plan:
        typer.echo(format_rejection_plan(study))
        return
    with figure_formats(formats), TerminalProgress("compare-rejection", "scores") as progress:
        values, files = rejection.compare_rejection(study, force=force, progress=progress)
    typer.echo("\n".join([format_rejection(study, values), *map(str, files), str(out)]))


def format_rejection(study: RejectionComparison, values: RejectionValues) -> str:
    """Return the means of GAP and AUROC of each score, and the scores that failed."""
    from hgld.benchmark.rejection.settings import ALL_UNKNOWN

    settings = study.settings
    unknown = values.unknown()
    columns = [(unknown[-1], "gap")]
    columns += [(name, "auroc") for name in unknown if name != ALL_UNKNOWN]
    titles = [f"{metric.upper()} {name}" for name, metric in columns]
    lines = []
    for embedding_name, embedding in settings.embeddings.items():
        rows = []
        for score in settings.score_settings():
            cells = []
            for queries, metric in columns:
                mean = values.mean((embedding_name, score, queries, metric))
                cells.append("–" if mean is None else f"{100 * mean['value']:.1f}")
            if any(cell != "–" for cell in cells):
                rows.append([settings.score_title(score), *cells])
        lines += aligned([f"{embedding.title}, %", *titles], rows)
        lines.append("")
    lines.append(f"{study.n_results:,} scores, {study.n_kept:,} done before")
    if study.failure_lines:
        n_failures = len(study.failure_lines)
        lines.append(f"{n_failures:,} not computed:\n{indented_list(study.failure_lines)}")
    return "\n".join(lines)


def format_rejection_plan(study: RejectionComparison) -> str:
    """Return the sets of images of each split, the scores to compute, and the missing files."""
    settings = study.settings
    missing = study.missing()
    sizes_by_split = study.sizes()
    names = list(next(iter(sizes_by_split.values())))
    n_pairs = 0
    rows = []
    for split, sizes in sizes_by_split.items():
        n_queries = sum(sizes.values()) - sizes["index"]
        n_pairs += sizes["index"] * n_queries
        rows.append([str(split)] + [sizes[name] for name in names])
    n_scores = len(settings.score_settings())
    n_embeddings = len(settings.embeddings)
    n_done = 0 if missing else study.n_finished()
    n_comparisons = n_pairs * n_embeddings * n_scores
    lines = [settings.title, ""]
    lines += aligned(["split", *names], rows)
    lines += [
        "",
        f"{study.n_results:,} scores ({n_scores} of {n_embeddings} embeddings on {len(rows)} splits), "
        f"{n_done:,} of them done",
        f"up to {n_comparisons:,} comparisons of a query and an image of the index",
    ]
    if missing:
        lines += ["", "Missing files:", indented_list(missing)]
    return "\n".join(lines)

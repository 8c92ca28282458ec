"""Format the output of ``hgld benchmark``."""

from __future__ import annotations

from textwrap import fill, wrap

from hgld.benchmark.comparison import ComparisonSummary
from hgld.benchmark.cost_estimate import CostEstimate, Gpus
from hgld.benchmark.result_files import describe_means, gain, mean_and_std
from hgld.benchmark.statistics import best_baselines, by_split
from hgld.cli.render import aligned, wrapped_table
from hgld.errors import indented_list
from hgld.progress import byte_size


def format_comparison(summary: ComparisonSummary, *, width: int = 80) -> str:
    """Return the tables, the number of runs, and the files written."""
    lines = [f"{summary.n_runs} runs, {summary.n_runs - summary.n_new} of them done before"]
    lines += map(str, summary.files)
    tables = [format_results(summary, width=width), ""] if summary.methods else []
    return "\n".join([*tables, *lines])


def format_results(summary: ComparisonSummary, *, width: int = 80) -> str:
    """Return the means of all methods and their differences from the best baseline."""
    methods, columns = summary.methods, summary.columns
    means = [
        (method.title, {metric: mean_and_std(method.means, method.stds, metric) for metric in columns})
        for method in methods
    ]
    parts = [wrapped_table("mean ± sd in %", columns, means, width=width)]
    if baselines := best_baselines(methods, columns):
        gains = [
            (method.title, {metric: gain(method, best, metric) for metric, best in baselines.items()})
            for method in methods
        ]
        parts.append(wrapped_table("difference, 95 % CI", list(baselines), gains, width=width))
        titles = ", ".join(f"{metric} {best.title}" for metric, best in baselines.items())
        parts.append(fill(f"Best baseline, from which differences are taken: {titles}.", width))
    splits = list(by_split([run for method in methods for run in method.runs]))
    if len(splits) > 1:
        parts.append(fill(f"Values are {describe_means(splits)}; intervals cover the choice of the split.", width))
    return "\n".join(parts)


def format_cost(cost: CostEstimate, gpus: Gpus | None = None, *, width: int = 80) -> str:
    """Return the steps, images, hours, memory and disk of a comparison, and the files that are missing.

    Args:
        cost: Cost of the comparison.
        gpus: GPUs to estimate hours for; None for none.
        width: Width of the notes.
    """
    n_runs, to_do = sum(run.n_runs for run in cost.runs), sum(run.n_to_do for run in cost.runs)
    n_images = sum(run.n_to_train * run.steps * run.batch_size for run in cost.runs)
    rows = [
        [run.title, run.n_to_do, run.steps, *([f"{max(run.hours(gpus), default=0):,.2f}"] if gpus else [])]
        for run in cost.runs
    ]
    lines = [
        f"{cost.title}: {n_runs} runs, {n_runs - to_do} of them done",
        "",
        *aligned(["run of", "to do", "steps", *(["hours"] if gpus else [])], rows),
        "",
        *_totals(cost, gpus, f"{n_images:,} training images, counting repetitions"),
        "",
        *_notes(gpus, width),
    ]
    if cost.missing:
        lines += ["", "Missing files (docs/how-to/gldv2.md and docs/how-to/reproduce.md say how to make them):"]
        lines.append(indented_list(cost.missing))
    return "\n".join(lines)


def format_training_cost(cost: CostEstimate, gpus: Gpus, *, width: int = 80) -> str:
    """Return the estimated hours, memory and disk of one training."""
    return "\n".join([*_totals(cost, gpus), "", *_notes(gpus, width)])


def _totals(cost: CostEstimate, gpus: Gpus | None, *counts: str) -> list[str]:
    held = max(run.state_bytes + run.gradient_bytes for run in cost.runs)
    checkpoints = sum(run.n_runs * run.n_checkpoints * run.state_bytes for run in cost.runs)
    embeddings = sum(run.embedding_bytes for run in cost.runs)
    lines = [
        *counts,
        f"memory of a process: up to {byte_size(held)} for parameters, gradients and optimisers",
        f"disk: {byte_size(cost.image_bytes)} of images, {byte_size(checkpoints)} of checkpoints, "
        f"{byte_size(embeddings)} of embeddings",
    ]
    if gpus is None:
        return lines
    gpu_hours = sum(hours for run in cost.runs for hours in run.hours(gpus)) * gpus.per_run
    together = f", {gpus.per_run} for each run" if gpus.per_run > 1 else ""
    devices = "1 GPU" if gpus.count == 1 else f"{gpus.count} GPUs{together}"
    hours = f"{gpu_hours:,.1f} GPU-hours for the runs to do; {cost.elapsed_h(gpus):,.1f} hours on {devices}"
    return [hours, *lines]


def _notes(gpus: Gpus | None, width: int) -> list[str]:
    if gpus is None:
        return wrap("For hours, say with --images-per-second how many images a GPU trains on.", width)
    notes = [
        f"Nothing was timed: each GPU is assumed to train on {gpus.images_per_s:g} images per second with any of the "
        "losses, and to embed as many for evaluations. Ranking, the initialisation of projections and activations "
        "are not included.",
        f"Reading has to keep up with {gpus.count * gpus.images_per_s:g} images per second on all GPUs.",
        *(["Communication between the processes of a run is not included."] if gpus.per_run > 1 else []),
    ]
    return [line for note in notes for line in wrap(note, width)]

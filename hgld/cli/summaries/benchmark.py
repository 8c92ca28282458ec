"""Format the output of ``hgld benchmark``."""

from __future__ import annotations

from textwrap import fill, wrap

from hgld.benchmark.comparison import ComparisonSummary
from hgld.benchmark.cost_estimate import CostEstimate
from hgld.benchmark.launcher import Slot
from hgld.benchmark.markdown import describe_means, gain, mean_and_std
from hgld.benchmark.method_results import best_baselines, by_split
from hgld.benchmark.step_timing import CPU_PICTURES
from hgld.cli.render import aligned, wrapped_table
from hgld.errors import indented_list
from hgld.progress import byte_size

_FLOAT32_BYTES = 4
_MAX_SLOTS = 8


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


def format_cost(cost: CostEstimate, *, width: int = 80) -> str:
    """Return the estimated steps, images, hours, memory and disk, and the files that are missing."""
    to_do = sum(len(run.hours()) for run in cost.runs)
    n_runs = sum(run.n_runs for run in cost.runs)
    n_images = sum(run.n_to_train * run.steps * run.batch_size for run in cost.runs)
    timed = cost.assumed_images_per_s is None
    rows = [
        [
            run.title,
            len(run.hours()),
            run.steps,
            f"{run.model.step_s:.3f}",
            *[f"{run.loss.step_s:.3f}"] * timed,
            f"{run.training_h + run.evaluation_h:,.2f}",
        ]
        for run in cost.runs
    ]
    header = ["run of", "to do", "steps", *(["model s", "loss s"] if timed else ["step s"]), "hours"]
    lines = [
        f"{cost.title}: {n_runs} runs, {n_runs - to_do} of them done",
        "",
        *aligned(header, rows),
        "",
        _hours(cost),
        f"{n_images:,} training images, counting repetitions",
        _memory(cost),
        _disk(cost),
        "",
        *(line for note in _notes(cost) for line in wrap(note, width)),
    ]
    if cost.missing:
        lines += ["", "Missing files (docs/how-to/gldv2.md and docs/how-to/reproduce.md say how to make them):"]
        lines.append(indented_list(cost.missing))
    return "\n".join(lines)


def format_training_cost(cost: CostEstimate, *, width: int = 80) -> str:
    """Return the estimated hours, memory and disk of one training."""
    notes = (line for note in _notes(cost) for line in wrap(note, width))
    return "\n".join([_hours(cost), _memory(cost), _disk(cost), "", *notes])


def _hours(cost: CostEstimate) -> str:
    devices = cost.slots[0].devices
    total = (
        f"{cost.total_h() * len(devices):,.1f} GPU-hours"
        if _on_gpu(cost.slots[0])
        else f"{cost.total_h():,.1f} hours"
    )
    n_slots = len(cost.slots)
    slots = " | ".join(map(str, cost.slots)) if n_slots <= _MAX_SLOTS else f"{n_slots} times {cost.slots[0]}"
    return f"{total} for the runs to do; {cost.elapsed_h():,.1f} hours on {slots}"


def _memory(cost: CostEstimate) -> str:
    held = max(run.loss.state_bytes + run.loss.gradient_bytes for run in cost.runs)
    peak = max(max(run.model.peak_bytes, run.loss.peak_bytes) for run in cost.runs)
    text = f"memory of a process: up to {byte_size(held)} for parameters, gradients and optimisers"
    return f"{text}, and {byte_size(peak)} more in a step" if peak else text


def _disk(cost: CostEstimate) -> str:
    checkpoints = sum(run.n_runs * run.n_checkpoints * run.loss.state_bytes for run in cost.runs)
    embeddings = sum(run.n_runs * run.n_embedded * run.model.model.dim * _FLOAT32_BYTES for run in cost.runs)
    return (
        f"disk: {byte_size(cost.image_bytes)} of images, {byte_size(checkpoints)} of checkpoints, "
        f"{byte_size(embeddings)} of embeddings"
    )


def _notes(cost: CostEstimate) -> list[str]:
    slot = cost.slots[0]
    notes = _timing_notes(cost) if cost.assumed_images_per_s is None else _assumption_notes(cost)
    if cost.images_per_s is not None:
        notes.append(f"One process of this machine reads {cost.images_per_s:,.0f} images per second.")
    else:
        notes.append("Reading images and the evaluations during training are not included: images are missing.")
    if len(slot.devices) > 1:
        notes.append("Communication between the processes of a run is not included.")
    return notes


def _timing_notes(cost: CostEstimate) -> list[str]:
    sample = "a batch of" if _on_gpu(cost.slots[0]) else f"at most {CPU_PICTURES}"
    return [
        f"Measured on {cost.device}, once for each "
        f"model and loss: models with {sample} random images, losses and optimisers (loss s) with a whole batch.",
        "Hours include embedding for evaluations, but neither ranking nor the initialisation of projections; warm-up "
        "epochs take less than estimated.",
    ]


def _assumption_notes(cost: CostEstimate) -> list[str]:
    assert cost.assumed_images_per_s is not None
    n_gpus = sum(len(slot.devices) for slot in cost.slots)
    return [
        f"Nothing was timed: each GPU is assumed to train on {cost.assumed_images_per_s:g} images per second with "
        "any of the losses, and to embed as many for evaluations. Ranking and the initialisation of projections are "
        "not included. Memory of a step is what autograd keeps of the backbone, by count; a GPU needs more.",
        f"Reading has to keep up with {n_gpus * cost.assumed_images_per_s:g} images per second on all GPUs.",
    ]


def _on_gpu(slot: Slot) -> bool:
    return slot.devices[0] != "cpu"

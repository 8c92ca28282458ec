"""Training: train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import SharedCommand, app, friendly_errors, print_summary, writable_folder
from hgld.cli.planning import GpuCount, ImagesPerSecond, require_plan
from hgld.cli.presets import Images, Manifest, complete_training, with_images


@app.command(cls=SharedCommand, rich_help_panel="Retrieval")
def train(
    config: Annotated[
        str,
        typer.Argument(
            help="Preset, such as happier or h-gldv2/happier (hgld presets lists all), or file of settings (YAML).",
            autocompletion=complete_training,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FOLDER", help="Folder for checkpoints and the history.", callback=writable_folder
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. loss.lambda=0.3; repeatable."),
    ] = None,
    manifest: Manifest = None,
    images: Images = None,
    loggers: Annotated[
        list[str] | None,
        typer.Option(
            "--logger",
            help="Where to log besides history.jsonl: tensorboard, wandb or mlflow; repeatable.",
            show_default="tensorboard",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in the folder, if there is one.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Delete an existing run in the folder, and start again.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="Device: cpu, cuda or cuda:N.", show_default="cuda if available, else cpu")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print all settings and the numbers of images and steps, then exit.")
    ] = False,
    gpus: GpuCount = None,
    images_per_second: ImagesPerSecond = None,
) -> None:
    """Train a model with one of the losses of the papers; evaluate it before, during and after the training.

    Several processes share each batch: torchrun --nproc-per-node 2 -m hgld train ..., or srun --ntasks 2 hgld
    train ...

    Example: hgld train happier --manifest grocery.parquet --images data/grocery -o runs/happier
    """
    settings_options = {
        "batch_size": "--set batch_size",
        "per_class": "--set sampler.per_class",
        "pretrained": "--set model.pretrained",
        "images_per_s": "--images-per-second",
        "gpus": "--gpus",
    }
    with friendly_errors(again="continue with --resume", **settings_options):
        import torch

        from hgld.benchmark.cost_estimate import Gpus, estimate_training_cost
        from hgld.cli.summaries.benchmark import format_training_cost
        from hgld.cli.summaries.training import format_plan, format_training
        from hgld.compute.malloc import disable_trimming
        from hgld.compute.processes import joined_processes, local_device, training_backend
        from hgld.errors import ConfigurationError
        from hgld.progress import NoProgress, TerminalProgress
        from hgld.training import run
        from hgld.training.training_images import TrainingImages

        require_plan(plan=plan, gpus=gpus, images_per_second=images_per_second)
        changes = with_images(overrides, manifest, images)
        if loggers:
            changes.append(f"loggers=[{', '.join(loggers)}]")
        settings = run.read_training_settings(config, changes)
        if plan:
            typer.echo(format_plan(TrainingImages(settings)))
            if images_per_second is not None:
                described = Gpus(gpus or 1, gpus or 1, images_per_second)
                typer.echo(f"\n{format_training_cost(estimate_training_cost(settings), described)}")
            return
        if out is None:
            raise ConfigurationError("no folder for the run; name one with --out")
        disable_trimming()
        device = local_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        with joined_processes(training_backend(device)) as processes, TerminalProgress("train", "images") as bar:
            summary = run.train(
                settings,
                out,
                resume=resume,
                force=force,
                device=device,
                processes=processes,
                progress=NoProgress() if processes.rank else bar,
            )
        if processes.rank == 0:
            print_summary(out, summary, format_training)

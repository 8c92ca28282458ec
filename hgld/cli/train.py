"""Training: train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import app, friendly_errors, tell


@app.command(rich_help_panel="Retrieval")
def train(
    config: Annotated[Path, typer.Argument(help="Settings (YAML), such as those in pipelines/benchmarks.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Where checkpoints and the history go.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as loss.lambda=0.3; repeatable."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in the folder, if there is one.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Delete the run in the folder.")] = False,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N.", show_default="cuda if there is one")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print all settings and the numbers of images and steps, and stop.")
    ] = False,
) -> None:
    """Train a model with one of the losses of the papers, and evaluate it before, meanwhile and after.

    Several processes share each batch: torchrun --nproc-per-node 2 -m hgld train ...

    Example: hgld train pipelines/benchmarks/washington/happier.yaml -o runs/happier
    """
    with friendly_errors(again="go on with --resume"):
        import torch

        from hgld.compute.malloc import disable_trimming
        from hgld.compute.processes import joined_processes, local_device, training_backend
        from hgld.errors import ConfigurationError
        from hgld.progress import NoProgress, TerminalProgress
        from hgld.training import run

        settings = run.read_training_settings(config, overrides or ())
        if plan:
            typer.echo(run.plan(settings))
            return
        if out is None:
            raise ConfigurationError("there is no folder for the run; name one with -o")
        disable_trimming()
        where = local_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        with joined_processes(training_backend(where)) as processes, TerminalProgress("train", "images") as shown:
            summary = run.train(
                settings,
                out,
                resume=resume,
                force=force,
                device=where,
                processes=processes,
                progress=NoProgress() if processes.rank else shown,
            )
        if processes.rank == 0:  # the first one tells
            tell(out, summary)

"""Comparisons of methods: benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from hgld.cli.base import FigureFormat, app, friendly_errors, print_summary, writable_folder
from hgld.cli.planning import GpuCount, ImagesPerSecond, require_plan
from hgld.cli.presets import Images, Manifest, complete_comparison, with_images


@app.command(rich_help_panel="Retrieval")
def benchmark(
    config: Annotated[
        str,
        typer.Argument(
            help="Preset, such as own_images (hgld presets lists all), or file of settings of the comparison (YAML).",
            autocompletion=complete_comparison,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FOLDER", callback=writable_folder, help="Folder of training runs and results."
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Setting to change in all training runs; repeatable."),
    ] = None,
    manifest: Manifest = None,
    images: Images = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Method to run; repeatable.", show_default="all in CONFIG")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Random seeds of the training runs, e.g. 0,1.", show_default="those in CONFIG")
    ] = None,
    splits: Annotated[
        str | None,
        typer.Option(help="Seeds of random splits of the images, e.g. 0,1.", show_default="those in CONFIG"),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(help="Sweep in CONFIG to run instead of the methods, or all; repeatable."),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(
            help="Devices to train on side by side: cuda:0,cuda:1, or cpu,cpu for two runs that share the cores; "
            "with --launcher slurm: cuda or cpu.",
            show_default="all GPUs, else cpu; with --launcher slurm: cuda",
        ),
    ] = None,
    per_run: Annotated[
        int, typer.Option(help="Number of devices, each with a process, that train a run together.")
    ] = 1,
    launcher: Annotated[
        Literal["local", "slurm"],
        typer.Option(help="local: processes on this machine. slurm: a job array on a cluster, with a task per run."),
    ] = "local",
    sbatch: Annotated[
        str,
        typer.Option(
            metavar="OPTIONS",
            help='Options of sbatch for each run, e.g. "--partition=gpu --gpus=1 --time=8:00:00"; '
            "for --launcher slurm.",
        ),
    ] = "",
    max_running: Annotated[
        int | None,
        typer.Option(
            help="Largest number of runs at the same time; for --launcher slurm.",
            show_default="as many as SLURM starts",
        ),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print the numbers of runs, steps and images, memory and disk, then exit.")
    ] = False,
    gpus: GpuCount = None,
    images_per_second: ImagesPerSecond = None,
    formats: FigureFormat = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Retrain only runs whose settings or data changed, and rewrite the results."),
    ] = False,
) -> None:
    """Train methods with several seeds and splits, evaluate and compare them: tables, figures, confidence intervals.

    Finished runs are kept; an interrupted comparison is resumed. With --launcher slurm, the command submits a job
    array and waits for it; jobs go on without it, and the same command finds them again.

    Example: hgld benchmark own_images --manifest grocery.parquet --images data/grocery -o runs/grocery
    """
    options = {"images_per_s": "--images-per-second", "gpus": "--gpus", "per_run": "--per-run"}
    with friendly_errors(**options):
        from hgld.benchmark.comparison import compare_methods, parse_seeds, read_comparison
        from hgld.benchmark.cost_estimate import Gpus, estimate_cost
        from hgld.benchmark.launcher import LocalLauncher, parse_slots
        from hgld.benchmark.slurm_launcher import SlurmLauncher
        from hgld.cli.summaries.benchmark import format_comparison, format_cost
        from hgld.errors import ConfigurationError
        from hgld.progress import TerminalProgress

        require_plan(plan=plan, gpus=gpus, images_per_second=images_per_second)
        on_slurm = launcher == "slurm"
        if not on_slurm and (sbatch or max_running):
            raise ConfigurationError("--sbatch and --max-running are options of jobs; add --launcher slurm")
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
            n_jobs = (max_running or len(comparison.runs)) if on_slurm else 1
            described = None
            if images_per_second is not None:
                described = Gpus(gpus or n_jobs * per_run, per_run, images_per_second)
            typer.echo(format_cost(estimate_cost(comparison.settings, comparison.runs), described))
            return
        chosen = (
            SlurmLauncher(sbatch, devices or "cuda", per_run, max_running)
            if on_slurm
            else LocalLauncher(parse_slots(devices, per_run))
        )
        with TerminalProgress("benchmark", "runs", interval_s=60) as progress:
            summary = compare_methods(comparison, launcher=chosen, force=force, progress=progress)
        print_summary(out, summary, format_comparison)

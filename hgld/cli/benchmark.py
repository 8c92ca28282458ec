"""Comparisons of methods: benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import app, friendly_errors, print_summary, writable_folder
from hgld.cli.planning import Gpus, ImagesPerSecond, require_plan
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
            help="Devices to train on side by side: cuda:0,cuda:1, or cpu,cpu for two runs that share the cores.",
            show_default="all GPUs, else cpu",
        ),
    ] = None,
    per_run: Annotated[int, typer.Option(help="Number of devices that train a run together.")] = 1,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print the estimated hours, memory and disk, from a timed step, then exit.")
    ] = False,
    gpus: Gpus = None,
    images_per_second: ImagesPerSecond = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Retrain only runs whose settings or data changed, and rewrite the results."),
    ] = False,
) -> None:
    """Train methods with several seeds and splits, evaluate and compare them: tables, figures, confidence intervals.

    Finished runs are kept; an interrupted comparison is resumed.

    Example: hgld benchmark own_images --manifest grocery.parquet --images data/grocery -o runs/grocery
    """
    options = {"images_per_s": "--images-per-second", "gpus": "--gpus", "per_run": "--per-run"}
    with friendly_errors(**options):
        from hgld.benchmark.assumed_throughput import described_slots
        from hgld.benchmark.comparison import compare_methods, parse_seeds, read_comparison
        from hgld.benchmark.cost_estimate import estimate_cost
        from hgld.benchmark.launcher import parse_slots
        from hgld.cli.summaries.benchmark import format_comparison, format_cost
        from hgld.progress import TerminalProgress

        require_plan(plan=plan, gpus=gpus, images_per_second=images_per_second)
        described = images_per_second is not None
        slots = described_slots(gpus or 1, per_run) if described else parse_slots(devices, per_run)
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
            cost = estimate_cost(comparison.settings, comparison.runs, slots, images_per_s=images_per_second)
            typer.echo(format_cost(cost))
            return
        with TerminalProgress("benchmark", "runs", interval_s=60) as progress:
            summary = compare_methods(comparison, slots=slots, force=force, progress=progress)
        print_summary(out, summary, format_comparison)

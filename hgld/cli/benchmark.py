"""Comparisons of methods: benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import app, friendly_errors, tell


@app.command(rich_help_panel="Retrieval")
def benchmark(
    config: Annotated[Path, typer.Argument(help="What to compare (YAML), such as those in pipelines/benchmarks.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where trainings and results go.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of all trainings; repeatable."),
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Of the table; repeatable.", show_default="all in CONFIG")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Such as 0,1.", show_default="those in CONFIG")] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(help="A study in CONFIG in place of its table, or all of them: all; repeatable."),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(
            help="On which to train side by side: cuda:0,cuda:1, or cpu,cpu for two runs that share the cores.",
            show_default="all GPUs, else cpu",
        ),
    ] = None,
    per_run: Annotated[int, typer.Option(help="Devices that train a run together.")] = 1,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what it will take, measured on this machine, and stop.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Train anew what was begun with other settings or data, and no more; write the results again.",
        ),
    ] = False,
) -> None:
    """Train methods with several seeds, evaluate them, and compare: tables, pictures, confidence intervals.

    What is done already is left as it is; a comparison that was stopped goes on where it was.

    Example: hgld benchmark pipelines/benchmarks/washington.yaml -o runs/washington
    """
    with friendly_errors():
        from hgld.benchmark import cost_estimate
        from hgld.benchmark.comparison import compare_methods, parse_seeds, read_comparison
        from hgld.benchmark.launcher import parse_slots
        from hgld.progress import TerminalProgress

        slots = parse_slots(devices, per_run)
        comparison = read_comparison(
            config,
            out,
            overrides=overrides or (),
            methods=method or (),
            seeds=parse_seeds(seeds) if seeds else (),
            sweeps=sweep or (),
        )
        if plan:
            typer.echo(cost_estimate.plan(comparison.settings, comparison.runs, slots))
            return
        with TerminalProgress("benchmark", "runs", interval_s=60) as shown:
            tell(out, compare_methods(comparison, slots=slots, force=force, progress=shown))

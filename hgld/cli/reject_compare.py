"""``hgld reject compare``: compare rejection scores and embeddings on open-set splits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import FigureFormat, Force, friendly_errors, print_summary, writable_folder
from hgld.cli.reject import reject


@reject.command()
def compare(
    settings: Annotated[
        Path, typer.Argument(help="Settings of the comparison: a YAML file, or washington, cifar10 or cifar100.")
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FOLDER", callback=writable_folder, help="Folder of scores and results."),
    ],
    plan: Annotated[
        bool, typer.Option("--plan", help="Print the sets of images, missing files and what is done, then exit.")
    ] = False,
    formats: FigureFormat = None,
    force: Force = False,
) -> None:
    """Compare rejection scores on known, near and far queries: tables, a figure, intervals, confident mistakes.

    Scores that are finished are kept; an interrupted comparison is resumed.

    Example: hgld reject compare washington -o runs/rejection
    """
    with friendly_errors():
        from hgld.benchmark.rejection import compare_rejection, plan_comparison, read_rejection_settings
        from hgld.cli.summaries.rejection_comparison import format_plan, format_rejection
        from hgld.io.preset_files import rejection_file
        from hgld.progress import TerminalProgress

        comparison = read_rejection_settings(rejection_file(settings))
        if plan:
            typer.echo(format_plan(plan_comparison(comparison, out)))
            return
        with TerminalProgress("reject compare", "scores") as progress:
            summary = compare_rejection(comparison, out, force=force, progress=progress)
        print_summary(out, summary, format_rejection)

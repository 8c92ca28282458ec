"""The command that shows the label pipeline on landmarks that come with hgld."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import typer

from hgld.cli.base import app, friendly_errors, writable_folder


@app.command(rich_help_panel="Labels")
def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", callback=writable_folder, help="Output folder.")
    ] = Path("data/demo"),
    source: Annotated[
        Literal["api", "html"], typer.Option(help="Data source of the scrape: the APIs or the category pages.")
    ] = "api",
    encoder: Annotated[
        str | None,
        typer.Option(
            help="Text encoder of the labels, as in hgld embed.",
            show_default="minilm if the extra offline is installed, else ngrams",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Run all stages again; entries in the review sheets are lost.")
    ] = False,
    serve: Annotated[
        bool,
        typer.Option("--serve", help="Only run the local server, for hgld scrape in another terminal, until Ctrl-C."),
    ] = False,
) -> None:
    """Run the whole pipeline, scrape to build, on 325 famous landmarks that come with hgld.

    A local server replaces Wikimedia, so no network is needed.

    Example: hgld demo -o data/demo
    """
    from hgld.cli.summaries.demo import format_demo, format_encoder, format_stage
    from hgld.demo.run import default_encoder, run_demo

    if serve:
        _serve()
        return

    def print_stage(stage: str, summary: object | None) -> None:
        typer.echo(f"== {stage}\n{format_stage(summary)}\n")

    with friendly_errors():
        if encoder is None:
            encoder = default_encoder()
            typer.echo(f"{format_encoder(encoder)}\n")
        summary = run_demo(out, source=source, encoder=encoder, force=force, on_stage=print_stage)
        typer.echo(format_demo(summary))


def _serve() -> None:
    """Serve the sample in place of Wikimedia until Ctrl-C, and print how other terminals find it."""
    from hgld.cli.summaries.demo import format_served
    from hgld.demo.sample import read_sample
    from hgld.demo.server import serve_sample

    with serve_sample(read_sample()) as url, suppress(KeyboardInterrupt):
        typer.echo(format_served(url))
        threading.Event().wait()

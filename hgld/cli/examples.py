"""The command ``examples``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import app, friendly_errors, writable_figure


@app.command(rich_help_panel="Hierarchy")
def examples(
    manifest: Annotated[Path, typer.Argument(help="Manifest of the photographs, see hgld manifest.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="PICTURE", callback=writable_figure, help="Image file to write.")
    ],
    root: Annotated[
        Path | None,
        typer.Option(
            help="Folder that the paths in MANIFEST are relative to.", show_default="the folder of MANIFEST"
        ),
    ] = None,
    level: Annotated[
        str | None, typer.Option(help="Level of the groups.", show_default="the one above the finest")
    ] = None,
    groups: Annotated[int, typer.Option(help="Largest number of groups for each class of the coarsest level.")] = 7,
    photographs: Annotated[int, typer.Option(help="Largest number of photographs for each group.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the choice of photographs.")] = 0,
    sources: Annotated[
        Path | None,
        typer.Option(
            help="CSV or Parquet file with the id and the page, url, author or licence of each photograph, to write "
            "who took those of the picture to PICTURE.credits.md.",
            show_default="none",
        ),
    ] = None,
) -> None:
    """Draw example photographs of the largest groups.

    Example: hgld examples manifest.parquet -o examples.png --sources photographs.parquet
    """
    with friendly_errors(n_groups="--groups", n_photographs="--photographs"):
        from hgld.inspection.examples import ExamplesConfig, draw_examples_file

        config = ExamplesConfig(level, groups, photographs, seed)
        for path in draw_examples_file(manifest, out, config, root=root, sources=sources):
            typer.echo(path)

"""Write a release folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import app, friendly_errors, tell


@app.command(rich_help_panel="Hierarchy")
def release(
    hierarchy: Annotated[Path, typer.Argument(help="The hierarchy, from hgld build.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")],
    name: Annotated[str | None, typer.Option(help="What the dataset is called.", show_default="H-GLDv2")] = None,
    version: Annotated[str | None, typer.Option(help="Of the dataset.", show_default="1.0.0")] = None,
    url: Annotated[str | None, typer.Option(help="Where it is published.", show_default="the page of GLDv2")] = None,
    date: Annotated[
        str | None,
        typer.Option(metavar="YYYY-MM-DD", help="Published on.", show_default="the day of the last decision"),
    ] = None,
    creator: Annotated[
        list[str] | None, typer.Option(help="Who made it; may be repeated.", show_default="the annotators")
    ] = None,
    decisions: Annotated[
        Path | None,
        typer.Option(help="What it was built with.", show_default="annotations/decisions/final.csv"),
    ] = None,
    taxonomy: Annotated[
        Path | None, typer.Option(help="What it was built with.", show_default="annotations/taxonomy.csv")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write although nothing changed, or files in the folder were edited.")
    ] = False,
) -> None:
    """Write a folder to publish: Parquet, CSV, dataset card, datasheet, Croissant, checksums, licence.

    The same hierarchy and options give the same bytes. A folder that is there is replaced only if hgld release wrote
    everything in it.

    Example: hgld release hierarchy.parquet -o release/ --name "H-GLDv2 Washington" --version 1.0.0
    """
    from hgld.release.publish import ReleaseConfig, release_folder

    with friendly_errors():
        given = {"name": name, "version": version, "url": url}
        config = ReleaseConfig(
            date=date,
            creators=tuple(creator or ()),
            **{key: value for key, value in given.items() if value is not None},
        )
        summary = release_folder(hierarchy, out, config, decisions=decisions, taxonomy=taxonomy, force=force)
        tell(out, summary)

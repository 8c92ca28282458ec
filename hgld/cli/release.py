"""Write a release folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import (
    DecisionsOfHierarchy,
    TaxonomyOfHierarchy,
    app,
    friendly_errors,
    print_summary,
    writable_folder,
)


@app.command(rich_help_panel="Hierarchy")
def release(
    hierarchy: Annotated[Path, typer.Argument(help="Hierarchy from hgld build.")],
    out: Annotated[Path, typer.Option("--out", "-o", callback=writable_folder, help="Folder to write.")],
    name: Annotated[str | None, typer.Option(help="Name of the dataset.", show_default="H-GLDv2")] = None,
    version: Annotated[str | None, typer.Option(help="Version of the dataset.", show_default="1.0.0")] = None,
    url: Annotated[
        str | None, typer.Option(help="URL of the page of the dataset.", show_default="the page of GLDv2")
    ] = None,
    date: Annotated[
        str | None,
        typer.Option(metavar="YYYY-MM-DD", help="Date of publication.", show_default="the day of the last decision"),
    ] = None,
    creator: Annotated[
        list[str] | None, typer.Option(help="Name of a creator; may be repeated.", show_default="the annotators")
    ] = None,
    decisions: DecisionsOfHierarchy = None,
    taxonomy: TaxonomyOfHierarchy = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Write the release again if it is up to date, and discard edits of its files."),
    ] = False,
) -> None:
    """Write a folder to publish: Parquet, CSV, dataset card, datasheet, Croissant, checksums, licence.

    The same hierarchy and options give the same bytes. An existing folder is replaced only if hgld release wrote
    everything in it.

    Example: hgld release hierarchy.parquet -o release/ --name "H-GLDv2 Washington" --version 1.0.0
    """
    with friendly_errors():
        from hgld.cli.summaries.release import format_release
        from hgld.release.publish import ReleaseConfig, write_release

        description = {"name": name, "version": version, "url": url}
        config = ReleaseConfig(
            date=date,
            creators=tuple(creator or ()),
            **{key: value for key, value in description.items() if value is not None},
        )
        summary = write_release(hierarchy, out, config, decisions=decisions, taxonomy=taxonomy, force=force)
        print_summary(out, summary, format_release)

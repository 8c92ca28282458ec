"""From clusters to decisions: export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import app, friendly_errors, tell


@app.command()
def export(
    clusters: Annotated[Path, typer.Argument(help="The clusters, from hgld cluster.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for the sheets.")],
    annotators: Annotated[str, typer.Option(help="Their names, with commas between; they name the files.")],
    clean: Annotated[
        Path | None, typer.Option(help="The table from hgld clean.", show_default="clean.parquet beside CLUSTERS")
    ] = None,
    classes: Annotated[
        list[Path] | None,
        typer.Option(help="Tables of classes from hgld scrape.", show_default="*.classes.parquet beside CLUSTERS"),
    ] = None,
    taxonomy: Annotated[
        Path | None, typer.Option(help="The groups to choose from.", show_default="annotations/taxonomy.csv")
    ] = None,
    merge: Annotated[bool, typer.Option("--merge", help="Keep what was entered in earlier sheets.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write new sheets, lose what was entered.")] = False,
) -> None:
    """Write a review sheet for every annotator, as a workbook and as CSV.

    Example: hgld export clusters.parquet -o review/ --annotators ada,ben
    """
    from hgld.review.export import ExportConfig, export_sheets

    with friendly_errors():
        names = tuple(name.strip() for name in annotators.split(",") if name.strip())
        summary = export_sheets(
            clusters,
            out,
            ExportConfig(names, merge=merge),
            clean=clean,
            classes=classes,
            taxonomy=taxonomy,
            force=force,
        )
        tell(out, summary)

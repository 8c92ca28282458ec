"""The review page: review on it, and what was decided there as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import ClassesBeside, CleanBeside, Taxonomy, announcing, app, friendly_errors, tell


@app.command(rich_help_panel="Review")
def review(
    clusters: Annotated[Path, typer.Argument(help="The clusters, from hgld cluster or hgld suggest.")],
    annotator: Annotated[str, typer.Option(help="Who decides; names the store.")],
    store: Annotated[
        Path | None,
        typer.Option(help="Where decisions are kept.", show_default="review/ANNOTATOR.sqlite beside CLUSTERS"),
    ] = None,
    clean: CleanBeside = None,
    classes: ClassesBeside = None,
    taxonomy: Taxonomy = None,
    decisions: Annotated[
        Path | None, typer.Option(help="Start from these decisions, where none were made here.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Where to listen; other than this machine only if you must.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: a free one.", min=0, max=65535)] = 0,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Decide on labels on a local page.

    Every decision is on disk when the page shows it; stop with Ctrl-C, go on with the same command. What was decided
    becomes a CSV file with hgld decisions.

    Example: hgld review clusters.parquet --annotator ada
    """
    from hgld.review.decisions import check_annotator
    from hgld.review.server import ServerConfig, serve_review

    with friendly_errors():
        check_annotator(annotator)
        path = store or clusters.parent / "review" / f"{annotator}.sqlite"
        serve_review(
            clusters,
            path,
            annotator,
            ServerConfig(host, port),
            started=announcing(open_browser),
            clean=clean,
            classes=classes,
            taxonomy=taxonomy,
            decisions=decisions,
        )
        typer.echo(f"{path}: everything is saved")


@app.command(rich_help_panel="Review")
def decisions(
    store: Annotated[Path, typer.Argument(help="What hgld review keeps, e.g. review/ada.sqlite.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The CSV file to write.")],
    taxonomy: Taxonomy = None,
    clusters: Annotated[Path | None, typer.Option(help="The table that the page showed.")] = None,
    clusters_out: Annotated[
        Path | None, typer.Option(help="Where to write it with the clusters as they are on the page.")
    ] = None,
) -> None:
    """Write what was decided on the review page as CSV.

    Groups that were proposed or renamed go, with the rest of the taxonomy, into OUT.taxonomy.csv.

    Example: hgld decisions review/ada.sqlite -o annotations/decisions/ada.csv
    """
    from hgld.review.reviewed import write_reviewed

    with friendly_errors():
        tell(out, write_reviewed(store, out, taxonomy=taxonomy, clusters=clusters, clusters_out=clusters_out))

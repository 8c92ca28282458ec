"""What one does with a hierarchy: compare, stats, release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.base import app, friendly_errors, tell


@app.command(rich_help_panel="Hierarchy")
def compare(
    before: Annotated[
        str, typer.Argument(metavar="A", help="A hierarchy: Parquet, an official CSV file, or a folder with these.")
    ],
    after: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="PICTURE", help="Draw the flows between groups.")
    ] = None,
    changes: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Write every landmark that was added, lost or moved.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, with all flows.")] = False,
) -> None:
    """Say what changed from one hierarchy to another, and how far the two agree.

    Landmarks are matched by split and id. Added are those that only B has, lost those that only A has, moved those
    whose group is another one.

    Example: hgld compare released/ hierarchy.parquet -o flows.png
    """
    from hgld.hierarchy.compare import compare_files

    with friendly_errors():
        comparison = compare_files(before, after, picture=out, changes=changes)
        typer.echo(comparison.to_json() if json else comparison)


@app.command(rich_help_panel="Hierarchy")
def stats(
    hierarchy: Annotated[str, typer.Argument(help="Parquet, an official CSV file, or a folder with these.")],
    images: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[SPLIT=]FILE",
            help="The landmark of each image: GLDv2's train.csv, train_clean.csv, index_image_to_landmark.csv.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="PICTURE", help="Draw the groups by size; beside X.png, X.tree.png as areas."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count landmarks and images by root and group, and say how uneven groups are.

    Example: hgld stats hierarchy.parquet --images train.csv -o stats.png
    """
    from hgld.hierarchy.stats import stats_file

    with friendly_errors():
        tree = None if out is None else out.with_suffix(f".tree{out.suffix}")
        found = stats_file(hierarchy, images=images or [], picture=out, tree=tree)
        typer.echo(found.to_json() if json else found)


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

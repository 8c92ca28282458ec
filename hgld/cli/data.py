"""GLDv2's own files: fetch, index-images."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from hgld.cli.base import app, friendly_errors, tell
from hgld.errors import SourceError, indented_list
from hgld.progress import TerminalProgress


@app.command(rich_help_panel="Photographs")
def fetch(
    dataset: Annotated[Literal["gldv2"], typer.Argument(help="Google Landmarks Dataset v2.")],
    split: Annotated[Literal["train", "index", "test"], typer.Option(help="Which part of the dataset.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where the files go.")] = Path(
        "data/gldv2"
    ),
    metadata: Annotated[bool, typer.Option("--metadata", help="The CSV files.")] = False,
    images: Annotated[bool, typer.Option("--images", help="The tar files of photographs.")] = False,
    shards: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST:LAST", help="Which of the tar files, such as 0:4 or 0,3; train has 0:499, index 0:99."
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Files under way at once, 1 to 16.")] = 4,
    base_url: Annotated[
        str, typer.Option(envvar="HGLD_GLDV2_URL", help="The dataset's host, or a mirror of it.")
    ] = "https://s3.amazonaws.com/google-landmark",
    verify: Annotated[
        bool, typer.Option("--verify", help="Read again what is there, and fetch anew what is damaged.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Fetch anew what is there.")] = False,
) -> None:
    """Download the dataset's files, verified by MD5.

    What is there is not fetched again, and an interrupted run goes on where it was when the same command is given
    again. Photographs are 500 tar files of about 1 GB (train), 100 of 850 MB (index) and 20 of 500 MB (test); they
    need not be extracted, see hgld index-images.

    Example: hgld fetch gldv2 --metadata --images --split train --shards 0:4
    """
    from hgld.gldv2.fetch import FetchConfig, fetch_gldv2
    from hgld.gldv2.files import parse_shards

    with friendly_errors(), TerminalProgress(f"fetch {dataset}", "B") as progress:
        config = FetchConfig(
            split=split,
            metadata=metadata,
            images=images,
            shards=None if shards is None else parse_shards(shards),
            workers=workers,
            base_url=base_url,
            verify=verify,
            force=force,
        )
        summary = fetch_gldv2(out, config, progress=progress)
        tell(out, summary)
        if summary.failed:
            raise SourceError(
                f"{len(summary.failed):,} files could not be had:\n{indented_list(summary.failed)}\n"
                f"to try just those again, run\n  {shlex.join(['hgld', *sys.argv[1:]])}"
            )


@app.command(rich_help_panel="Photographs")
def index_images(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder with tar files, at any depth.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The table to write.")],
    workers: Annotated[int, typer.Option(help="Tar files read at once.")] = 4,
    force: Annotated[bool, typer.Option("--force", help="Read every tar file again.")] = False,
) -> None:
    """Note where in the tar files each photograph is, so that none need be extracted.

    Only tar files that are new or changed since the table was written are read. hgld.gldv2.tar_images.ImageReader reads
    photographs by their ids.

    Example: hgld index-images data/gldv2 -o images.parquet
    """
    from hgld.gldv2.image_index import index_images as index

    with friendly_errors(), TerminalProgress("index", "tar files") as progress:
        tell(out, index(folder, out, workers=workers, force=force, progress=progress))

"""GLDv2's own files: fetch, index-images."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from hgld.cli.base import app, friendly_errors, print_summary, writable_file, writable_folder
from hgld.errors import SourceError, indented_list
from hgld.progress import TerminalProgress


@app.command(rich_help_panel="Photographs")
def fetch(
    dataset: Annotated[
        Literal["gldv2"], typer.Argument(help="Dataset to download: gldv2 (Google Landmarks Dataset v2).")
    ],
    split: Annotated[Literal["train", "index", "test"], typer.Option(help="Split of the dataset.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", callback=writable_folder, help="Folder for the files.")
    ] = Path("data/gldv2"),
    metadata: Annotated[bool, typer.Option("--metadata", help="Download the CSV files.")] = False,
    images: Annotated[bool, typer.Option("--images", help="Download the tar files of photographs.")] = False,
    shards: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST:LAST",
            help="Numbers of the tar files to download, such as 0:4 or 0,3; train has 0:499, index 0:99, test 0:19.",
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Number of parallel downloads, 1 to 16.")] = 4,
    base_url: Annotated[
        str, typer.Option(envvar="HGLD_GLDV2_URL", help="Address of the dataset's host or a mirror.")
    ] = "https://s3.amazonaws.com/google-landmark",
    verify: Annotated[
        bool, typer.Option("--verify", help="Verify existing files by MD5, and download damaged ones again.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Download existing files again.")] = False,
) -> None:
    """Download the dataset's files, verified by MD5.

    Existing files are not downloaded again, and the same command resumes an interrupted run. Photographs are 500 tar
    files of about 1 GB (train), 100 of 850 MB (index) and 20 of 500 MB (test); they need not be extracted, see
    hgld index-images.

    Example: hgld fetch gldv2 --metadata --images --split train --shards 0:4
    """
    from hgld.cli.summaries.gldv2 import format_fetch
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
        print_summary(out, summary, format_fetch)
        if summary.failed:
            raise SourceError(
                f"{len(summary.failed):,} files could not be downloaded:\n{indented_list(summary.failed)}\n"
                f"to try only these again, run\n  {shlex.join(['hgld', *sys.argv[1:]])}"
            )


@app.command(rich_help_panel="Photographs")
def index_images(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with tar files at any depth.")],
    out: Annotated[Path, typer.Option("--out", "-o", callback=writable_file, help="Index to write.")],
    workers: Annotated[int, typer.Option(help="Number of tar files read in parallel.")] = 4,
    force: Annotated[bool, typer.Option("--force", help="Read all tar files again.")] = False,
) -> None:
    """Index the photographs in tar files, to read them without extraction.

    Only tar files that are new or changed since the table was written are read. In Python,
    hgld.gldv2.ImageReader reads photographs by id.

    Example: hgld index-images data/gldv2 -o images.parquet
    """
    from hgld.cli.summaries.gldv2 import format_index
    from hgld.gldv2.image_index import index_images as index

    with friendly_errors(), TerminalProgress("index", "tar files") as progress:
        print_summary(out, index(folder, out, workers=workers, force=force, progress=progress), format_index)

"""Photographs: fetch and index-images of GLDv2's own files, extract-images of arrays of pixels."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hgld.cli.base import app, friendly_errors, print_summary, writable_file, writable_folder
from hgld.errors import ConfigurationError, SourceError, indented_list
from hgld.progress import TerminalProgress

if TYPE_CHECKING:
    from hgld.gldv2.photograph_list import PhotographList
    from hgld.gldv2.photographs import PhotographsConfig

_BY_ID = "Photographs by id"


@app.command(rich_help_panel="Photographs")
def fetch(
    dataset: Annotated[
        Literal["gldv2"], typer.Argument(help="Dataset to download: gldv2 (Google Landmarks Dataset v2).")
    ],
    split: Annotated[
        Literal["train", "index", "test"] | None,
        typer.Option(help="Split of the dataset.", show_default="train with --ids, else required"),
    ] = None,
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
    ids: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Fetch only these photographs: ids, one a line, or a CSV or Parquet file with a column id; or "
            "washington, a list that comes with hgld.",
            show_default=False,
            rich_help_panel=_BY_ID,
        ),
    ] = None,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="commons|shards|FOLDER",
            help="Wikimedia Commons; the tar files of the host, one after the other; or a folder of tar files, or "
            "the table from hgld index-images in one.",
            rich_help_panel=_BY_ID,
        ),
    ] = "commons",
    urls: Annotated[
        Path | None,
        typer.Option(
            help="Addresses of the photographs: GLDv2's train.csv, or train_attribution.csv, which has authors, too.",
            show_default="the column url of --ids",
            rich_help_panel=_BY_ID,
        ),
    ] = None,
    width: Annotated[
        int, typer.Option(help="Width of the thumbnails from Commons in pixels.", rich_help_panel=_BY_ID)
    ] = 500,
    contact: Annotated[
        str | None,
        typer.Option(
            envvar="HGLD_CONTACT",
            help="Your e-mail address or wiki user page, for the User-Agent.",
            rich_help_panel=_BY_ID,
        ),
    ] = None,
    rate: Annotated[
        float, typer.Option(help="Maximum requests per minute to Commons.", rich_help_panel=_BY_ID)
    ] = 150,
    max_retries: Annotated[
        int, typer.Option(help="Maximum number of retries per request to Commons.", rich_help_panel=_BY_ID)
    ] = 5,
    commons_url: Annotated[
        str,
        typer.Option(envvar="HGLD_COMMONS_URL", help="Base URL of Commons, above w/api.php.", rich_help_panel=_BY_ID),
    ] = "https://commons.wikimedia.org",
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what would be downloaded, and stop.", rich_help_panel=_BY_ID)
    ] = False,
) -> None:
    """Download the dataset's files, verified by MD5, or single photographs by their ids.

    Existing files are not downloaded again, and the same command resumes an interrupted run. Photographs are 500 tar
    files of about 1 GB (train), 100 of 850 MB (index) and 20 of 500 MB (test); they need not be extracted, see
    hgld index-images.

    With --ids, photographs are written to tar files in FOLDER, with the table photographs.parquet of their authors
    and licences. Before anything is downloaded, it is said how much, and how long it takes.

    Example: hgld fetch gldv2 --metadata --images --split train --shards 0:4

    Example: hgld fetch gldv2 --ids washington -o data/washington --contact you@example.org
    """
    from hgld.cli.summaries.gldv2 import format_plan
    from hgld.gldv2.files import SUBSETS, copy_subset, parse_shards, subset_list
    from hgld.gldv2.photograph_list import read_photograph_list
    from hgld.gldv2.photographs import plan_photographs

    with friendly_errors(rate_per_minute="--rate"):
        numbers = None if shards is None else parse_shards(shards)
        if ids is None:
            if plan or urls is not None or source != "commons":
                raise ConfigurationError("`plan`, `source` and `urls` need `ids`, a list of photographs to fetch")
            if split is None:
                raise ConfigurationError("`split` is missing: name train, index or test, or photographs by `ids`")
            _fetch_files(out, split, metadata, images, numbers, workers, base_url, verify, force)
        else:
            if metadata or images or verify:
                raise ConfigurationError(
                    "`ids` fetches single photographs; leave it out for `metadata`, `images` or `verify`"
                )
            photographs = read_photograph_list(subset_list(ids) if ids in SUBSETS else Path(ids), urls)
            config = _photographs_config(
                source, split or "train", width, numbers, base_url, contact, rate, max_retries, commons_url
            )
            if plan:
                typer.echo(format_plan(plan_photographs(photographs, out, config)))
                return
            if ids in SUBSETS:
                copy_subset(ids, out)
            _fetch_photographs(out, photographs, config, force)


@app.command(rich_help_panel="Photographs")
def index_images(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with tar files at any depth.")],
    out: Annotated[Path, typer.Option("--out", "-o", callback=writable_file(".parquet"), help="Index to write.")],
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


@app.command(rich_help_panel="Photographs")
def extract_images(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder of CIFAR-10 or CIFAR-100 (python version) or SVHN (.mat files)."),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", callback=writable_folder, help="Folder for images.tar and images.csv."),
    ],
) -> None:
    """Write images that are published as arrays of pixels as PNG files, with a table of their labels.

    CIFAR-10, CIFAR-100 and SVHN: the images of a reference of rejection scores. hgld manifest table reads the table
    with the images. Pickle files are read without running what they ask for.

    Example: hgld extract-images cifar-10-batches-py -o data/cifar10
    """
    from hgld.cli.summaries.datasets import format_extracted
    from hgld.datasets.pixel_arrays import extract_images as extract

    with friendly_errors():
        print_summary(out / "images.csv", extract(folder, out), format_extracted)


def _fetch_files(
    out: Path,
    split: str,
    metadata: bool,
    images: bool,
    shards: Sequence[int] | None,
    workers: int,
    base_url: str,
    verify: bool,
    force: bool,
) -> None:
    from hgld.cli.summaries.gldv2 import format_fetch
    from hgld.gldv2.fetch import FetchConfig, fetch_gldv2

    config = FetchConfig(split, metadata, images, shards, workers, base_url, verify, force)
    with TerminalProgress("fetch", "B") as progress:
        summary = fetch_gldv2(out, config, progress=progress)
        print_summary(out, summary, format_fetch)
    if summary.failed:
        raise SourceError(
            f"{len(summary.failed):,} files could not be downloaded:\n{indented_list(summary.failed)}\n{_again()}"
        )


def _photographs_config(
    source: str,
    split: str,
    width: int,
    shards: Sequence[int] | None,
    base_url: str,
    contact: str | None,
    rate: float,
    max_retries: int,
    commons_url: str,
) -> PhotographsConfig:
    from hgld.gldv2.photographs import PhotographsConfig
    from hgld.wikimedia.client import ClientConfig

    client = None
    if source == "commons":
        url = commons_url.rstrip("/")
        client = ClientConfig(
            commons_url=url, wikidata_url=url, contact=contact, rate_per_minute=rate, max_retries=max_retries
        )
    return PhotographsConfig(
        source=source if source in ("commons", "shards") else Path(source),
        split=split,
        width=width,
        shards=None if shards is None else tuple(shards),
        base_url=base_url,
        client=client,
    )


def _fetch_photographs(out: Path, photographs: PhotographList, config: PhotographsConfig, force: bool) -> None:
    from hgld.cli.summaries.gldv2 import format_photographs, format_plan
    from hgld.gldv2.photographs import fetch_photographs

    with TerminalProgress("fetch", "photographs") as progress:
        summary = fetch_photographs(
            photographs,
            out,
            config,
            force=force,
            announce=lambda plan: typer.echo(format_plan(plan), err=True),
            progress=progress,
        )
    print_summary(out, summary, format_photographs)
    if summary is not None and summary.problems:
        raise SourceError(
            f"{len(summary.problems):,} photographs could not be fetched:\n"
            f"{indented_list(summary.problems)}\n{_again()}"
        )


def _again() -> str:
    return f"to try only these again, run\n  {shlex.join(['hgld', *sys.argv[1:]])}"

"""Photographs: fetch, index-images, extract-images, repack; and ``hgld manifest``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hgld.cli.application import FIRST_STEPS, App, Command, app
from hgld.cli.options import field_option, field_options, help_panels
from hgld.cli.output import print_summary, require_none_failed
from hgld.cli.render import listed
from hgld.cli.shared_options import OUT_FOLDER, Force, option, out_file, part_option
from hgld.compute.parts import PartsConfig
from hgld.datasets.readers.registry import READERS, ReaderEntry
from hgld.datasets.settings import RepackConfig
from hgld.errors import ConfigurationError, counted
from hgld.gldv2.settings import FetchConfig, PhotographsConfig
from hgld.progress import TerminalProgress, byte_size
from hgld.wikimedia.settings import ClientConfig

if TYPE_CHECKING:
    from hgld.datasets.manifest_files import ManifestSummary
    from hgld.datasets.pixel_arrays import ExtractSummary
    from hgld.datasets.repack import RepackPlan, RepackSummary
    from hgld.gldv2.fetch import FetchSummary
    from hgld.gldv2.image_index import IndexSummary
    from hgld.gldv2.photographs import FetchPlan, PhotographsSummary


def _shards(text: str) -> tuple[int, ...]:
    from hgld.gldv2.dataset_files import parse_shards

    return tuple(parse_shards(text))


@app.command(rich_help_panel="Photographs")
@help_panels(
    {
        "Photographs by id": [
            "ids",
            "source",
            "urls",
            "width",
            "commons_url",
            "contact",
            "rate_per_minute",
            "plan",
        ]
    }
)
def fetch(
    *,
    dataset: Literal["gldv2"],
    split: Literal["train", "index", "test"] | None = None,
    out: Annotated[Path, OUT_FOLDER] = Path("data/gldv2"),
    metadata: Annotated[bool, field_option(FetchConfig, "metadata")] = False,
    images: Annotated[bool, field_option(FetchConfig, "images")] = False,
    shards: Annotated[
        tuple[int, ...] | None,
        field_option(FetchConfig, "shards", parser=_shards, metavar="FIRST:LAST"),
    ] = None,
    workers: Annotated[int, field_option(FetchConfig, "workers")] = FetchConfig.workers,
    base_url: Annotated[
        str, field_option(FetchConfig, "base_url", envvar="HGLD_GLDV2_URL")
    ] = FetchConfig.base_url,
    verify: Annotated[bool, field_option(FetchConfig, "verify")] = False,
    force: bool = False,
    ids: Annotated[str | None, typer.Option(show_default=False, metavar="FILE")] = None,
    source: Annotated[str, typer.Option("--from", metavar="commons|shards|FOLDER")] = "commons",
    urls: Path | None = None,
    width: Annotated[int, field_option(PhotographsConfig, "width")] = PhotographsConfig.width,
    commons_url: Annotated[
        str,
        field_option(ClientConfig, "commons_url", envvar="HGLD_COMMONS_URL"),
    ] = ClientConfig.commons_url,
    contact: Annotated[
        str | None,
        field_option(ClientConfig, "contact", envvar="HGLD_CONTACT"),
    ] = None,
    rate_per_minute: Annotated[
        float, field_option(ClientConfig, "rate_per_minute", "--rate")
    ] = ClientConfig.rate_per_minute,
    plan: bool = False,
) -> None:
    """Download the dataset's files, verified by MD5, or single photographs by their ids.

    Existing files are not downloaded again, and the same command resumes an interrupted run. Photographs are 500 tar
    files of about 1 GB (train), 100 of 850 MB (index) and 20 of 500 MB (test); they need not be extracted, see
    hgld index-images.

    With --ids, photographs are written to tar files in FOLDER, with the table photographs.parquet of their authors
    and licences. The size and the duration of a download are printed before it starts.

    Example: hgld fetch gldv2 --metadata --images --split train --shards 0:4

    Example: hgld fetch gldv2 --ids washington -o data/washington --contact you@example.org

    Args:
        dataset: Dataset to download: gldv2 (Google Landmarks Dataset v2).
        split: Split of the dataset; required without --ids. Default: train.
        out: Folder for the files.
        force: Download existing files again.
        ids: Fetch only these photographs: ids, one a line, or a CSV or Parquet file with a column id; or washington,
            a list that comes with hgld.
        source: Source of photographs: Wikimedia Commons (commons); the tar files of the host, one after the other
            (shards); or a folder of tar files, or the table from hgld index-images in such a folder.
        urls: Addresses of the photographs: GLDv2's train.csv, or train_attribution.csv, which has authors, too.
            Default: the column url of --ids.
        plan: Print the size and the duration of the download, and stop.
    """
    from hgld.gldv2.dataset_files import SUBSETS, copy_subset, subset_list
    from hgld.gldv2.fetch import fetch_gldv2
    from hgld.gldv2.photograph_list import read_photograph_list
    from hgld.gldv2.photographs import fetch_photographs, plan_photographs

    if ids is None:
        if plan or urls is not None or source != "commons":
            raise ConfigurationError(
                "`plan`, `source` and `urls` need `ids`, a list of photographs to fetch"
            )
        if split is None:
            raise ConfigurationError(
                "`split` is missing: name train, index or test, or photographs by `ids`"
            )
        files = FetchConfig(
            split,
            metadata=metadata,
            images=images,
            shards=shards,
            workers=workers,
            base_url=base_url,
            verify=verify,
            force=force,
        )
        with TerminalProgress("fetch", "B") as progress:
            fetched = fetch_gldv2(out, files, progress=progress)
        print_summary(out, fetched, _format_fetch)
        require_none_failed(fetched.failed, "files could not be downloaded")
        return
    if metadata or images or verify:
        raise ConfigurationError(
            "`ids` fetches single photographs; leave it out for `metadata`, `images` or `verify`"
        )
    id_file = subset_list(ids) if ids in SUBSETS else Path(ids)
    wanted = read_photograph_list(id_file, urls)
    client = None
    if source == "commons":
        client = ClientConfig(commons_url, commons_url, contact, rate_per_minute, max_retries=5)
    place: str | Path = source
    if source not in ("commons", "shards"):
        place = Path(source)
    config = PhotographsConfig(
        place,
        split or "train",
        width=width,
        shards=shards,
        base_url=base_url,
        client=client,
    )
    if plan:
        typer.echo(format_plan(plan_photographs(wanted, out, config)))
        return
    if ids in SUBSETS:
        copy_subset(ids, out)
    with TerminalProgress("fetch", "photographs") as progress:
        summary = fetch_photographs(
            wanted,
            out,
            config,
            force=force,
            announce=_print_plan,
            progress=progress,
        )
    print_summary(out, summary, _format_photographs)
    if summary is not None:
        require_none_failed(summary.problems, "photographs could not be fetched")


def _format_fetch(summary: FetchSummary) -> str:
    n_files = summary.fetched + summary.existing + len(summary.failed)
    return (
        f"{n_files:,} files: {summary.fetched:,} downloaded "
        f"({byte_size(summary.n_bytes)} in {summary.seconds:.1f} s), "
        f"{summary.existing:,} already present, {summary.verified:,} verified by MD5, {len(summary.failed):,} failed"
    )


def format_plan(plan: FetchPlan) -> str:
    """Format how much a run will download or copy, and the time that requests take."""
    work = plan.work
    n_left = plan.wanted - plan.there - work.absent
    total = f"{plan.wanted:,} photographs"
    counts = {}
    if plan.there:
        counts["done before"] = plan.there
    if work.absent:
        counts["not to be had"] = work.absent
    if counts:
        total += f" ({listed(counts)})"
    size = byte_size(work.n_bytes)
    if work.kind == "commons":
        task = (
            f"{n_left:,} thumbnails {work.width} pixels wide from {work.place}: {work.requests:,} requests, "
            f"about {size}"
        )
        if work.seconds is not None:
            task += f", {format_duration(work.seconds)} at the rate of requests"
    elif work.kind == "mirror":
        task = (
            f"{n_left:,} to be searched in {work.shards:,} tar files from {work.place}: about {size} are downloaded, "
            "one tar file after the other, and only these photographs kept"
        )
    else:
        task = f"{n_left:,} to be copied from {work.shards:,} tar files of {work.place} ({size})"
    return f"{total}; {task}"


def _print_plan(plan: FetchPlan) -> None:
    typer.echo(format_plan(plan), err=True)


def _format_photographs(summary: PhotographsSummary) -> str:
    problems = dict(sorted(summary.statuses.items()))
    n_in_folder = problems.pop("ok", 0)
    outcomes = f"{n_in_folder:,} in the folder"
    if problems:
        outcomes += f", {listed(problems)}"
    return (
        f"{sum(summary.statuses.values()):,} photographs: {outcomes}; {summary.fetched:,} added "
        f"({byte_size(summary.n_bytes)} in {summary.seconds:.1f} s)"
    )


def format_duration(seconds: float) -> str:
    """Format a duration.

    >>> format_duration(1_887), format_duration(20)
    ('31 minutes', '20 seconds')
    """
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    if seconds < 5_400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"


@app.command(rich_help_panel="Photographs")
def index_images(
    *,
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
    out: Annotated[Path, out_file(".parquet")],
    workers: int = 4,
    force: bool = False,
) -> None:
    """Index the photographs in tar files, to read them without extraction.

    Only tar files that are new or changed since the table was written are read. In Python,
    hgld.gldv2.ImageReader reads photographs by id.

    Example: hgld index-images data/gldv2 -o images.parquet

    Args:
        folder: Folder with tar files at any depth.
        out: Index to write.
        workers: Number of tar files read in parallel.
        force: Read all tar files again.
    """
    from hgld.gldv2.image_index import index_images

    with TerminalProgress("index", "tar files") as progress:
        summary = index_images(folder, out, workers=workers, force=force, progress=progress)
    print_summary(out, summary, format_index)


def format_index(summary: IndexSummary) -> str:
    """Format the numbers of photographs and tar files."""
    return (
        f"{summary.images:,} photographs in {summary.shards:,} tar files, {summary.read:,} of them read in "
        f"{summary.seconds:.1f} s; {summary.skipped:,} other members skipped"
    )


@app.command(rich_help_panel="Photographs")
def extract_images(
    *, folder: Annotated[Path, typer.Argument(metavar="DIR")], out: Annotated[Path, OUT_FOLDER]
) -> None:
    """Write published arrays of pixels as PNG files, with a table of their labels.

    CIFAR-10, CIFAR-100 and SVHN: the images with which rejection scores were published. hgld manifest table reads the
    table with the images. Pickle files are read without running any code that they contain.

    Example: hgld extract-images cifar-10-batches-py -o data/cifar10

    Args:
        folder: Folder of CIFAR-10 or CIFAR-100 (python version) or SVHN (cropped digits, .mat files), as published.
        out: Folder for images.tar and images.csv.
    """
    from hgld.datasets import pixel_arrays

    print_summary(out / "images.csv", pixel_arrays.extract_images(folder, out), _format_extracted)


def _format_extracted(summary: ExtractSummary) -> str:
    n_images = sum(summary.images.values())
    return (
        f"{n_images:,} images ({listed(summary.images)}) with labels: {', '.join(summary.levels)}"
    )


@app.command(rich_help_panel="Photographs")
@help_panels({"Several machines": ["part", "ray", "parts"]})
@field_options(RepackConfig, shard_size=None)
@field_options(
    PartsConfig,
    part=part_option(
        "Write one of several parts of the tar files, such as 3/16; the same command without --part writes the "
        "missing tar files, and the manifest. Default: all tar files."
    ),
)
def repack(
    *,
    manifest: Path,
    out: Annotated[Path, OUT_FOLDER],
    images: Path | None = None,
    config: RepackConfig,
    division: PartsConfig,
    plan: bool = False,
    verify: bool = False,
    force: bool = False,
) -> None:
    """Write the images of a manifest into tar files, once, at a smaller size, with a manifest of them.

    Splits and labels stay, boxes are scaled. Images that are small already are stored as they are, and images that
    cannot be read are listed in skipped.csv. The same command resumes an interrupted run. Jobs of a cluster share the
    tar files by --part 1/16, --part 2/16 and so on; the same command without --part then writes the manifest.

    Example: hgld repack gldv2.parquet --images data/gldv2 --size 512 -o data/gldv2_512

    Args:
        manifest: Manifest from hgld manifest, or a CSV or Parquet file like it.
        out: Folder for the tar files and their manifest.parquet.
        images: Folder that the paths in MANIFEST are relative to. Default: the folder of MANIFEST.
        plan: Print the number and size of the images and the estimated time, then exit.
        verify: Verify existing tar files by SHA-256, and write damaged ones again.
        force: Write all tar files again, and discard tar files of other settings.
    """
    from hgld.datasets.repack import plan_repack, repack_images

    if plan:
        repack_plan = plan_repack(manifest, out, config, root=images, part=division.part)
        typer.echo(_format_repack_plan(repack_plan))
        return
    if division.ray is not None:
        if force:
            raise ConfigurationError(
                "`force` would discard what parts have written; remove the folder instead"
            )
        with TerminalProgress("repack", "parts") as progress:
            division.run_on_ray(
                partial(repack_images, manifest, out, config, root=images), progress
            )
    with TerminalProgress("repack", "images") as progress:
        summary = repack_images(
            manifest,
            out,
            config,
            root=images,
            part=division.part,
            verify=verify,
            force=force,
            announce=_print_repack_plan,
            progress=progress,
        )
    print_summary(out, summary, _format_repacked)


def _format_repack_plan(plan: RepackPlan) -> str:
    images = f"{plan.images:,} images"
    if plan.done:
        images += f" ({plan.done:,} done before)"
    if plan.images == plan.done:
        return f"{images}: nothing is left to do"
    return (
        f"{images} to {plan.shards:,} tar files: about {byte_size(plan.n_bytes)} from "
        f"{byte_size(plan.source_bytes)}, {format_duration(plan.cpu_seconds)} of processor time; "
        f"{byte_size(plan.free_bytes)} are free"
    )


def _print_repack_plan(plan: RepackPlan) -> None:
    typer.echo(_format_repack_plan(plan), err=True)


def _format_repacked(summary: RepackSummary) -> str:
    text = (
        f"{summary.images:,} images, {summary.copies:,} of them as they were, in {summary.shards:,} tar files "
        f"({byte_size(summary.n_bytes)}), {summary.written:,} of these written in {summary.seconds:.1f} s"
    )
    if summary.verified is not None:
        text += f", {summary.verified:,} verified by SHA-256"
    if summary.skipped:
        text += f"\nleft out: {len(summary.skipped):,} images that cannot be read, listed in skipped.csv"
    return text


_FOLDER = typer.Argument(metavar="DIR", help="Folder that contains the images.")
_FOLDER_OR_FILE = option(
    "Folder that contains the images, in folders or in tar files; or one tar file.", "--images"
)

manifest = App(no_args_is_help=True, rich_markup_mode="markdown")


@manifest.callback()
def about() -> None:
    """List the images of a dataset with their splits and labels, for hgld train and hgld embed-images.

    Published datasets are read in their published layout, your own from a table of labels or from nested folders.

    Example: hgld manifest sop Stanford_Online_Products -o sop.parquet
    """


class _ReaderCommand(Command):
    """A command that writes a manifest by a reader."""

    def function(self) -> Callable[..., None]:
        """Return the function of the command, whose options are the settings of the reader."""
        return _write_manifest_by(READERS[str(self.name)])


def _write_manifest_by(entry: ReaderEntry) -> Callable[..., None]:
    arguments: dict[str, Any] = {}
    if entry.argument:
        arguments[entry.argument] = typer.Argument(metavar=entry.argument.upper())

    @field_options(entry.settings, **arguments)
    def write_manifest(
        *,
        settings: Any,
        root: Path,
        out: Annotated[Path, out_file(".parquet")],
        force: Force = False,
    ) -> None:
        """Write a manifest.

        Args:
            out: Manifest to write.
        """
        from hgld.datasets.manifest_files import make_manifest

        reader = entry.load()(**vars(settings))
        print_summary(out, make_manifest(reader, root, out, force=force), format_manifest)

    write_manifest.__annotations__["settings"] = entry.settings
    write_manifest.__annotations__["root"] = Annotated[
        Path, _FOLDER_OR_FILE if arguments else _FOLDER
    ]
    return write_manifest


def format_manifest(summary: ManifestSummary) -> str:
    """Format the number of images by split, of classes by level, and warnings."""
    from hgld.datasets.image_folders import format_suffixes
    from hgld.io.columns import preview

    labels = "labels"
    if summary.labels_per_image is not None:
        labels = f"{summary.labels_per_image:.2f} labels per image"
    lines = [
        f"{sum(summary.images.values()):,} images ({listed(summary.images)}) with {labels} at "
        f"{len(summary.n_classes)} levels ({listed(summary.n_classes)})"
    ]
    if summary.untrained:
        finest_level = next(iter(summary.n_classes))
        n_untrained = len(summary.untrained)
        names = preview(summary.untrained)
        lines.append(f"in test but not in train: {n_untrained:,} {finest_level} ({names})")
    for reason, count in summary.excluded.items():
        lines.append(f"excluded: {count:,} images {reason}")
    if summary.other_files:
        suffixes = format_suffixes(summary.other_files)
        lines.append(f"left out: files that are not images ({suffixes})")
    if summary.broken_links:
        lines.append(f"left out: {counted(summary.broken_links, 'broken link')}")
    for level, variants in summary.case_variants.items():
        lines.append(
            f"{level} that differ by case alone, and are classes of their own: {preview(variants)}"
        )
    return "\n".join(lines)


def _example(name: str, entry: ReaderEntry) -> str:
    images = "DIR"
    if entry.argument:
        images = f"{entry.argument.upper()} --images DIR"
    options = ""
    for field, value in entry.example.items():
        options += f"--{field.replace('_', '-')} {value} "
    return f"Example: hgld manifest {name} {images} {options}-o manifest.parquet"


for _name, _entry in READERS.items():
    manifest.command(
        _name, cls=_ReaderCommand, help=f"{_entry.summary}\n\n{_example(_name, _entry)}"
    )(lambda: None)


@manifest.command()
def leave_out(
    *,
    path: Annotated[Path, typer.Argument(metavar="MANIFEST")],
    table: Path,
    out: Annotated[Path, out_file(".parquet")],
    near_views: bool = False,
    force: Force = False,
) -> None:
    """Leave images out of a manifest: copies, or all that a table lists.

    Example: hgld manifest leave-out manifest.parquet copies.csv -o clean.parquet

    Args:
        path: Manifest to read.
        table: CSV or Parquet file of ids in a column id. If it has the column leave_out, like the table from hgld
            audit duplicates, only the images marked there are left out.
        out: Manifest to write.
        near_views: Also leave out the near views that hgld audit duplicates lists, except the image of each group
            whose column kept is true.
    """
    from hgld.datasets.manifest_files import leave_out_images

    summary = leave_out_images(path, table, out, near_views=near_views, force=force)
    print_summary(out, summary, format_manifest)


app.add_typer(manifest, name="manifest", rich_help_panel=FIRST_STEPS)

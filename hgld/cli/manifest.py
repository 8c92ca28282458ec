"""``hgld manifest``: a command for each reader of :mod:`hgld.datasets.readers.registry`, and leave-out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hgld.cli.base import App, Force, app, option, out_file, print_summary
from hgld.cli.options import options_of
from hgld.cli.render import lines, listed
from hgld.datasets.readers.registry import READERS, ReaderEntry

if TYPE_CHECKING:
    from hgld.datasets.manifest_files import ManifestSummary
    from hgld.datasets.readers.base import Reader

_IMAGES = "Folder that contains the images"
_FOLDER = typer.Argument(metavar="DIR", help=f"{_IMAGES}.")
_FOLDER_OR_FILE = option(f"{_IMAGES}, in folders or in tar files; or one tar file.", "--images")

manifest = App(no_args_is_help=True, rich_markup_mode="markdown")


@manifest.callback()
def about() -> None:
    """List the images of a dataset with their splits and labels, for hgld train and hgld embed-images.

    Published datasets are read in their published layout, your own from a table of labels or from nested folders.

    Example: hgld manifest sop Stanford_Online_Products -o sop.parquet
    """


def _add_reader(name: str, entry: ReaderEntry) -> None:
    """Add the command of a reader, whose options are the fields of the reader."""
    argument: dict[str, Any] = {}
    if entry.argument:
        argument[entry.argument] = {"kind": typer.Argument, "metavar": entry.argument.upper()}

    def write_manifest(
        *,
        reader: Reader,
        root: Path,
        out: Annotated[Path, out_file(".parquet")],
        force: Force = False,
    ) -> None:
        """Write a manifest.

        Args:
            out: Manifest to write.
        """
        from hgld.datasets.manifest_files import make_manifest

        print_summary(out, make_manifest(reader, root, out, force=force), format_manifest)

    write_manifest.__annotations__["root"] = Annotated[Path, _FOLDER_OR_FILE if argument else _FOLDER]
    command = manifest.command(name, help=f"{entry.summary}\n\n{_example(name, entry)}")
    command(options_of(f"hgld.datasets.readers.{entry.target}", "reader", **argument)(write_manifest))


def format_manifest(summary: ManifestSummary) -> str:
    """Format the number of images by split, of classes by level, and what else is to be known."""
    from hgld.datasets.image_folders import format_suffixes
    from hgld.io.columns import preview

    labels = "labels" if summary.labels_per_image is None else f"{summary.labels_per_image:.2f} labels per image"
    finest = next(iter(summary.n_classes))
    return lines(
        f"{sum(summary.images.values()):,} images ({listed(summary.images)}) with {labels} at "
        f"{len(summary.n_classes)} levels ({listed(summary.n_classes)})",
        len(summary.untrained) > 0
        and f"in test but not in train: {len(summary.untrained):,} {finest} ({preview(summary.untrained)})",
        [f"excluded: {count:,} images {reason}" for reason, count in summary.excluded.items()],
        len(summary.other_files) > 0
        and f"left out: files that are no images ({format_suffixes(summary.other_files)})",
    )


def _example(name: str, entry: ReaderEntry) -> str:
    options = "".join(f"--{key.replace('_', '-')} {value} " for key, value in entry.example.items())
    images = f"{entry.argument.upper()} --images DIR" if entry.argument else "DIR"
    return f"Example: hgld manifest {name} {images} {options}-o manifest.parquet"


for _name, _entry in READERS.items():
    _add_reader(_name, _entry)


@manifest.command()
def leave_out(
    images: Annotated[Path, typer.Argument(metavar="MANIFEST")],
    table: Path,
    out: Annotated[Path, out_file(".parquet")],
    force: Force = False,
) -> None:
    """Leave images out of a manifest: copies, or all that a table lists.

    Example: hgld manifest leave-out manifest.parquet duplicates.csv -o clean.parquet

    Args:
        images: Manifest to read.
        table: CSV or Parquet file of ids, or from hgld audit duplicates: of those marked there.
        out: Manifest to write.
    """
    from hgld.datasets.manifest_files import leave_out_images

    print_summary(out, leave_out_images(images, table, out, force=force), format_manifest)


app.add_typer(manifest, name="manifest", rich_help_panel="Retrieval")

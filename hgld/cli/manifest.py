"""``hgld manifest``: one command per reader of :mod:`hgld.datasets.readers.registry`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hgld.cli.base import App, Force, app, print_summary, writable_file
from hgld.cli.options import options_of
from hgld.datasets.readers.registry import READERS, ReaderEntry

if TYPE_CHECKING:
    from hgld.datasets.readers.base import Reader

_IMAGES = "Folder that contains the images"
_FOLDER = typer.Argument(metavar="DIR", help=f"{_IMAGES}.")
_FOLDER_OR_FILE = typer.Option("--images", help=f"{_IMAGES}, in folders or in tar files; or one tar file.")

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
        out: Annotated[
            Path, typer.Option("--out", "-o", callback=writable_file(".parquet"), help="Manifest to write.")
        ],
        force: Force = False,
    ) -> None:
        from hgld.cli.summaries.datasets import format_manifest
        from hgld.datasets.manifest_files import make_manifest

        print_summary(out, make_manifest(reader, root, out, force=force), format_manifest)

    write_manifest.__annotations__["root"] = Annotated[Path, _FOLDER_OR_FILE if argument else _FOLDER]
    command = manifest.command(name, help=f"{entry.summary}\n\n{_example(name, entry)}")
    command(options_of(entry.load, "reader", **argument)(write_manifest))


def _example(name: str, entry: ReaderEntry) -> str:
    options = "".join(f"--{key.replace('_', '-')} {value} " for key, value in entry.example.items())
    images = f"{entry.argument.upper()} --images DIR" if entry.argument else "DIR"
    return f"Example: hgld manifest {name} {images} {options}-o manifest.parquet"


for _name, _entry in READERS.items():
    _add_reader(_name, _entry)
app.add_typer(manifest, name="manifest", rich_help_panel="Retrieval")

"""``hgld manifest``: one command per reader of :mod:`hgld.datasets.readers.registry`."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from hgld.cli.base import App, Force, app, friendly_errors, print_summary, writable_file
from hgld.datasets.readers.registry import READERS, ReaderEntry

if TYPE_CHECKING:
    from hgld.datasets.readers.base import Reader

_IMAGES = "Folder that contains the images"
Root = Annotated[Path, typer.Argument(metavar="DIR", help=f"{_IMAGES}.")]
RootOption = Annotated[
    Path, typer.Option("--images", help=f"{_IMAGES}, in folders or in tar files; or one tar file.")
]
Out = Annotated[Path, typer.Option("--out", "-o", callback=writable_file(".parquet"), help="Manifest to write.")]


class _ReaderCommand(TyperCommand):
    """The command of a reader, which is imported when the command runs rather than when it is listed."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments with the options of the reader."""
        command = _reader_command(str(self.name), READERS[str(self.name)])
        return command.make_context(info_name, args, parent, **extra)


class _ReaderGroup(TyperGroup):
    """The commands of all readers, in the order of the registry."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands."""
        return list(READERS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a reader."""
        entry = READERS.get(cmd_name)
        return None if entry is None else _ReaderCommand(cmd_name, help=entry.summary)


manifest = App(cls=_ReaderGroup, no_args_is_help=True, rich_markup_mode="markdown")


@manifest.callback()
def about() -> None:
    """List the images of a dataset with their splits and labels, for hgld train and hgld embed-images.

    Published datasets are read in their published layout, your own from a table of labels or from nested folders.

    Example: hgld manifest sop Stanford_Online_Products -o sop.parquet
    """


def _reader_command(name: str, entry: ReaderEntry) -> Any:
    """Build a command whose options are the fields of the reader."""
    reader = entry.load()

    def write_manifest(root: Path, out: Path, force: bool, **settings: Any) -> None:
        with friendly_errors():
            from hgld.cli.summaries.datasets import format_manifest
            from hgld.datasets.manifest_files import make_manifest

            print_summary(out, make_manifest(reader(**settings), root, out, force=force), format_manifest)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        *_settings_parameters(reader, entry.argument),
        inspect.Parameter("root", keyword, annotation=RootOption if entry.argument else Root),
        inspect.Parameter("out", keyword, annotation=Out),
        inspect.Parameter("force", keyword, annotation=Force, default=False),
    ]
    write_manifest.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    write_manifest.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    single = App(add_completion=False, rich_markup_mode="markdown")
    single.command(name, help=f"{entry.summary}\n\n{_example(name, entry)}")(write_manifest)
    return typer.main.get_command(single)


def _settings_parameters(reader: type[Reader], argument: str) -> list[inspect.Parameter]:
    """Return a parameter per field of a reader, with the help text of the class docstring."""
    from hgld.io.settings import settings_help

    types, help_texts = get_type_hints(reader), settings_help(reader)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=Annotated[
                types[field.name],
                typer.Argument(metavar=field.name.upper(), help=help_texts.get(field.name))
                if field.name == argument
                else typer.Option(_option(field.name), help=help_texts.get(field.name)),
            ],
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
        )
        for field in fields(reader)  # type: ignore[arg-type]
    ]


def _option(setting: str) -> str:
    """Return the name of a setting's option. Typer's own names would add ``--no-…`` to switches."""
    return f"--{setting.replace('_', '-')}"


def _example(name: str, entry: ReaderEntry) -> str:
    options = "".join(f"{_option(key)} {value} " for key, value in entry.example.items())
    images = f"{entry.argument.upper()} --images DIR" if entry.argument else "DIR"
    return f"Example: hgld manifest {name} {images} {options}-o manifest.parquet"


app.add_typer(manifest, name="manifest", rich_help_panel="Retrieval")

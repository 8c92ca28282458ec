"""Print the results of commands, and note files in the project of a list."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from hgld.cli.shared_options import FigureFormatName
from hgld.errors import ConfigurationError, SourceError, indented_list
from hgld.figures.style import Nouns, also_written_as, figure_files

if TYPE_CHECKING:
    from hgld.taxonomy.project import Role

S = TypeVar("S")

#: Words for one and for several entities that have labels: the words for GLDv2.
LANDMARKS: Nouns = ("landmark", "landmarks")


def print_summary(out: Path, summary: S | None, format_summary: Callable[[S], str]) -> None:
    """Print the summary of a stage and its output; a summary of None means "up to date"."""
    if summary is None:
        typer.echo(f"{out}: up to date")
    else:
        typer.echo(f"{format_summary(summary)}\n{out}")


def figure_formats(
    formats: Sequence[FigureFormatName] | None,
) -> AbstractContextManager[None]:
    """Return a context in which figures are written in further formats, too."""
    return also_written_as([figure_format.value for figure_format in formats or ()])


def print_figure(path: Path) -> None:
    """Print the path of a figure, and the paths of its further formats."""
    for file in figure_files(path):
        typer.echo(file)


def require_none_failed(failures: Sequence[str], outcome: str) -> None:
    """Raise a :class:`SourceError` that lists failures, such as "files could not be downloaded"."""
    if failures:
        raise SourceError(f"{len(failures):,} {outcome}:\n{indented_list(failures)}\n{try_again()}")


def try_again() -> str:
    """Return a sentence with the command line of this process, which retries only failed work."""
    return f"to try only these again, run\n  {shlex.join(['hgld', *sys.argv[1:]])}"


def begin_project(
    table: Path, words: tuple[str, str], *, is_new: bool, counts: bool | None = None
) -> None:
    """Write the project file of a list other than GLDv2's (:mod:`hgld.taxonomy.project`).

    A project file that exists is kept.

    Args:
        table: Table of the list.
        words: Words for one and for several entities of the list.
        is_new: Whether the table did not exist before.
        counts: Whether the list has a column of counts; None if that is unknown.
    """
    from hgld.taxonomy.project import create_project, find_project_file

    project = create_project(table, *words, counts=counts)
    if project is not None:
        typer.echo(
            f"{project}: says what the list is about; further commands read it, and you may edit it",
            err=True,
        )
    elif is_new:
        existing_project = find_project_file(table)
        typer.echo(
            f"{existing_project}: this list, too, is of {words[1]}; give --entity if it is another one",
            err=True,
        )


def remember(near: Path, role: Role, file: Path | None) -> None:
    """Note a given file in the project of a table, unless the project already names such a file.

    Args:
        near: Table whose project is meant; see :mod:`hgld.taxonomy.project`.
        role: Role of the file in the project, such as ``taxonomy``.
        file: The file; None if no file was given.
    """
    from hgld.taxonomy.project import remember_in_project

    if file is None:
        return
    try:
        project = remember_in_project(near, role, file)
    except ConfigurationError as error:  # the work is done, so the command has not failed
        typer.echo(f"note: {error}", err=True)
        return
    if project is not None:
        typer.echo(f"{project}: noted the {role} {file} for further commands", err=True)

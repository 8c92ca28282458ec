"""The ``hgld`` command: one thin command per stage over one function of the library.

Results go to stdout, logs and progress to stderr; the exit code is 0 only when the work was done. Heavy
imports stay inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from hgld import __version__
from hgld.errors import HgldError

app = typer.Typer(
    name="hgld",
    help="Hierarchical labels for Google Landmarks v2: scrape, clean, embed, cluster, export.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@contextmanager
def friendly_errors() -> Iterator[None]:
    """Turn what went wrong into one message on stderr and exit code 1; Ctrl-C into 130."""
    try:
        yield
    except HgldError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("interrupted; run the same command again to go on", err=True)
        raise typer.Exit(130) from None


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hgld {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every request and decision.")] = False,
) -> None:
    """Set up logging for every command."""
    logging.basicConfig(
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%H:%M:%S",
        level=logging.DEBUG if verbose else logging.INFO,
    )
    for chatty in ("urllib3", "matplotlib", "PIL", "httpx", "httpcore", "filelock"):
        logging.getLogger(chatty).setLevel(logging.WARNING)

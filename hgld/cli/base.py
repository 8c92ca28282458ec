"""The application that commands register with, and what they all do: say what was done, and what went wrong."""

from __future__ import annotations

import logging
import sys
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from hgld import __version__
from hgld.errors import HgldError

app = typer.Typer(
    name="hgld",
    help="Hierarchical labels for Google Landmarks v2: from scrape and review to release and evaluation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # lines of a paragraph are joined
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Options that several commands have.
Taxonomy = Annotated[
    Path | None, typer.Option(help="The groups and their roots.", show_default="annotations/taxonomy.csv")
]
Decided = Annotated[
    Path | None, typer.Option(help="The decisions on labels.", show_default="annotations/decisions/final.csv")
]
CleanBeside = Annotated[
    Path | None, typer.Option(help="The table from hgld clean.", show_default="clean.parquet beside CLUSTERS")
]
ClassesBeside = Annotated[
    list[Path] | None,
    typer.Option(help="Tables of classes from hgld scrape.", show_default="*.classes.parquet beside CLUSTERS"),
]
Force = Annotated[bool, typer.Option("--force", help="Do the work although the output is up to date.")]


@contextmanager
def friendly_errors(*, again: str = "run the same command again to go on") -> Iterator[None]:
    """Turn what went wrong into one message on stderr and exit code 1; Ctrl-C into 130, and how to go on."""
    try:
        yield
    except HgldError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo(f"interrupted; {again}", err=True)
        raise typer.Exit(130) from None


def tell(out: Path, summary: object | None) -> None:
    """Print what a stage has done; stages return None when there was nothing to do."""
    typer.echo(f"{out}: up to date" if summary is None else f"{summary}\n{out}")


def announcing(open_browser: bool) -> Callable[[str], None]:
    """What a command that serves a page does when the page answers: print its address, open it if wanted."""

    def announce(address: str) -> None:
        typer.echo(f"{address}\nstop with Ctrl-C")
        sys.stdout.flush()
        if open_browser:
            webbrowser.open(address)

    return announce


def log_to_stderr(verbose: bool = False) -> None:
    """Show what the library logs; of other packages, what is more than talk."""
    logging.basicConfig(
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%H:%M:%S",
        level=logging.DEBUG if verbose else logging.INFO,
    )
    for chatty in ("urllib3", "matplotlib", "PIL", "httpx", "httpcore", "filelock"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hgld {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log details, such as every repeated request.")
    ] = False,
) -> None:
    """Set up logging for every command."""
    log_to_stderr(verbose)

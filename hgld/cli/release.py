"""Releases: release, push-dataset."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.base import (
    CorrectionsOfHierarchy,
    DecisionsOfHierarchy,
    TaxonomyOfHierarchy,
    app,
    flag,
    option,
    out_folder,
    print_summary,
)
from hgld.cli.options import options_of
from hgld.errors import ConfigurationError, counted
from hgld.progress import byte_size

if TYPE_CHECKING:
    from hgld.release.publish import PushDatasetSummary, ReleaseSummary


@app.command(rich_help_panel="Hierarchy")
@options_of("hgld.release.publish:write_release", "write_release", settings=None)
def release(
    *,
    hierarchy: Annotated[Path, typer.Argument(help="Hierarchy from hgld build.")],
    out: Annotated[Path | None, out_folder("Folder to write.")] = None,
    facts: Annotated[
        Path | None, option("YAML file of what hgld cannot know.", default="release.yaml beside HIERARCHY")
    ] = None,
    init: Annotated[bool, flag("--init", "Ask for the facts, write that file, and stop.")] = False,
    yes: Annotated[bool, flag("--yes", "With --init, take the suggested answers without asking.")] = False,
    with_scraped: Annotated[
        bool, flag("--with-scraped", "Publish the tables of scraped values and of removed rows, too.")
    ] = False,
    decisions: DecisionsOfHierarchy = None,
    taxonomy: TaxonomyOfHierarchy = None,
    corrections: CorrectionsOfHierarchy = None,
    write_release: Callable[..., ReleaseSummary | None],
) -> None:
    """Write a folder to publish: Parquet, CSV, dataset card, datasheet, Croissant, checksums, licence.

    The same hierarchy, tables beside it and facts give the same bytes. An existing folder is replaced only if hgld
    release wrote everything in it.

    --init asks for the facts, or reads an answer per line where no one types; what is then left, the suggestions
    answer. The datasheet's further questions are in the file that it writes.

    Example: hgld release hierarchy.parquet --init, then hgld release hierarchy.parquet -o release/
    """
    from hgld.io.settings import read_settings
    from hgld.release.facts import ReleaseSettings, suggested, write_questions

    facts = facts or hierarchy.with_name("release.yaml")
    if init:
        write_questions(hierarchy, facts, suggested if yes else ask)
        typer.echo(facts)
        return
    if out is None:
        raise ConfigurationError("name the folder to write with `out`, or `init` to write the questions")
    if not facts.exists():
        raise ConfigurationError(f"{facts}: no such file; `init` writes it, with questions to answer")
    settings = read_settings(ReleaseSettings, facts, ["raw=true"] if with_scraped else [])
    print_summary(out, write_release(settings=settings), format_release)


@app.command(rich_help_panel="Hierarchy")
@options_of("hgld.release.publish:push_dataset", "push", repository={"kind": typer.Argument, "metavar": "OWNER/NAME"})
def push_dataset(*, push: partial[PushDatasetSummary | None]) -> None:
    """Publish a release on the Hugging Face hub, with a tag such as v1.0.0 for its version.

    datasets.load_dataset("OWNER/NAME", revision="v1.0.0") reads it. A tagged version never changes. The hub's own
    variables apply: HF_TOKEN, and HF_ENDPOINT for another server.

    Example: hgld push-dataset release/ ada/birds
    """
    summary = push()
    if summary is None:
        typer.echo(f"{push.keywords['repository']}: up to date")
        return
    counts = f"{counted(summary.files, 'file')}, {byte_size(summary.n_bytes)}"
    typer.echo(f"{summary.name}, {counts}, tagged {summary.tag}\n{summary.url}")


def ask(question: str, suggestion: str) -> str:
    """Ask on the terminal, or take the next line of what is piped; without one, return the suggestion."""
    if sys.stdin.isatty():
        answer: str = typer.prompt(question, default=suggestion, show_default=bool(suggestion), err=True)
        return answer
    return sys.stdin.readline().strip() or suggestion


def format_release(summary: ReleaseSummary) -> str:
    """Format the counts of a release."""
    splits = ", ".join(f"{split} {count:,}" for split, count in summary.landmarks.items())
    unchecked = "Croissant not checked (pip install '.[croissant]' in a clone of hgld)"
    croissant = "valid Croissant" if summary.validated else unchecked
    return f"{splits} {summary.entities} in {summary.groups:,} groups; {summary.files} files, {croissant}"

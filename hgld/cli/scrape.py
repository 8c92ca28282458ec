"""``hgld scrape``: what landmarks are instances of, from Wikidata and Commons or from a dump."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from hgld.cli.base import app, friendly_errors, print_summary, writable_file, writable_folder
from hgld.errors import ConfigurationError, SourceError
from hgld.progress import TerminalProgress


@app.command(rich_help_panel="Labels")
def scrape(
    categories: Annotated[
        Path, typer.Argument(metavar="INPUT", help="GLDv2's *_label_to_category.csv: landmark_id, category URL.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", callback=writable_file(".parquet"), help="Table to write.")],
    split: Annotated[
        Literal["train", "index"], typer.Option(help="Split of the landmark ids, which are numbered per split.")
    ],
    source: Annotated[
        Literal["api", "html", "dump"],
        typer.Option(
            help="Data source: the APIs (50 landmarks per request), the category pages (one per request), or a dump "
            "of Wikidata (no requests)."
        ),
    ] = "api",
    dump: Annotated[
        Path | None,
        typer.Option(
            help="JSON dump of Wikidata, for --source dump: .json, .json.gz or .json.bz2, or a folder of such parts.",
            show_default="only the extract is read",
        ),
    ] = None,
    extract: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            callback=writable_folder,
            help="What is kept of the dump for this and all later scrapes.",
            show_default="wikidata-items beside the output",
        ),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            metavar="N/COUNT",
            help="Read one of several parts of the dump, such as 3/16; then run the command without --part, which "
            "writes the table.",
            show_default="the whole dump, then the scrape",
        ),
    ] = None,
    contact: Annotated[
        str | None,
        typer.Option(envvar="HGLD_CONTACT", help="Your e-mail address or wiki user page, for the User-Agent."),
    ] = None,
    rate: Annotated[
        float,
        typer.Option(help="Maximum requests per minute to both hosts together; 0 for no limit, except at Wikimedia."),
    ] = 150,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Number of concurrent requests (1 to 3), or of processes that read a dump.",
            show_default="1; one per core for a dump",
        ),
    ] = None,
    max_retries: Annotated[int, typer.Option(help="Maximum number of retries per request.")] = 10,
    class_depth: Annotated[int, typer.Option(help='Number of "subclass of" steps to fetch above each class.')] = 10,
    allow_frequent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATUS",
            help="Status in which any number of landmarks may end, where a scrape would stop; repeatable.",
            show_default=False,
        ),
    ] = None,
    commons_url: Annotated[
        str, typer.Option(envvar="HGLD_COMMONS_URL", help="Base URL of Commons, above wiki/ and w/api.php.")
    ] = "https://commons.wikimedia.org",
    wikidata_url: Annotated[
        str, typer.Option(envvar="HGLD_WIKIDATA_URL", help="Base URL of Wikidata, above w/api.php.")
    ] = "https://www.wikidata.org",
    update: Annotated[
        Path | None,
        typer.Option(metavar="TABLE", help="Earlier table from this command; fetch only what has changed since."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Discard an unfinished scrape, and replace an existing table.")
    ] = False,
) -> None:
    """Look up what each landmark is an instance of, on Wikidata and Commons or in a dump of Wikidata.

    The same command resumes an interrupted run, and retries failed rows; if the list has changed, only new landmarks
    are fetched. Beside X.parquet the API source writes X.classes.parquet with the classes and their superclasses.

    A dump is read once: other lists are looked up in the extract. On a cluster, the jobs of an array read a --part
    each.

    Example: hgld scrape train_label_to_category.csv --split train -o scraped_train.parquet --contact you@example.org
    """
    from hgld.cli.summaries.wikimedia import format_scrape
    from hgld.wikimedia.client import ClientConfig
    from hgld.wikimedia.scraper import ScrapeConfig, scrape_file

    with friendly_errors(rate_per_minute="--rate"):
        if source == "dump":
            if update is not None:
                raise ConfigurationError("`update` needs `source` api: a dump is read as a whole")
            extract = extract or out.parent / "wikidata-items"
            if dump is not None:
                _extract(dump, extract, part, workers)
            elif part is not None:
                raise ConfigurationError("`part` is one of a dump; name it with `dump`")
            if part is None:
                _scrape_extract(categories, out, extract, split, class_depth, tuple(allow_frequent or ()), force)
            return
        if dump or extract or part:
            raise ConfigurationError("`dump`, `extract` and `part` need `source` dump")
        client = ClientConfig(
            commons_url=commons_url.rstrip("/"),
            wikidata_url=wikidata_url.rstrip("/"),
            contact=contact,
            rate_per_minute=rate,
            max_retries=max_retries,
        )
        config = ScrapeConfig(split, source, workers or 1, class_depth, client, tuple(allow_frequent or ()))
        with TerminalProgress("scrape", "landmarks") as progress:
            summary = scrape_file(categories, out, config, update=update, force=force, progress=progress)
        print_summary(out, summary, format_scrape)
        if summary is not None and summary.errors:
            raise SourceError(
                f"{summary.errors:,} rows or classes failed; to try only these again, run\n"
                f"  {shlex.join(['hgld', *sys.argv[1:]])}"
            )


def _extract(dump: Path, extract: Path, part: str | None, workers: int | None) -> None:
    """Read a dump, or a share of it, and print how much of its extract there is."""
    from hgld.cli.summaries.wikimedia import format_extract
    from hgld.compute.part import Part
    from hgld.wikimedia.dump_extract import ExtractConfig, extract_dump

    share = None if part is None else Part.parse(part)
    with TerminalProgress("dump", "B") as progress:
        done = extract_dump(dump, extract, ExtractConfig(workers), part=share, progress=progress)
    typer.echo(f"{extract}: {format_extract(done)}")


def _scrape_extract(
    categories: Path,
    out: Path,
    extract: Path,
    split: str,
    class_depth: int,
    allow_frequent: tuple[str, ...],
    force: bool,
) -> None:
    """Scrape from the extract of a dump, and print the summary."""
    from hgld.cli.summaries.wikimedia import format_scrape
    from hgld.wikimedia.scraper import scrape_dump

    with TerminalProgress("scrape", "landmarks") as progress:
        summary = scrape_dump(
            categories,
            out,
            extract,
            split,
            class_depth=class_depth,
            allow_frequent=allow_frequent,
            force=force,
            progress=progress,
        )
    print_summary(out, summary, format_scrape)

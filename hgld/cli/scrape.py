"""``hgld scrape``: what landmarks are instances of, from Wikidata and Commons or from a dump."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hgld.cli.base import PART, ExecutionConfig, app, out_file, print_summary, try_again, writable_folder
from hgld.cli.options import options_of
from hgld.cli.render import lines, listed
from hgld.compute.executors import Part
from hgld.errors import ConfigurationError, SourceError
from hgld.progress import TerminalProgress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hgld.wikimedia.client import ClientConfig
    from hgld.wikimedia.dump_extract import ExtractProgress
    from hgld.wikimedia.scraper import ScrapeConfig, ScrapeSummary


@app.command(rich_help_panel="Labels")
@options_of(
    "hgld.wikimedia.scraper:ScrapeConfig",
    class_depth="--depth",
    property_id={"name": "--property", "metavar": "P"},
    parents="P",
    allow_frequent="STATUS",
    id="COLUMN",
    item="COLUMN",
    category="COLUMN",
    split_column="COLUMN",
)
@options_of(
    "hgld.wikimedia.client:ClientConfig",
    "client",
    commons_url={"envvar": "HGLD_COMMONS_URL"},
    wikidata_url={"envvar": "HGLD_WIKIDATA_URL"},
    contact={"envvar": "HGLD_CONTACT"},
    rate_per_minute="--rate",
    timeout_s=None,
    backoff_s=None,
)
@options_of("hgld.cli.base:ExecutionConfig", "execution", panel="Parts")
def scrape(
    *,
    categories: Annotated[Path, typer.Argument(metavar="LIST")],
    out: Annotated[Path, out_file(".parquet")],
    source: Literal["api", "html", "dump"] = "api",
    dump: Path | None = None,
    extract: Annotated[Path | None, typer.Option(metavar="FOLDER", callback=writable_folder)] = None,
    part: Annotated[Part | None, PART] = None,
    workers: int | None = None,
    execution: ExecutionConfig,
    client: partial[ClientConfig],
    config: partial[ScrapeConfig],
    update: Annotated[Path | None, typer.Option(metavar="TABLE")] = None,
    force: bool = False,
) -> None:
    """Look up what each landmark is an instance of, or values of other lists, on Wikidata and Commons or in a dump.

    The same command resumes an interrupted run, and retries failed rows; if the list has changed, only new landmarks
    are fetched. Beside X.parquet the API source writes X.classes.parquet with the classes and their superclasses.

    A dump is read once: other lists are looked up in the extract. On a cluster, the jobs of an array read a --part
    each.

    A list of other entities has any columns: --id names that of their ids, --item or --category their items or
    categories, for example: hgld scrape birds.csv --id id --item item --split-column part --property P171 --parents
    P171 -o scraped.parquet

    Example: hgld scrape train_label_to_category.csv --split train -o scraped_train.parquet --contact you@example.org

    Args:
        categories: GLDv2's *_label_to_category.csv: landmark_id, category URL; or any CSV or Parquet file, with --id.
        out: Table to write.
        source: Data source: the APIs (50 landmarks per request), the category pages (one per request), or a dump of
            Wikidata (no requests).
        dump: JSON dump of Wikidata, for --source dump: .json, .json.gz or .json.bz2, or a folder of such parts.
            Default: only the extract is read.
        extract: What is kept of the dump for this and all later scrapes. Default: wikidata-items beside the output.
        part: Read one of several parts of the dump, such as 3/16; then run the command without --part, which writes
            the table. Default: the whole dump, then the scrape.
        workers: Number of concurrent requests (1 to 3), or of processes that read a dump. Default: 1; one per core
            for a dump.
        update: Earlier table from this command; fetch only what has changed since.
        force: Discard an unfinished scrape, and replace an existing table.
    """
    from hgld.wikimedia.dump_extract import ExtractConfig, extract_dump, ranges_are_written
    from hgld.wikimedia.scraper import scrape_dump, scrape_file

    if source == "dump":
        if update is not None:
            raise ConfigurationError("`update` needs `source` api: a dump is read as a whole")
        extract = extract or out.parent / "wikidata-items"
        if dump is not None:
            if execution.executor and part is None:
                execution.run_parts(extract, ranges_are_written(dump, extract, ExtractConfig(workers)))
            with TerminalProgress("dump", "B") as progress:
                done = extract_dump(dump, extract, ExtractConfig(workers), part=part, progress=progress)
            typer.echo(f"{extract}: {_format_extract(done)}")
        elif part is not None or execution.executor:
            raise ConfigurationError("parts are those of a dump; name it with `dump`")
        if part is None:
            with TerminalProgress("scrape", "landmarks") as progress:
                keywords = {
                    name: value for name, value in config.keywords.items() if name not in ("source", "workers")
                }
                settings = config.func(**keywords)
                summary = scrape_dump(categories, out, extract, settings, force=force, progress=progress)
            print_summary(out, summary, format_scrape)
        return
    if dump or extract or part or execution.executor:
        raise ConfigurationError("`dump`, `extract`, `part` and `executor` need `source` dump")
    settings = config(client=client())
    with TerminalProgress("scrape", "landmarks") as progress:
        summary = scrape_file(categories, out, settings, update=update, force=force, progress=progress)
    print_summary(out, summary, format_scrape)
    if summary is not None and summary.errors:
        raise SourceError(f"{summary.errors:,} rows or classes failed; {try_again()}")


def format_scrape(summary: ScrapeSummary) -> str:
    """Format the cost of a scrape, and its landmarks by status and by route."""
    if summary.dump_date is None:
        per_landmark = f" ({summary.requests / summary.landmarks:.4f} per landmark)"
        origin = f"{summary.requests:,} requests{per_landmark}, {summary.retries:,} of them retries"
    else:
        origin = f"from a dump of {summary.dump_date:%Y-%m-%d}"
    width = max(map(len, (*summary.statuses, *summary.routes)))

    def shares(title: str, counts: Mapping[str, int]) -> list[str]:
        ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        rows = (f"  {name:<{width}}{count:>10,} {count / summary.landmarks:>8.2%}" for name, count in ordered)
        return [f"{title:<{width}}   landmarks", *rows]

    return lines(
        f"{summary.landmarks:,} landmarks, {summary.classes:,} classes and superclasses; {origin}, "
        f"{summary.seconds:.1f} s",
        summary.taken_over > 0
        and f"{summary.taken_over:,} landmarks were in the output before and keep their rows; "
        f"{summary.landmarks - summary.taken_over:,} are new or had failed",
        summary.changes is not None and f"since the earlier scrape: {listed(summary.changes)}",
        shares("status", summary.statuses),
        shares("route", summary.routes),
    )


def _format_extract(extract: ExtractProgress) -> str:
    if extract.complete:
        return "the extract of the dump is complete"
    return f"{extract.parts_done:,} of {extract.parts:,} parts of the dump are read"

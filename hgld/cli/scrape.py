"""``hgld scrape``: what landmarks are instances of, from Wikidata and Commons."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.base import app, out_file, print_summary, try_again
from hgld.cli.options_from_source import options_of
from hgld.cli.render import lines
from hgld.errors import SourceError
from hgld.progress import TerminalProgress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hgld.wikimedia.scraper import ScrapeSummary
    from hgld.wikimedia.settings import ClientConfig, ScrapeConfig


@app.command(rich_help_panel="Labels")
@options_of(
    "hgld.wikimedia.settings:ScrapeConfig",
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
    "hgld.wikimedia.settings:ClientConfig",
    "client",
    commons_url={"envvar": "HGLD_COMMONS_URL"},
    wikidata_url={"envvar": "HGLD_WIKIDATA_URL"},
    contact={"envvar": "HGLD_CONTACT"},
    rate_per_minute="--rate",
    timeout_s=None,
    backoff_s=None,
)
def scrape(
    *,
    categories: Annotated[Path, typer.Argument(metavar="LIST")],
    out: Annotated[Path, out_file(".parquet")],
    client: partial[ClientConfig],
    config: partial[ScrapeConfig],
    force: bool = False,
) -> None:
    """Look up what each landmark is an instance of, or values of other lists, on Wikidata and Commons.

    The same command resumes an interrupted run, and retries failed rows; if the list has changed, only new landmarks
    are fetched. Beside X.parquet the API source writes X.classes.parquet with the classes and their superclasses.

    A list of other entities has any columns: --id names that of their ids, --item or --category their items or
    categories, for example: hgld scrape birds.csv --id id --item item --split-column part --property P171 --parents
    P171 -o scraped.parquet

    Example: hgld scrape train_label_to_category.csv --split train -o scraped_train.parquet --contact you@example.org

    Args:
        categories: GLDv2's *_label_to_category.csv: landmark_id, category URL; or any CSV or Parquet file, with --id.
        out: Table to write.
        force: Discard an unfinished scrape, and replace an existing table.
    """
    from hgld.wikimedia.scraper import scrape_file

    settings = config(client=client())
    with TerminalProgress("scrape", "landmarks") as progress:
        summary = scrape_file(categories, out, settings, force=force, progress=progress)
    print_summary(out, summary, format_scrape)
    if summary is not None and summary.errors:
        raise SourceError(f"{summary.errors:,} rows or classes failed; {try_again()}")


def format_scrape(summary: ScrapeSummary) -> str:
    """Format the cost of a scrape, and its landmarks by status and by route."""
    per_landmark = f"{summary.requests / summary.landmarks:.4f} per landmark"
    cost = f"{summary.requests:,} requests ({per_landmark}), {summary.retries:,} of them retries"
    width = max(map(len, (*summary.statuses, *summary.routes)))

    def shares(title: str, counts: Mapping[str, int]) -> list[str]:
        ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        rows = (f"  {name:<{width}}{count:>10,} {count / summary.landmarks:>8.2%}" for name, count in ordered)
        return [f"{title:<{width}}   landmarks", *rows]

    return lines(
        f"{summary.landmarks:,} landmarks, {summary.classes:,} classes and superclasses; {cost}, "
        f"{summary.seconds:.1f} s",
        summary.taken_over > 0
        and f"{summary.taken_over:,} landmarks were in the output before and keep their rows; "
        f"{summary.landmarks - summary.taken_over:,} are new or had failed",
        shares("status", summary.statuses),
        shares("route", summary.routes),
    )

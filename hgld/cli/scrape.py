"""``hgld scrape``: look up the classes of landmarks on Wikidata and Commons."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.application import FIRST_STEPS, app
from hgld.cli.options import field_options, help_panels
from hgld.cli.output import LANDMARKS, begin_project, print_summary, try_again
from hgld.cli.shared_options import out_file
from hgld.errors import ConfigurationError, SourceError, counted
from hgld.figures.style import Nouns
from hgld.progress import TerminalProgress
from hgld.wikimedia.settings import ClientConfig, ScrapeConfig

if TYPE_CHECKING:
    from hgld.wikimedia.scraper import ScrapeSummary


_COLUMN = typer.Option(metavar="COLUMN")


@app.command(rich_help_panel=FIRST_STEPS)
@help_panels(
    {
        "Lists of other entities": [
            "id",
            "item",
            "category",
            "split_column",
            "property_id",
            "parents",
            "languages",
            "entity",
            "entities",
        ],
        "Requests": ["workers", "rate_per_minute", "max_retries", "commons_url", "wikidata_url"],
        "Tuning": ["source", "class_depth", "allow_frequent"],
    }
)
@field_options(
    ClientConfig,
    commons_url=typer.Option(envvar="HGLD_COMMONS_URL"),
    wikidata_url=typer.Option(envvar="HGLD_WIKIDATA_URL"),
    contact=typer.Option(envvar="HGLD_CONTACT"),
    rate_per_minute="--rate",
    timeout_s=None,
    backoff_s=None,
)
@field_options(
    ScrapeConfig,
    class_depth="--depth",
    allow_frequent=typer.Option(metavar="STATUS"),
    id=_COLUMN,
    item=_COLUMN,
    category=_COLUMN,
    split_column=_COLUMN,
    property_id=typer.Option("--property", metavar="P"),
    parents=typer.Option(metavar="P"),
)
def scrape(
    *,
    categories: Annotated[Path, typer.Argument(metavar="LIST")],
    out: Annotated[Path, out_file(".parquet")],
    config: ScrapeConfig,
    client: ClientConfig,
    entity: str | None = None,
    entities: str | None = None,
    force: bool = False,
) -> None:
    """Look up the "instance of" values of landmarks, or a property of other items, on Wikidata and Commons.

    The same command resumes an interrupted run, and retries failed rows; if the list has changed, only new landmarks
    are fetched. Beside X.parquet the API source writes X.classes.parquet with the classes and their superclasses.

    The list may be about other entities, such as birds. Name the column of their ids with --id, and the column of
    their items or categories with --item or --category: hgld scrape birds.csv --id id --item item --split-column part
    --property P171 --parents P171 -o scraped.parquet

    Example: hgld scrape train_label_to_category.csv --split train -o scraped_train.parquet --contact you@example.org

    Args:
        categories: GLDv2's *_label_to_category.csv: landmark_id, category URL; or any CSV or Parquet file, with --id.
        out: Table to write.
        entity: Noun for an entry of the list, such as bird, which hgld.yaml keeps for further commands. Default:
            entity.
        entities: Plural of --entity. Default: the regular plural.
        force: Discard an unfinished scrape, and replace an existing table.
    """
    from hgld.taxonomy.project import words_of_list
    from hgld.wikimedia.scraper import scrape_file

    settings = replace(config, client=client)
    if config.id is None and (entity or entities):
        raise ConfigurationError(
            "`entity` and `entities` are words for a list other than GLDv2's; give its `id`, too"
        )
    nouns = LANDMARKS if config.id is None else words_of_list(out, entity, entities)
    is_new = not out.exists()
    with TerminalProgress("scrape", nouns[1]) as progress:
        summary = scrape_file(categories, out, settings, force=force, progress=progress)
    if config.id is not None:
        begin_project(out, nouns, is_new=is_new)
    print_summary(out, summary, partial(format_scrape, nouns=nouns))
    if summary is not None and summary.errors:
        raise SourceError(f"{summary.errors:,} rows or classes failed; {try_again()}")


def format_scrape(summary: ScrapeSummary, nouns: Nouns = LANDMARKS) -> str:
    """Format the cost of a scrape, and its landmarks by status and by route."""
    from hgld.io.columns import preview

    per_landmark = f"{summary.requests / summary.landmarks:.4f} per {nouns[0]}"
    cost = f"{summary.requests:,} requests ({per_landmark}), {summary.retries:,} of them retries"
    lines = [
        f"{summary.landmarks:,} {nouns[1]}, {summary.classes:,} classes and superclasses; {cost}, "
        f"{summary.seconds:.1f} s"
    ]
    if summary.taken_over:
        lines.append(
            f"{summary.taken_over:,} {nouns[1]} were in the output before and keep their rows; "
            f"{summary.landmarks - summary.taken_over:,} are new or had failed"
        )
    if summary.unlabelled:
        values = counted(len(summary.unlabelled), "value")
        examples = preview(summary.unlabelled, 5)
        lines.append(
            f"{values} without a label in these languages, which hgld clean leaves out: {examples}; name further "
            "languages with --languages"
        )
    width = max(len(name) for name in [*summary.statuses, *summary.routes])
    for title, counts in (("status", summary.statuses), ("route", summary.routes)):
        lines.append(f"{title:<{width}}{nouns[1]:>12}")
        for name, count in sorted(counts.items(), key=_largest_count_first):
            lines.append(f"  {name:<{width}}{count:>10,} {count / summary.landmarks:>8.2%}")
    return "\n".join(lines)


def _largest_count_first(name_and_count: tuple[str, int]) -> tuple[int, str]:
    name, count = name_and_count
    return -count, name

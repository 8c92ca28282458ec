"""Everything that sends requests to Wikimedia: category lists, HTTP client, API and HTML sources, scraper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.wikimedia.categories import LandmarkCategory, read_categories
    from hgld.wikimedia.client import ClientConfig, WikimediaClient
    from hgld.wikimedia.scraper import ScrapeConfig, ScrapeSummary, scrape_file

__all__ = [
    "ClientConfig",
    "LandmarkCategory",
    "ScrapeConfig",
    "ScrapeSummary",
    "WikimediaClient",
    "read_categories",
    "scrape_file",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ClientConfig": "client",
        "LandmarkCategory": "categories",
        "ScrapeConfig": "scraper",
        "ScrapeSummary": "scraper",
        "WikimediaClient": "client",
        "read_categories": "categories",
        "scrape_file": "scraper",
    },
)

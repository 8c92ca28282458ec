"""What ``hgld demo`` prints of each stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hgld.cli.summaries.hierarchy import format_build
from hgld.cli.summaries.labels import format_clean, format_clusters, format_embed, format_suggestions
from hgld.cli.summaries.review import format_export
from hgld.cli.summaries.wikimedia import format_scrape
from hgld.hierarchy.build import BuildSummary
from hgld.labels.clean import CleanSummary
from hgld.labels.clusters import ClusterSummary
from hgld.labels.embed import EmbedSummary
from hgld.labels.suggest import SuggestSummary
from hgld.review.sheets.export import ExportSummary
from hgld.wikimedia.scraper import ScrapeSummary

_TEXTS: dict[type, Callable[[Any], str]] = {
    ScrapeSummary: format_scrape,
    CleanSummary: format_clean,
    EmbedSummary: format_embed,
    ClusterSummary: format_clusters,
    SuggestSummary: format_suggestions,
    ExportSummary: format_export,
    BuildSummary: format_build,
}


def format_stage(summary: object | None) -> str:
    """The text that the command of this stage prints, or ``up to date`` for None."""
    return "up to date" if summary is None else _TEXTS.get(type(summary), str)(summary)

"""What ``hgld demo`` prints of each stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hgld.cli.summaries.hierarchy import build_text
from hgld.cli.summaries.labels import clean_text, clusters_text, embed_text, suggestions_text
from hgld.hierarchy.build import BuildSummary
from hgld.labels.clean import CleanSummary
from hgld.labels.clusters import ClusterSummary
from hgld.labels.embed import EmbedSummary
from hgld.labels.suggest import SuggestSummary

_TEXTS: dict[type, Callable[[Any], str]] = {
    CleanSummary: clean_text,
    EmbedSummary: embed_text,
    ClusterSummary: clusters_text,
    SuggestSummary: suggestions_text,
    BuildSummary: build_text,
}


def stage_text(summary: object | None) -> str:
    """The text that the command of this stage prints, or ``up to date`` for None."""
    return "up to date" if summary is None else _TEXTS.get(type(summary), str)(summary)

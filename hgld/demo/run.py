"""Run the stages from scrape to build that need no annotators on the bundled sample (``hgld demo``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hgld.demo.sample import read_sample, serve_sample
from hgld.hierarchy import load_hierarchy
from hgld.hierarchy.build import build_file
from hgld.hierarchy.stats import draw_hierarchy
from hgld.labels.clean import clean_file
from hgld.labels.clusters import cluster_file
from hgld.labels.embed import embed_file
from hgld.labels.encoders import has_minilm
from hgld.labels.settings import ClusterConfig, EmbedConfig
from hgld.labels.suggest import suggest_file
from hgld.resources import sample_file
from hgld.review.settings import ExportConfig
from hgld.review.sheets.export import export_sheets
from hgld.tables import SPLITS, classes_path
from hgld.wikimedia.scraper import scrape_file
from hgld.wikimedia.settings import ClientConfig, ScrapeConfig

ANNOTATORS = ("ada", "ben")
#: The default would be 75 for the 150 labels of the sample, only two labels for each.
_SUBCLUSTERS = 40


@dataclass(frozen=True)
class DemoSummary:
    """Result of the demo.

    Args:
        out: Folder of the results.
        groups: Number of landmarks of each group, by root.
        seconds: Duration of the demo.
    """

    out: Path
    groups: Mapping[str, Mapping[str, int]]
    seconds: float


def default_encoder() -> str:
    """Return ``minilm`` if its packages are installed, and ``ngrams`` otherwise.

    The demo does not use CLIP, the default of ``hgld embed``, since its first use downloads 1.7 GB.
    """
    if has_minilm():
        return "minilm"
    return "ngrams"


def run_demo(
    out: Path,
    *,
    encoder: str | None = None,
    force: bool = False,
    on_stage: Callable[[str, object | None], None] = lambda stage, summary: None,
) -> DemoSummary:
    """Scrape, clean, embed, cluster, suggest and export the bundled sample, and build and draw its hierarchy.

    The sample is served at a new port every time, so it is always scraped again; later stages run
    only if their inputs changed. Entries in review sheets are kept. The hierarchy follows the
    decisions bundled with hgld, not the sheets.

    Args:
        out: Folder of the results.
        encoder: Text encoder of the labels. Default: see :func:`default_encoder`.
        force: Run every stage, and replace the review sheets, which discards their entries.
        on_stage: Called after each stage with its name and its result, which is None if the outputs
            were up to date.
    """
    started = time.monotonic()
    scraped = {split: out / f"scraped_{split}.parquet" for split in SPLITS}
    with serve_sample(read_sample()) as url:
        client = ClientConfig(
            commons_url=f"{url}/commons", wikidata_url=f"{url}/wikidata", rate_per_minute=0
        )
        for split, table in scraped.items():
            categories = sample_file(f"{split}_label_to_category.csv")
            scrape_config = ScrapeConfig(split, client=client)
            on_stage(f"scrape {split}", scrape_file(categories, table, scrape_config, force=True))

    clean = out / "clean.parquet"
    embeddings = out / "label_embeddings.parquet"
    clusters = out / "clusters.parquet"
    on_stage("clean", clean_file(list(scraped.values()), clean, force=force))
    encoder = encoder or default_encoder()
    config = EmbedConfig(encoder)
    if encoder == "ngrams":
        # Labels are encoded without the prompt template, whose letters all labels would share.
        config = EmbedConfig(encoder, ("{}",))
    on_stage("embed", embed_file(clean, embeddings, config, force=force))
    cluster_config = ClusterConfig(n_subclusters=_SUBCLUSTERS)
    on_stage("cluster", cluster_file(embeddings, clusters, cluster_config, force=force))
    class_tables = [classes_path(table) for table in scraped.values()]
    on_stage("suggest", suggest_file(clusters, clusters, classes=class_tables, force=force))
    sheets = export_sheets(
        clusters,
        out / "review",
        ExportConfig(ANNOTATORS, merge=not force),
        clean=clean,
        classes=class_tables,
        force=force,
    )
    on_stage("export", sheets)
    hierarchy_path = out / "hierarchy.parquet"
    on_stage("build", build_file(clean, hierarchy_path, force=force))
    hierarchy = load_hierarchy(hierarchy_path)
    draw_hierarchy(hierarchy_path.with_suffix(".png"), hierarchy, hierarchy.nouns)
    groups = {}
    for root in hierarchy.names(1):
        groups[root] = hierarchy.filter(roots=[root]).counts("hierarchical_label")
    return DemoSummary(out, groups, time.monotonic() - started)

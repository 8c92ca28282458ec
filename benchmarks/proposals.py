"""Compare drafts of ``hgld taxonomy propose`` with trees that people made, beside the clusters of ``hgld cluster``.

Labels are products, without superclasses; genera of birds with the taxa above them; and kinds of landmarks (the half
``final`` of the development set) with superclasses. Drafts get as many groups as the level that they are compared
with, so that agreement says nothing about the choice of a number::

    python benchmarks/proposals.py ../shared/other_domains ../shared/wikimedia_replica/worlds/birds.json.gz
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from development_set import read_development_set
from report import table, write_section
from sklearn.metrics import adjusted_mutual_info_score, v_measure_score

from hgld.labels.class_tree import ClassTree
from hgld.labels.clusters import ClusterConfig, cluster_labels
from hgld.labels.draft_taxonomy import Labels, propose_groups
from hgld.labels.embed import embed_labels
from hgld.labels.encoders import load_encoder

#: Names of a level for each label, by the name of the level; those of groups first, then those of roots.
Tree = Mapping[str, Sequence[str]]


def main() -> None:
    """Measure, print the table and write it to the README."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("domains", type=Path, help="folder of the trees of birds and products")
    parser.add_argument("birds", type=Path, help="world of the replica with the items of birds")
    options = parser.parse_args()
    rows = [
        *compare("products", *read_products(options.domains / "plain/expected.csv")),
        *compare("genera of birds", *read_birds(options.domains / "birds/expected.csv", options.birds)),
        *compare("kinds of landmarks", *read_landmarks()),
    ]
    header = ["labels", "level", "names", "draft, AMI", "draft, V-measure", "clusters, AMI", "clusters, V-measure"]
    body = table(header, rows)
    print(body)
    write_section("proposals", body)


def compare(title: str, labels: Labels, tree: Tree) -> list[list[str]]:
    """Return a row for each level: its names, and the agreement of drafts and of clusters."""
    (fine, groups), (coarse, roots) = tree.items()
    n_groups, n_roots = len({*groups}), len({*roots})
    draft = np.empty((len(labels.ids), 2), object)
    for group, rows in propose_groups(labels, n_groups, n_roots):
        draft[rows] = group.name, group.root
    clusters = cluster_labels(labels.vectors, labels.counts, labels.texts, ClusterConfig(n_roots, n_groups))
    subclusters = [f"{cluster}.{part}" for cluster, part in zip(clusters.cluster, clusters.subcluster, strict=True)]
    return [
        [f"{title}, {len(labels.ids)}", level, str(len({*names})), *scores(names, drafted), *scores(names, clustered)]
        for level, names, drafted, clustered in (
            (fine, groups, draft[:, 0], subclusters),
            (coarse, roots, draft[:, 1], clusters.cluster),
        )
    ]


def scores(truth: Sequence[str], parts: Sequence[Any]) -> list[str]:
    """Return adjusted mutual information, which is 0 for chance, and V-measure."""
    return [f"{score(truth, list(parts)):.3f}" for score in (adjusted_mutual_info_score, v_measure_score)]


def make_labels(names: Mapping[str, str], classes: Mapping[str, tuple[str, Sequence[str]]]) -> Labels:
    """Return labels by id, with label and superclasses of each class."""
    vectors = embed_labels([*names.values()], load_encoder("minilm", None)).astype(np.float64)
    return Labels(
        ids=[*names],
        texts=[*names.values()],
        counts=np.ones(len(names), np.int64),
        clusters=[(1, 1)] * len(names),
        vectors=vectors,
        classes=ClassTree(
            superclasses={item: above for item, (_, above) in classes.items()},
            labels={item: label for item, (label, _) in classes.items()},
        ),
    )


def read_products(path: Path) -> tuple[Labels, Tree]:
    """Read the different labels of products with their leaf and the second level."""
    rows = {row["canonical"]: row for row in read_csv(path)}
    tree = {level: [row[level] for row in rows.values()] for level in ("level4", "level2")}
    return make_labels({f"label-{text}": text for text in rows}, {}), tree


def read_birds(path: Path, world: Path) -> tuple[Labels, Tree]:
    """Read genera with their family and order, and the taxa above them from the world of the replica."""
    items = {item["id"]: item for item in json.loads(gzip.decompress(world.read_bytes()))["items"]}

    def parents(item: Mapping[str, Any]) -> list[str]:
        claims = [
            claim if isinstance(claim, dict) else {"value": claim} for claim in item.get("claims", {}).get("P171", [])
        ]
        ranks = [claim.get("rank", "normal") for claim in claims]
        best = "preferred" if "preferred" in ranks else "normal"
        return [
            claim["value"] for claim, rank in zip(claims, ranks, strict=True) if rank == best and "value" in claim
        ]

    classes = {
        id_: (item["labels"].get("en") or next(iter(item["labels"].values())), parents(item))
        for id_, item in items.items()
        if "labels" in item
    }
    genera = {}
    for row in read_csv(path):
        if row["status"] == "ok":
            species = items[row["item"]].get("redirect", row["item"])
            genera[classes[species][1][0]] = row
    tree = {level: [row[level] for row in genera.values()] for level in ("family", "order")}
    return make_labels({genus: row["genus"] for genus, row in genera.items()}, classes), tree


def read_landmarks() -> tuple[Labels, Tree]:
    """Read kinds of landmarks with their group and root; of those that are dropped there are none."""
    development = read_development_set("final")
    groups = {group.key: group for group in development.inputs.groups}
    decided = [groups[row.group] if row.group else None for row in development.decisions]
    inputs = development.inputs.labels
    names = {id_: text for id_, text, group in zip(inputs.ids, inputs.texts, decided, strict=True) if group}
    classes = {row["item"]: (row["label"], row["subclass_of"]) for row in development.inputs.classes[0].to_pylist()}
    kept = [group for group in decided if group]
    tree = {"group": [group.name for group in kept], "root": [group.root for group in kept]}
    return make_labels(names, classes), tree


def read_csv(path: Path) -> list[dict[str, str]]:
    """Read the rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


if __name__ == "__main__":
    main()

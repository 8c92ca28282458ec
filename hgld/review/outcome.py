"""What an annotator's events amount to: groups, decisions, clusters; and the files of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from hgld.errors import ConfigurationError
from hgld.resources import annotation_file
from hgld.review.events import Fold
from hgld.review.store import read_store
from hgld.tables import CLUSTERS, Provenance, digests, read_table, write_table
from hgld.taxonomy.decisions import Decision, write_decisions
from hgld.taxonomy.groups import Group, read_taxonomy, write_taxonomy


@dataclass(frozen=True)
class ReviewedSummary:
    """What was written.

    Args:
        annotator: who decided.
        decisions: how many labels are decided.
        taxonomy: the taxonomy with the annotator's proposals, if there are any.
        clusters: the table with the annotator's clusters, if it was asked for.
    """

    annotator: str
    decisions: int
    taxonomy: Path | None = None
    clusters: Path | None = None


def groups_of(fold: Fold, taxonomy: Sequence[Group]) -> dict[str, Group]:
    """The groups by their keys: those of the taxonomy as they are called now, then proposed ones."""
    groups = {group.name: group for group in taxonomy}
    for key, cell in fold.cells("group").items():
        if cell.value is not None:
            items = groups[key].items if key in groups else ()
            groups[key] = Group(**cell.value, items=items)
    return groups


def decisions_of(fold: Fold, groups: dict[str, Group]) -> list[Decision]:
    """The decisions that stand, also on labels that the page no longer shows.

    A group that the taxonomy no longer has goes by its key, which is what it was called.
    """
    found = []
    for label_id, cell in fold.cells("decision").items():
        if cell.value is not None and cell.value["decision"] is not None:
            assert cell.origin is not None
            key = cell.value["group"]
            found.append(
                Decision(
                    label_id,
                    cell.value["label"],
                    cell.value["decision"],
                    groups[key].name if key in groups else key,
                    cell.origin.annotator,
                    cell.origin.at,
                    cell.value["comment"],
                )
            )
    return found


def write_proposals(groups: Sequence[Group], taxonomy: Sequence[Group], decisions: Path) -> Path | None:
    """Write the groups as a taxonomy, ``a.taxonomy.csv`` beside ``a.csv``, if they are others than there were.

    Returns:
        Where they are, or None.
    """
    if list(groups) == list(taxonomy):
        return None
    path = decisions.with_suffix(".taxonomy.csv")
    write_taxonomy(path, groups)
    return path


def write_reviewed(
    store: Path,
    out: Path,
    *,
    taxonomy: Path | None = None,
    clusters: Path | None = None,
    clusters_out: Path | None = None,
) -> ReviewedSummary:
    """Write what was decided on the review page; the page may be open meanwhile.

    Args:
        store: what the page wrote.
        out: the CSV file of decisions. If groups were proposed or renamed, the taxonomy with them goes beside it,
            as ``a.taxonomy.csv`` beside ``a.csv``.
        taxonomy: the groups that the page offered; those that come with hgld by default.
        clusters: the table that the page showed, for ``clusters_out``.
        clusters_out: where to write it as it is after clusters were split, merged and renamed.

    Raises:
        ConfigurationError: only one of ``clusters`` and ``clusters_out``.
        InputError: an input cannot be read.
    """
    if (clusters is None) != (clusters_out is None):
        raise ConfigurationError("--clusters says which table to change and --clusters-out where to; give both")
    annotator, fold = read_store(store)
    known = read_taxonomy(annotation_file("taxonomy.csv") if taxonomy is None else taxonomy)
    groups = groups_of(fold, known)
    proposals = write_proposals(list(groups.values()), known, out)
    if clusters and clusters_out:
        made = Provenance("decisions", inputs=digests(clusters=clusters, store=store))
        write_table(clusters_out, CLUSTERS, moved_clusters(read_table(clusters, CLUSTERS), fold), made)
    decisions = decisions_of(fold, groups)
    write_decisions(out, decisions)
    return ReviewedSummary(annotator, len(decisions), proposals, clusters_out)


def moved_clusters(table: pa.Table, fold: Fold) -> pa.Table:
    """A ``clusters`` table with the labels where they were moved to, and the clusters' new names."""
    rows = table.to_pylist()
    names = {row["cluster"]: row["cluster_name"] for row in rows}
    for row in rows:
        row["cluster"] = cluster_of(fold, row["label_id"], row["cluster"])
        row["cluster_name"] = cluster_name(fold, row["cluster"], names)
    return pa.Table.from_pylist(rows, table.schema)


def cluster_of(fold: Fold, label_id: str, cluster: int) -> int:
    """Where a label of ``cluster`` is now."""
    moved = fold.cell("cluster", label_id).value
    return cluster if moved is None else int(moved)


def cluster_name(fold: Fold, cluster: int, names: dict[int, str]) -> str:
    """What a cluster is called now, given the names from the table."""
    name = fold.cell("name", str(cluster)).value
    return str(name) if name else names.get(cluster, f"cluster {cluster}")

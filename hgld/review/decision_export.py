"""The stage ``decisions``: write the result of a review as files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from hgld.errors import ConfigurationError
from hgld.io.files import require_other_file
from hgld.review.labels import fit_for_cell
from hgld.review.opinions import changed_groups, require_nothing_lost, write_changed_taxonomy
from hgld.review.state import ReviewState, current_cluster, current_cluster_name, current_decisions, current_groups
from hgld.review.store import read_store
from hgld.tables import CLUSTERS, Provenance, input_digests, read_table, write_table
from hgld.taxonomy.decisions import Decision, format_time, read_decisions, write_decisions
from hgld.taxonomy.groups import Group, find_taxonomy, read_taxonomy, survivors, taxonomy_beside


@dataclass(frozen=True)
class DecisionsSummary:
    """Result of :func:`export_decisions`."""

    annotator: str
    decisions: int
    taxonomy: Path | None = None
    clusters: Path | None = None


def export_decisions(
    store: Path,
    out: Path,
    *,
    taxonomy: Path | None = None,
    clusters: Path | None = None,
    clusters_out: Path | None = None,
    force: bool = False,
) -> DecisionsSummary:
    """Write the decisions in an event store as CSV; the review page may be open meanwhile.

    Args:
        out: CSV file of decisions to write. If groups were proposed or renamed, the changed taxonomy is written
            beside it, as ``a.taxonomy.csv`` beside ``a.csv``.
        taxonomy: Groups that the page offered; by default those that come with hgld.
        clusters: Clusters that the page showed; for ``clusters_out``.
        clusters_out: Table to write: ``clusters`` with the splits, merges and names made on the page.
        force: Replace decisions in the output that never were in ``store``.

    Raises:
        ConfigurationError: Only one of ``clusters`` and ``clusters_out`` is given, ``out`` is an input, or it holds
            decisions, or the taxonomy beside it groups, that never were in the store.
    """
    if (clusters is None) != (clusters_out is None):
        raise ConfigurationError(
            "`clusters` is the table to change and `clusters_out` the file to write it to; give both"
        )
    require_other_file(out, [store, *filter(None, (taxonomy, clusters, clusters_out))])
    annotator, state = read_store(store)
    if out.exists() and not force:
        require_nothing_lost(out, _never_stored(read_decisions(out, None), state))
    original = read_taxonomy(find_taxonomy(taxonomy))
    groups = list(current_groups(state, original).values())
    if not force:
        _require_known_groups(out, state, original)
    write_changed_taxonomy(groups, original, out)
    if clusters and clusters_out:
        provenance = Provenance("decisions", inputs=input_digests(clusters=clusters, store=store))
        write_table(clusters_out, CLUSTERS, update_clusters(read_table(clusters, CLUSTERS), state), provenance)
    decisions = current_decisions(state, original)
    write_decisions(out, decisions)
    return DecisionsSummary(
        annotator, len(decisions), None if groups == original else taxonomy_beside(out), clusters_out
    )


def _never_stored(decisions: Sequence[Decision], state: ReviewState) -> list[Decision]:
    """Return the decisions that the store holds neither now nor in its history."""
    stored = {
        (event.key, event.annotator, format_time(event.at))
        for events in state.steps.values()
        for event in events
        if event.kind == "decision"
    }
    return [row for row in decisions if (row.label_id, row.annotator, format_time(row.decided_at)) not in stored]


def _require_known_groups(out: Path, state: ReviewState, original: Sequence[Group]) -> None:
    """Check that all groups and merges in the taxonomy beside the output are original ones or were in the store."""
    known = {(group.key, group.name) for group in original}
    merged = set(survivors(original))
    for event in (event for events in state.steps.values() for event in events if event.kind == "group"):
        value = event.new or {}
        known.add((event.key, value.get("name", "")))
        merged |= {event.key} if "merged_into" in value else set()
    lost = [
        group.name
        for group in changed_groups(out)
        if (group.key, group.name) not in known or not merged.issuperset(group.merged)
    ]
    if lost:
        raise ConfigurationError(
            f"{taxonomy_beside(out)}: holds groups that never were in the store ({', '.join(lost)}); "
            "write to another file, or replace them with `force`"
        )


def update_clusters(table: pa.Table, state: ReviewState) -> pa.Table:
    """Return a ``clusters`` table with moved labels and renamed clusters."""
    rows = table.to_pylist()
    names = {row["cluster"]: fit_for_cell(row["cluster_name"]) for row in rows}
    for row in rows:
        row["cluster"] = current_cluster(state, row["label_id"], row["cluster"], names)
        row["cluster_name"] = current_cluster_name(state, row["cluster"], names)
    return pa.Table.from_pylist(rows, table.schema)

"""Groups, decisions and clusters according to the state of a review."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from hgld.review.state import ReviewState
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group


def current_groups(state: ReviewState, taxonomy: Sequence[Group]) -> dict[str, Group]:
    """Return the groups by key: those of the taxonomy with their present names, then the proposed ones."""
    groups = {group.name: group for group in taxonomy}
    for key, field in state.fields("group").items():
        if field.value is not None:
            items = groups[key].items if key in groups else ()
            groups[key] = Group(**field.value, items=items)
    return groups


def current_decisions(state: ReviewState, groups: Mapping[str, Group]) -> list[Decision]:
    """Return the present decisions, also on labels that are no longer among the clusters.

    A group that is no longer in the taxonomy is named by its key, which was its name.
    """
    decisions = []
    for label_id, field in state.fields("decision").items():
        if field.value is not None and field.value["decision"] is not None:
            assert field.origin is not None
            key = field.value["group"]
            decisions.append(
                Decision(
                    label_id,
                    field.value["label"],
                    field.value["decision"],
                    groups[key].name if key in groups else key,
                    field.origin.annotator,
                    field.origin.at,
                    field.value["comment"],
                )
            )
    return decisions


def current_cluster(state: ReviewState, label_id: str, cluster: int) -> int:
    """Return the present cluster of a label that the ``clusters`` table puts into ``cluster``."""
    moved_to = state.field("cluster", label_id).value
    return cluster if moved_to is None else int(moved_to)


def current_cluster_name(state: ReviewState, cluster: int, names: Mapping[int, str]) -> str:
    """Return the present name of a cluster, given the names in the ``clusters`` table."""
    name = state.field("name", str(cluster)).value
    return str(name) if name else names.get(cluster, f"cluster {cluster}")


def update_clusters(table: pa.Table, state: ReviewState) -> pa.Table:
    """Return a ``clusters`` table with moved labels and renamed clusters."""
    rows = table.to_pylist()
    names = {row["cluster"]: row["cluster_name"] for row in rows}
    for row in rows:
        row["cluster"] = current_cluster(state, row["label_id"], row["cluster"])
        row["cluster_name"] = current_cluster_name(state, row["cluster"], names)
    return pa.Table.from_pylist(rows, table.schema)

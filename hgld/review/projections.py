"""Groups, decisions and clusters according to the state of a review."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from hgld.review.sheets.rows import fit_for_cell
from hgld.review.state import ReviewState
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group, survivors


def current_groups(state: ReviewState, taxonomy: Sequence[Group]) -> dict[str, Group]:
    """Return the groups by key: those of the taxonomy with their present names, then the proposed ones."""
    return apply_group_values(group_values(state, taxonomy), taxonomy)


def group_values(state: ReviewState, taxonomy: Iterable[Group]) -> dict[str, Any]:
    """Return the values of group fields by the key of the group, also of groups that the taxonomy merged."""
    merged = {key: {"merged_into": survivor} for key, survivor in survivors(taxonomy).items()}
    return merged | {key: field.value for key, field in state.fields("group").items() if field.value is not None}


def apply_group_values(values: Mapping[str, Any], taxonomy: Sequence[Group]) -> dict[str, Group]:
    """Return the groups by key after renames, proposals and merges; see :mod:`hgld.review.events`."""
    groups = {group.key: group for group in taxonomy}
    for key, value in values.items():
        if "merged_into" not in value:
            groups[key] = replace(groups[key], **value) if key in groups else Group(**value, key=key)
    for key in [key for key, value in values.items() if "merged_into" in value]:
        merged, survivor = groups.pop(key, None), groups.get(surviving_group(values, key))
        if survivor is not None:
            items = survivor.items + (merged.items if merged else ())
            keys = (*survivor.merged, key, *(merged.merged if merged else ()))
            groups[survivor.key] = replace(survivor, items=items, merged=tuple(dict.fromkeys(keys)))
    return groups


def surviving_group(values: Mapping[str, Any], key: str) -> str:
    """Return the key of the group that a group was merged into, directly or in several steps.

    Args:
        values: Value of every group field, by the key of the group.
        key: Key of the group; returned as it is if the group was not merged.

    >>> surviving_group({"a": {"merged_into": "b"}, "b": {"merged_into": "c"}}, "a")
    'c'
    """
    seen = set()
    while key not in seen and "merged_into" in (value := values.get(key, {})):
        seen.add(key)
        key = value["merged_into"]
    return key


def current_decisions(state: ReviewState, taxonomy: Iterable[Group]) -> list[Decision]:
    """Return the present decisions with the keys of groups, also on labels that are no longer among the clusters."""
    decisions = []
    merged = group_values(state, taxonomy)
    for label_id, field in state.fields("decision").items():
        if field.value is not None and field.value["decision"] is not None:
            assert field.origin is not None
            group = field.value["group"]
            decisions.append(
                Decision(
                    label_id,
                    field.value["label"],
                    field.value["decision"],
                    None if group is None else surviving_group(merged, group),
                    field.origin.annotator,
                    field.origin.at,
                    field.value["comment"],
                    field.value["blind"],
                )
            )
    return decisions


def current_cluster(state: ReviewState, label_id: str, cluster: int, names: Mapping[int, str]) -> int:
    """Return the present cluster of a label that the ``clusters`` table puts into ``cluster``.

    Args:
        state: State of the review.
        label_id: Id of the label.
        cluster: Number of its cluster in the table.
        names: Names of clusters in the table, by number.
    """
    value = state.field("cluster", label_id).value
    return (
        int(value["cluster"]) if value is not None and names.get(value["cluster"]) == value["table_name"] else cluster
    )


def current_cluster_name(state: ReviewState, cluster: int, names: Mapping[int, str]) -> str:
    """Return the present name of a cluster, given the names in the ``clusters`` table."""
    value = state.field("name", str(cluster)).value
    if value is not None and names.get(cluster) == value["table_name"]:
        return str(value["name"])
    return names.get(cluster, f"cluster {cluster}")


def update_clusters(table: pa.Table, state: ReviewState) -> pa.Table:
    """Return a ``clusters`` table with moved labels and renamed clusters."""
    rows = table.to_pylist()
    names = {row["cluster"]: fit_for_cell(row["cluster_name"]) for row in rows}
    for row in rows:
        row["cluster"] = current_cluster(state, row["label_id"], row["cluster"], names)
        row["cluster_name"] = current_cluster_name(state, row["cluster"], names)
    return pa.Table.from_pylist(rows, table.schema)

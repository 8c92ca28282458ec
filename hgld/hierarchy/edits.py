"""Selections of landmarks and changes of groups, as tables from which a new hierarchy is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from hgld.errors import ConfigurationError
from hgld.hierarchy.checks import GROUP, ROOT
from hgld.tables import LABEL_SOURCES

if TYPE_CHECKING:
    from hgld.hierarchy.tree import Hierarchy


def filter_landmarks(
    hierarchy: Hierarchy,
    *,
    groups: Iterable[str] | None,
    roots: Iterable[str] | None,
    splits: Iterable[str] | None,
    label_sources: Iterable[str] | None,
    min_landmarks: int,
) -> pa.Table:
    """See :meth:`hgld.hierarchy.Hierarchy.filter`."""
    keep = np.ones(len(hierarchy), bool)
    for names, level in ((groups, GROUP), (roots, ROOT)):
        if names is not None:
            codes = [hierarchy.code(name, level) for name in _as_names(names)]
            keep &= np.isin(hierarchy.labels[:, hierarchy.column(level)], codes)
    if splits is not None:
        if unknown := set(_as_names(splits)).difference(hierarchy.splits.tolist()):
            raise ConfigurationError(f"there is no split {', '.join(sorted(unknown))} in the hierarchy")
        keep &= np.isin(hierarchy.splits, list(_as_names(splits)))
    if label_sources is not None:
        if unknown := set(_as_names(label_sources)).difference(LABEL_SOURCES):
            raise ConfigurationError(
                f"there is no label source {', '.join(sorted(unknown))}; expected {' or '.join(LABEL_SOURCES)}"
            )
        sources = hierarchy.label_sources
        keep &= np.isin(
            np.full(len(hierarchy), LABEL_SOURCES[0]) if sources is None else sources, list(_as_names(label_sources))
        )
    group = hierarchy.labels[:, hierarchy.column(GROUP)]
    keep &= np.bincount(group[keep], minlength=len(hierarchy.names(GROUP)))[group] >= min_landmarks
    if not keep.any():
        raise ConfigurationError("no landmark is left; filter less strictly")
    return hierarchy.to_arrow().filter(pa.array(keep))


def split_group(hierarchy: Hierarchy, group: str, parts: Mapping[str, Iterable[str]]) -> pa.Table:
    """See :meth:`hgld.hierarchy.Hierarchy.split`."""
    in_group = hierarchy.labels[:, hierarchy.column(GROUP)] == hierarchy.code(group, GROUP)
    if hierarchy.supercategories is None:
        raise ConfigurationError("the super-categories of this hierarchy are unknown, so its groups cannot be split")
    new_groups: dict[str, str] = {}
    for name, supercategories in parts.items():
        if name != group and name in hierarchy.names(GROUP):
            raise ConfigurationError(f'there is a group "{name}" already')
        for supercategory in _as_names(supercategories):
            if supercategory in new_groups:
                raise ConfigurationError(f'"{supercategory}" is named twice')
            new_groups[supercategory] = name
    if unknown := set(new_groups).difference(hierarchy.supercategories[in_group].tolist()):
        raise ConfigurationError(f'"{group}" has no super-category {", ".join(sorted(unknown))}')
    names = [
        new_groups.get(supercategory, group) if inside else old_group
        for supercategory, inside, old_group in zip(
            hierarchy.supercategories, in_group, hierarchy.names_by_row(GROUP), strict=True
        )
    ]
    return _with_groups(hierarchy, names, rename_further=lambda further: further)


def merge_groups(hierarchy: Hierarchy, groups: Iterable[str], name: str) -> pa.Table:
    """See :meth:`hgld.hierarchy.Hierarchy.merge`."""
    ancestors = {group: hierarchy.ancestors(group, GROUP) for group in _as_names(groups)}
    if len(set(ancestors.values())) > 1:
        parents = "; ".join(f'"{group}" is below {" / ".join(names)}' for group, names in ancestors.items())
        raise ConfigurationError(f"the groups have different ancestors: {parents}")
    if name not in ancestors and name in hierarchy.names(GROUP):
        raise ConfigurationError(f'there is a group "{name}" already; merge it too')

    def rename(group: str) -> str:
        return name if group in ancestors else group

    return _with_groups(hierarchy, list(map(rename, hierarchy.names_by_row(GROUP))), rename_further=rename)


def _with_groups(hierarchy: Hierarchy, names: list[str], *, rename_further: Callable[[str], str]) -> pa.Table:
    """Return the table with another group for each landmark, and with its further groups renamed."""
    table = hierarchy.to_arrow()
    table = table.set_column(table.column_names.index(GROUP), GROUP, pa.array(names))
    if hierarchy.hierarchical_labels is not None:
        lists = [
            list(dict.fromkeys([name, *map(rename_further, groups[1:])]))
            for name, groups in zip(names, hierarchy.hierarchical_labels, strict=True)
        ]
        column = table.column_names.index("hierarchical_labels")
        table = table.set_column(column, "hierarchical_labels", pa.array(lists))
    return table


def _as_names(names: Iterable[str]) -> Iterable[str]:
    """Return the names; a single string is one name, not an iterable of letters."""
    return [names] if isinstance(names, str) else list(names)

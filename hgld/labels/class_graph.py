"""The classes of Wikidata and their superclasses ("subclass of", P279), from tables of classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hgld import tables


def read_superclasses(paths: Sequence[Path]) -> dict[str, list[str]]:
    """Return the direct superclasses of each class item, from ``classes`` tables."""
    superclasses: dict[str, list[str]] = {}
    for path in paths:
        table = tables.read_table(path, tables.CLASSES)
        for item, parents in zip(table["item"].to_pylist(), table["subclass_of"].to_pylist(), strict=True):
            superclasses.setdefault(item, []).extend(parents)
    return superclasses


def read_class_labels(paths: Sequence[Path]) -> dict[str, str]:
    """Return the label of each class item, from ``classes`` tables."""
    labels: dict[str, str] = {}
    for path in paths:
        table = tables.read_table(path, tables.CLASSES)
        labels |= zip(table["item"].to_pylist(), table["label"].to_pylist(), strict=True)
    return labels


def ancestors(item: str, superclasses: Mapping[str, Sequence[str]]) -> set[str]:
    """Return all classes above an item; the item itself is among them if it is on a cycle.

    >>> sorted(ancestors("Q3", {"Q3": ["Q2"], "Q2": ["Q1"]}))
    ['Q1', 'Q2']
    """
    visited: set[str] = set()
    pending = list(superclasses.get(item, ()))
    while pending:
        parent = pending.pop()
        if parent not in visited:
            visited.add(parent)
            pending.extend(superclasses.get(parent, ()))
    return visited


def nearest_grouped_ancestors(
    item: str, superclasses: Mapping[str, Sequence[str]], group_of: Callable[[str], int | None]
) -> tuple[int, list[tuple[str, int]]]:
    """Find the nearest ancestors of a class that belong to a group.

    Args:
        item: Class to start from.
        superclasses: Direct superclasses by class item.
        group_of: Returns the group of a class, or None.

    Returns:
        The number of steps to these ancestors, and each of them with its group; an empty list if there is none.

    >>> nearest_grouped_ancestors("Q3", {"Q3": ["Q2"], "Q2": ["Q1", "Q0"]}, {"Q1": 7, "Q3": 8}.get)
    (2, [('Q1', 7)])
    """
    visited, level, steps = {item}, [item], 0
    while level:
        parents = dict.fromkeys(parent for child in level for parent in superclasses.get(child, ()))
        level, steps = [parent for parent in parents if parent not in visited], steps + 1
        visited.update(level)
        grouped = [(parent, group) for parent in level if (group := group_of(parent)) is not None]
        if grouped:
            return steps, grouped
    return steps, []

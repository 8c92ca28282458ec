"""The classes of Wikidata and their superclasses ("subclass of", P279), from tables of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
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


def nearest_classes(items: AbstractSet[str], above: Mapping[str, AbstractSet[str]]) -> set[str]:
    """Return those of several classes that are above no other of them; classes on a cycle count as equally near.

    >>> sorted(nearest_classes({"Q1", "Q2", "Q3"}, {"Q3": {"Q1"}, "Q2": set(), "Q1": set()}))
    ['Q2', 'Q3']
    """
    return {item for item in items if not any(item in above[other] and other not in above[item] for other in items)}


def levels_above(item: str, superclasses: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return the classes above an item by their distance: the direct superclasses, those of the second step, ...

    >>> levels_above("Q3", {"Q3": ["Q2"], "Q2": ["Q1", "Q0"], "Q0": ["Q3"]})
    [['Q2'], ['Q1', 'Q0']]
    """
    visited, levels = {item}, [[item]]
    while levels[-1]:
        parents = dict.fromkeys(parent for child in levels[-1] for parent in superclasses.get(child, ()))
        levels.append([parent for parent in parents if parent not in visited])
        visited.update(levels[-1])
    return levels[1:-1]

"""The classes of Wikidata and their superclasses ("subclass of", P279), from tables of classes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from hgld import tables


@dataclass(frozen=True)
class ClassTree:
    """Classes of Wikidata by item.

    Args:
        superclasses: Items of the direct superclasses of each class, or of its parents by another
            property.
        labels: Label of each class.
        ranks: Label of the taxonomic rank (P105) of each class that has a rank.
    """

    superclasses: Mapping[str, Sequence[str]]
    labels: Mapping[str, str]
    ranks: Mapping[str, str] = field(default_factory=dict)


def read_class_tree(paths: Sequence[Path]) -> ClassTree:
    """Read ``classes`` tables.

    If several tables have a class, its superclasses are merged, and its label and rank come from
    the last table.
    """
    superclasses: defaultdict[str, list[str]] = defaultdict(list)
    labels: dict[str, str] = {}
    ranks: dict[str, str] = {}
    for path in paths:
        for row in tables.read_table(path, tables.CLASSES).to_pylist():
            superclasses[row["item"]] += row["subclass_of"]
            labels[row["item"]] = row["label"]
            if row.get("rank") is not None:
                ranks[row["item"]] = row["rank"]
    return ClassTree(dict(superclasses), labels, ranks)


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
    """Return the classes that are not an ancestor of another given class.

    Classes on a cycle are ancestors of each other; all of them are returned.

    Args:
        items: The given classes.
        above: Ancestors of each class.

    >>> sorted(nearest_classes({"Q1", "Q2", "Q3"}, {"Q3": {"Q1"}, "Q2": set(), "Q1": set()}))
    ['Q2', 'Q3']
    """
    nearest = set()
    for item in items:
        descendants = {other for other in items if item in above[other]}
        if descendants <= above[item]:
            nearest.add(item)
    return nearest


def levels_above(
    items: Iterable[str], superclasses: Mapping[str, Sequence[str]]
) -> list[list[str]]:
    """Return the superclasses of items by distance, the direct superclasses first.

    >>> levels_above(["Q3"], {"Q3": ["Q2"], "Q2": ["Q1", "Q0"], "Q0": ["Q3"]})
    [['Q2'], ['Q1', 'Q0']]
    """
    levels: list[list[str]] = []
    children = list(items)
    visited = set(children)
    while True:
        parents = []
        for child in children:
            for parent in superclasses.get(child, ()):
                if parent not in visited:
                    visited.add(parent)
                    parents.append(parent)
        if not parents:
            return levels
        levels.append(parents)
        children = parents

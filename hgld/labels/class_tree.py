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
    """Classes of Wikidata with what is above them, by item.

    Args:
        superclasses: Direct superclasses, or parents by another property.
        ranks: Label of the rank (P105) of each class that has one.
    """

    superclasses: Mapping[str, Sequence[str]]
    labels: Mapping[str, str]
    ranks: Mapping[str, str] = field(default_factory=dict)


def read_class_tree(paths: Sequence[Path]) -> ClassTree:
    """Read ``classes`` tables; a class has its superclasses in all of them, its label and rank in the last one."""
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
    """Return those of several classes that are above no other of them; classes on a cycle count as equally near.

    >>> sorted(nearest_classes({"Q1", "Q2", "Q3"}, {"Q3": {"Q1"}, "Q2": set(), "Q1": set()}))
    ['Q2', 'Q3']
    """
    return {
        item
        for item in items
        if not any(item in above[other] and other not in above[item] for other in items)
    }


def levels_above(
    items: Iterable[str], superclasses: Mapping[str, Sequence[str]]
) -> list[list[str]]:
    """Return the classes above some items by their distance: the direct superclasses, those of the second step, ...

    >>> levels_above(["Q3"], {"Q3": ["Q2"], "Q2": ["Q1", "Q0"], "Q0": ["Q3"]})
    [['Q2'], ['Q1', 'Q0']]
    """
    levels = [list(items)]
    visited = set(levels[0])
    while levels[-1]:
        parents = dict.fromkeys(
            parent for child in levels[-1] for parent in superclasses.get(child, ())
        )
        levels.append([parent for parent in parents if parent not in visited])
        visited.update(levels[-1])
    return levels[1:-1]

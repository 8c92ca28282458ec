"""Levels between the groups and their roots, from what Wikidata says is a subclass of what (P279).

The first level is made of the groups: nodes whose classes are the ``items`` of the taxonomy. A node goes under
the nearest class that another node of the same root goes under, too; nodes of one class become one node of the
next level. Nearest means the fewest steps of P279 from any of the node's own classes, none where another node is
below one of these themselves (mountain, with volcano below it). Of equally near classes the one with the fewest nodes
below it is taken, then the first by its item. A node that shares no class with others stays alone under its own name.
So levels are nested and never cross roots, whatever cycles and errors P279 has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hgld.taxonomy.groups import Group


@dataclass(frozen=True)
class _Node:
    """What a group is under at some level: a class (``items`` is that one), or nothing but itself."""

    name: str
    root: str
    items: tuple[str, ...]


def p279_levels(
    groups: Sequence[Group], parents: Mapping[str, Sequence[str]], labels: Mapping[str, str], n_levels: int
) -> dict[str, tuple[str, ...]]:
    """The names above each group.

    Args:
        groups: the groups that are to be divided into fewer.
        parents: P279 by class item.
        labels: the label of each class item.
        n_levels: how many levels to make.

    Returns:
        By group ``n_levels`` names, finest first, its root not among them. Names of one level are unique: a class
        that occurs under both roots is followed by the root, and classes with the same label by their items.

    >>> groups = [
    ...     Group("volcano", "natural", "", ("Q8072",)),
    ...     Group("mountain", "natural", "", ("Q8502",)),
    ...     Group("lake", "natural", "", ("Q23397",)),
    ... ]
    >>> parents = {"Q8072": ["Q8502"], "Q8502": ["Q271669"], "Q23397": ["Q15324"]}
    >>> p279_levels(groups, parents, {"Q8502": "mountain"}, 1)
    {'volcano': ('mountain',), 'mountain': ('mountain',), 'lake': ('lake',)}
    """
    above: dict[str, tuple[str, ...]] = {group.name: () for group in groups}
    current = {group.name: _Node(group.name, group.root, group.items) for group in groups}
    for _ in range(n_levels):
        parent_of = _parents_of(dict.fromkeys(current.values()), parents, labels)
        current = {group: parent_of[node] for group, node in current.items()}
        names = _names(dict.fromkeys(current.values()))
        above = {group: (*above[group], names[node]) for group, node in current.items()}
    return above


def _parents_of(
    nodes: Iterable[_Node], parents: Mapping[str, Sequence[str]], labels: Mapping[str, str]
) -> dict[_Node, _Node]:
    steps = {node: _steps_above(node.items, parents) for node in nodes}
    n_below = Counter((node.root, item) for node, found in steps.items() for item in found)
    parent_of = {}
    for node, found in steps.items():
        shared = [item for item in found if n_below[node.root, item] > 1]
        if shared:
            # Items of equal length sort as their numbers do.
            item = min(shared, key=lambda item: (found[item], n_below[node.root, item], len(item), item))
            parent_of[node] = _Node(labels.get(item, item), node.root, (item,))
        else:
            parent_of[node] = node
    return parent_of


def _steps_above(items: Sequence[str], parents: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The classes at and above ``items``, with the fewest steps to each."""
    steps = dict.fromkeys(items, 0)
    waiting = list(items)
    for item in waiting:  # grows: the nearer classes come first
        for parent in parents.get(item, ()):
            if parent not in steps:
                steps[parent] = steps[item] + 1
                waiting.append(parent)
    return steps


def _names(nodes: Iterable[_Node]) -> dict[_Node, str]:
    alike: defaultdict[str, list[_Node]] = defaultdict(list)
    for node in nodes:
        alike[node.name].append(node)
    names = {}
    for name, found in alike.items():
        per_root = Counter(node.root for node in found)
        for node in found:
            marks = [node.root] if len(per_root) > 1 else []
            marks += node.items if per_root[node.root] > 1 else ()
            names[node] = f"{name} ({', '.join(marks)})" if marks else name
    return names

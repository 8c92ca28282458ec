"""Extra levels between groups and roots, from the subclass relation of Wikidata (P279).

The nodes of the first level are the groups, whose classes are the ``items`` of the taxonomy. A node is put under the
nearest class that is also above another node of the same root; nodes under the same class become one node of the next
level. The distance is the smallest number of P279 steps from any class of the node; it is 0 if another node is below
one of these classes (mountain, with volcano below it). Among equally near classes the one above the fewest nodes is
taken, then the first by item. A node that shares no class with other nodes stays alone under its own name. So levels
are nested and never cross roots, whatever cycles and errors P279 has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hgld.taxonomy.groups import Group


@dataclass(frozen=True)
class _Node:
    """A group, or the class that groups are under at some level (``items`` is then that class)."""

    name: str
    root: str
    items: tuple[str, ...]


def subclass_levels(
    groups: Sequence[Group],
    superclasses: Mapping[str, Sequence[str]],
    class_labels: Mapping[str, str],
    n_levels: int,
) -> dict[str, tuple[str, ...]]:
    """Return the names above each group at ``n_levels`` extra levels.

    Args:
        groups: Groups to put under common superclasses.
        superclasses: Direct superclasses (P279) by class item.
        class_labels: Label of each class item.
        n_levels: Number of levels.

    Returns:
        ``n_levels`` names by group, finest first, without the root. Names of a level are unique: a class that occurs
        under both roots is followed by the root, and classes with the same label by their items.

    >>> groups = [
    ...     Group("volcano", "natural", "", ("Q8072",)),
    ...     Group("mountain", "natural", "", ("Q8502",)),
    ...     Group("lake", "natural", "", ("Q23397",)),
    ... ]
    >>> superclasses = {"Q8072": ["Q8502"], "Q8502": ["Q271669"], "Q23397": ["Q15324"]}
    >>> subclass_levels(groups, superclasses, {"Q8502": "mountain"}, 1)
    {'volcano': ('mountain',), 'mountain': ('mountain',), 'lake': ('lake',)}
    """
    ancestors: dict[str, tuple[str, ...]] = {group.name: () for group in groups}
    current = {group.name: _Node(group.name, group.root, group.items) for group in groups}
    for _ in range(n_levels):
        parents = _parent_nodes(dict.fromkeys(current.values()), superclasses, class_labels)
        current = {group: parents[node] for group, node in current.items()}
        names = _unique_names(dict.fromkeys(current.values()))
        ancestors = {group: (*ancestors[group], names[node]) for group, node in current.items()}
    return ancestors


def _parent_nodes(
    nodes: Iterable[_Node], superclasses: Mapping[str, Sequence[str]], class_labels: Mapping[str, str]
) -> dict[_Node, _Node]:
    steps_by_node = {node: _steps_to_superclasses(node.items, superclasses) for node in nodes}
    n_below = Counter((node.root, item) for node, steps in steps_by_node.items() for item in steps)
    parents = {}
    for node, steps in steps_by_node.items():
        shared = [item for item in steps if n_below[node.root, item] > 1]
        if shared:
            # Items of equal length are sorted like their numbers.
            item = min(shared, key=lambda item: (steps[item], n_below[node.root, item], len(item), item))
            parents[node] = _Node(class_labels.get(item, item), node.root, (item,))
        else:
            parents[node] = node
    return parents


def _steps_to_superclasses(items: Sequence[str], superclasses: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the smallest number of steps to each class at or above ``items``."""
    steps = dict.fromkeys(items, 0)
    queue = list(items)
    for item in queue:  # breadth first: the queue grows while it is read
        for parent in superclasses.get(item, ()):
            if parent not in steps:
                steps[parent] = steps[item] + 1
                queue.append(parent)
    return steps


def _unique_names(nodes: Iterable[_Node]) -> dict[_Node, str]:
    by_name: defaultdict[str, list[_Node]] = defaultdict(list)
    for node in nodes:
        by_name[node.name].append(node)
    names = {}
    for name, same_name in by_name.items():
        per_root = Counter(node.root for node in same_name)
        for node in same_name:
            qualifiers = [node.root] if len(per_root) > 1 else []
            qualifiers += node.items if per_root[node.root] > 1 else ()
            names[node] = f"{name} ({', '.join(qualifiers)})" if qualifiers else name
    return names

"""Levels between given groups and roots, from any superclasses of the groups on Wikidata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hgld.labels.class_tree import levels_above
from hgld.taxonomy.groups import Group


@dataclass(frozen=True)
class _Node:
    """A group, or a class above groups.

    Args:
        name: Name of the group, or label of the class.
        root: Root of the group or groups.
        items: Classes of the group, or the class alone.
    """

    name: str
    root: str
    items: tuple[str, ...]


def subclass_levels(
    groups: Sequence[Group],
    superclasses: Mapping[str, Sequence[str]],
    class_labels: Mapping[str, str],
    n_levels: int,
) -> dict[str, tuple[str, ...]]:
    """Return the names above each group at extra levels, from "subclass of" on Wikidata (P279).

    The nodes of the first level are the groups, whose classes are the ``items`` of the taxonomy.
    A class counts as above itself. The parent of a node is the nearest class above it that is also
    above another node of the same root; nodes with the same parent become one node of the next
    level. The distance of a class is the smallest number of P279 steps to it from any class of the
    node. It is 0 for a class of the node itself, which is the parent if another node is below it:
    volcano is below mountain, so mountain is the parent of both. Of equally near classes, the parent
    is the class above the fewest nodes, and of these the class with the smallest item number. A node
    that shares no class with other nodes remains a node with its own name. So levels are nested and
    never cross roots, whatever cycles and errors P279 has.

    Args:
        groups: Groups of the taxonomy.
        superclasses: Direct superclasses by class.
        class_labels: Label by class.
        n_levels: Number of extra levels.

    Returns:
        ``n_levels`` names by group, finest first, without the root. Names of a level are unique: a
        class that occurs under both roots is followed by the root, and classes with the same label
        by their items.

    >>> groups = [
    ...     Group("volcano", "natural", "", ("Q8072",)),
    ...     Group("mountain", "natural", "", ("Q8502",)),
    ...     Group("lake", "natural", "", ("Q23397",)),
    ... ]
    >>> superclasses = {"Q8072": ["Q8502"], "Q8502": ["Q271669"], "Q23397": ["Q15324"]}
    >>> subclass_levels(groups, superclasses, {"Q8502": "mountain"}, 1)
    {'volcano': ('mountain',), 'mountain': ('mountain',), 'lake': ('lake',)}
    """
    nodes = [_Node(group.name, group.root, group.items) for group in groups]
    level_names = []
    for _ in range(n_levels):
        parents = _parent_nodes(dict.fromkeys(nodes), superclasses, class_labels)
        nodes = [parents[node] for node in nodes]
        names = _unique_node_names(dict.fromkeys(nodes))
        level_names.append([names[node] for node in nodes])
    ancestors = {}
    for position, group in enumerate(groups):
        ancestors[group.name] = tuple(names[position] for names in level_names)
    return ancestors


def _parent_nodes(
    nodes: Iterable[_Node],
    superclasses: Mapping[str, Sequence[str]],
    class_labels: Mapping[str, str],
) -> dict[_Node, _Node]:
    """Return the node of the next level above each node; see :func:`subclass_levels`."""
    steps_by_node: dict[_Node, dict[str, int]] = {}
    n_below: Counter[tuple[str, str]] = Counter()
    for node in nodes:
        steps_to_item: dict[str, int] = {}
        for steps, items in enumerate([node.items, *levels_above(node.items, superclasses)]):
            steps_to_item.update(dict.fromkeys(items, steps))
        n_below.update((node.root, item) for item in steps_to_item)
        steps_by_node[node] = steps_to_item
    parents = {}
    for node, steps_to_item in steps_by_node.items():
        candidates = []
        for item, steps in steps_to_item.items():
            n_nodes = n_below[node.root, item]
            if n_nodes > 1:
                # A shorter item has a smaller number; items of the same length sort by their numbers.
                candidates.append((steps, n_nodes, len(item), item))
        if candidates:
            nearest = min(candidates)[-1]
            parents[node] = _Node(class_labels.get(nearest, nearest), node.root, (nearest,))
        else:
            parents[node] = node
    return parents


def _unique_node_names(nodes: Collection[_Node]) -> dict[_Node, str]:
    """Return the names of nodes, with root and items where several nodes have the same name."""
    n_same_root = Counter((node.name, node.root) for node in nodes)
    n_roots = Counter(name for name, _ in n_same_root)
    names = {}
    for node in nodes:
        qualifiers = []
        if n_roots[node.name] > 1:
            qualifiers.append(node.root)
        if n_same_root[node.name, node.root] > 1:
            qualifiers += node.items
        names[node] = f"{node.name} ({', '.join(qualifiers)})" if qualifiers else node.name
    return names

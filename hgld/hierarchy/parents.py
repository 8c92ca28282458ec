"""Groups and levels from the superclasses of labels on Wikidata.

Where superclasses are a tree already, as those of taxa are, they give the groups and all levels above them; elsewhere
they give levels between groups and root.

A level is a rank of the superclasses, such as genus, family and order; which item has which rank is in the column
``rank`` of the tables ``classes``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from hgld.errors import ConfigurationError
from hgld.io.columns import preview
from hgld.labels.class_tree import ClassTree, levels_above
from hgld.labels.clean import InstanceOf
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group

#: A rank becomes a level if this share of the entities has it, and not all of them the same item.
_COMMON = 0.9


def groups_from_parents(
    labels: Iterable[InstanceOf], tree: ClassTree, levels: Sequence[str] = ()
) -> tuple[list[Group], list[Decision]]:
    """Return the groups above labels, and a decision for each label.

    The ancestor of a label at a level is the nearest superclass of that rank. The decision is ``unsure``, with the
    reason as comment, if there is no such superclass, or several are equally near.

    Args:
        labels: Label of each entity; repetitions count.
        tree: Superclasses and ranks of the classes.
        levels: Ranks, finest first. Default: those that most entities have, without ranks where all have the same.

    Raises:
        ConfigurationError: No entity has one of the ranks, or the levels cannot be found.
    """
    counts = Counter(labels)
    above = {label: _by_rank(label, tree) for label in counts}
    levels = levels or _common_levels(counts, above)
    existing = {rank for ranks in above.values() for rank in ranks}
    if missing := [level for level in levels if level not in existing]:
        raise ConfigurationError(
            f"nothing has the rank {missing[0]}; there are {preview(sorted(existing))}"
        )
    paths = {label: _path(ranks, levels, tree) for label, ranks in above.items()}
    names = _unique_names([path for path in paths.values() if not isinstance(path, str)], tree)
    groups: dict[str, Group] = {}
    decisions = []
    for label, path in paths.items():
        now = datetime.now(timezone.utc)
        if isinstance(path, str):
            decisions.append(
                Decision(label.item or "", label.label, "unsure", None, "machine", now, path)
            )
            continue
        name, *upper = [names[level, item] for level, item in enumerate(path)]
        root = upper[-1] if upper else name
        groups[name] = Group(
            name, root, "", path[:1], between=tuple(upper[:-1]), levels=tuple(levels)
        )
        decisions.append(Decision(label.item or "", label.label, "group", name, "machine", now))
    return list(groups.values()), decisions


def _by_rank(label: InstanceOf, tree: ClassTree) -> dict[str, list[str]]:
    """Return the nearest classes of each rank at or above a label, in the order of their distance."""
    by_rank: dict[str, list[str]] = {}
    if label.item is None:
        return by_rank
    for items in [[label.item], *levels_above([label.item], tree.superclasses)]:
        nearest = defaultdict(list)
        for item in items:
            if item in tree.ranks:
                nearest[tree.ranks[item]].append(item)
        for rank, classes in nearest.items():
            by_rank.setdefault(rank, classes)
    return by_rank


def _common_levels(
    counts: Mapping[InstanceOf, int], above: Mapping[InstanceOf, Mapping[str, list[str]]]
) -> list[str]:
    """Return the ranks that most entities have, those with the most items first."""
    n_entities: Counter[str] = Counter()
    items = defaultdict(set)
    for label, ranks in above.items():
        for rank, nearest in ranks.items():
            n_entities[rank] += counts[label]
            items[rank].update(nearest)
    total = sum(counts.values())
    levels = [
        rank for rank in n_entities if n_entities[rank] >= _COMMON * total and len(items[rank]) > 1
    ]
    if not levels:
        raise ConfigurationError(
            f"no rank is above {_COMMON:.0%} of the entities and tells them apart; name the levels, such as "
            "parents:genus,family,order"
        )
    return sorted(levels, key=lambda rank: -len(items[rank]))


def _path(
    ranks: Mapping[str, list[str]], levels: Sequence[str], tree: ClassTree
) -> tuple[str, ...] | str:
    """Return the item of each level; the reason as a text if a level has none or several."""
    for level in levels:
        nearest = ranks.get(level, [])
        if len(nearest) != 1:
            several = " and ".join(f"{tree.labels[item]} ({item})" for item in nearest)
            return f"{several} are equally near as {level}" if several else f"no {level} above it"
    return tuple(ranks[level][0] for level in levels)


def _unique_names(paths: Iterable[Sequence[str]], tree: ClassTree) -> dict[tuple[int, str], str]:
    """Return the name of each item at a level: its label, with the item if another one has the same."""
    items = dict.fromkeys((level, item) for path in paths for level, item in enumerate(path))
    n_same = Counter((level, tree.labels[item]) for level, item in items)
    return {
        (level, item): tree.labels[item]
        + (f" ({item})" if n_same[level, tree.labels[item]] > 1 else "")
        for level, item in items
    }


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
    """Return the names above each group at extra levels, from the subclass relation of Wikidata (P279).

    The nodes of the first level are the groups, whose classes are the ``items`` of the taxonomy. A node is put under
    the nearest class that is also above another node of the same root; nodes under the same class become one node of
    the next level. The distance is the smallest number of P279 steps from any class of the node; it is 0 if another
    node is below one of these classes (mountain, with volcano below it). Among equally near classes the one above the
    fewest nodes is taken, then the first by item. A node that shares no class with other nodes stays alone under its
    own name. So levels are nested and never cross roots, whatever cycles and errors P279 has.

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
        names = _unique_node_names(dict.fromkeys(current.values()))
        ancestors = {group: (*ancestors[group], names[node]) for group, node in current.items()}
    return ancestors


def _parent_nodes(
    nodes: Iterable[_Node],
    superclasses: Mapping[str, Sequence[str]],
    class_labels: Mapping[str, str],
) -> dict[_Node, _Node]:
    """Return the node of the next level above each node; see :func:`subclass_levels`."""
    steps_by_node = {
        node: {
            item: steps
            for steps, items in enumerate([node.items, *levels_above(node.items, superclasses)])
            for item in items
        }
        for node in nodes
    }
    n_below = Counter((node.root, item) for node, steps in steps_by_node.items() for item in steps)
    parents = {}
    for node, steps in steps_by_node.items():
        shared = [item for item in steps if n_below[node.root, item] > 1]
        if shared:
            # Items of equal length are sorted like their numbers.
            item = min(
                shared, key=lambda item: (steps[item], n_below[node.root, item], len(item), item)
            )
            parents[node] = _Node(class_labels.get(item, item), node.root, (item,))
        else:
            parents[node] = node
    return parents


def _unique_node_names(nodes: Collection[_Node]) -> dict[_Node, str]:
    """Return the names of nodes, with root and items where several nodes have the same name."""
    n_same_root = Counter((node.name, node.root) for node in nodes)
    n_roots = Counter(name for name, _ in n_same_root)
    names = {}
    for node in nodes:
        qualifiers = [node.root] if n_roots[node.name] > 1 else []
        if n_same_root[node.name, node.root] > 1:
            qualifiers += node.items
        names[node] = f"{node.name} ({', '.join(qualifiers)})" if qualifiers else node.name
    return names

"""Groups and levels from the superclasses of labels on Wikidata.

:func:`groups_from_parents` derives groups and all levels above them from superclasses that form a
tree, as taxa do. Its levels are ranks, such as genus, family and order, from the column ``rank`` of
the tables ``classes``.

:func:`subclass_levels` derives levels between given groups and roots from any superclasses.
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

#: Share of the entities that must have a rank for it to become a level by default.
_COMMON = 0.9


def groups_from_parents(
    labels: Iterable[InstanceOf], tree: ClassTree, levels: Sequence[str] = ()
) -> tuple[list[Group], list[Decision]]:
    """Return the groups above labels, and a decision for each label.

    The ancestor of a label at a level is the nearest superclass of this rank. The decision is
    ``unsure``, with the reason as comment, if a label has no superclass of a rank, or several
    equally near ones.

    Args:
        labels: Label of each entity; repetitions count.
        tree: Superclasses and ranks of the classes.
        levels: Ranks, finest first. Default: ranks that most entities have, and that distinguish
            entities.

    Raises:
        ConfigurationError: No entity has one of the ranks, or no rank is suitable by default.
    """
    counts = Counter(labels)
    ranked_classes = {label: _nearest_by_rank(label, tree) for label in counts}
    ranks = {rank for classes in ranked_classes.values() for rank in classes}
    levels = levels or _common_levels(counts, ranked_classes)
    for level in levels:
        if level not in ranks:
            raise ConfigurationError(
                f"nothing has the rank {level}; there are {preview(sorted(ranks))}"
            )
    paths = {}
    reasons = {}
    for label, classes in ranked_classes.items():
        reason = _ambiguity(classes, levels, tree)
        if reason is None:
            paths[label] = tuple(classes[level][0] for level in levels)
        else:
            reasons[label] = reason
    names = _unique_names(paths.values(), tree)
    groups: dict[str, Group] = {}
    decisions = []
    now = datetime.now(timezone.utc)
    for label in ranked_classes:
        identity = label.item or ""
        if label in reasons:
            decisions.append(
                Decision(identity, label.label, "unsure", None, "machine", now, reasons[label])
            )
            continue
        path = paths[label]
        path_names = tuple(names[level, item] for level, item in enumerate(path))
        name = path_names[0]
        groups[name] = Group(
            name, path_names[-1], "", path[:1], between=path_names[1:-1], levels=tuple(levels)
        )
        decisions.append(Decision(identity, label.label, "group", name, "machine", now))
    return list(groups.values()), decisions


def _nearest_by_rank(label: InstanceOf, tree: ClassTree) -> dict[str, list[str]]:
    """Return the nearest classes of each rank at or above a label, nearest rank first."""
    nearest: dict[str, list[str]] = {}
    if label.item is None:
        return nearest
    for items in [[label.item], *levels_above([label.item], tree.superclasses)]:
        equally_near = defaultdict(list)
        for item in items:
            if item in tree.ranks:
                equally_near[tree.ranks[item]].append(item)
        for rank, classes in equally_near.items():
            nearest.setdefault(rank, classes)
    return nearest


def _common_levels(
    counts: Mapping[InstanceOf, int], ranked_classes: Mapping[InstanceOf, Mapping[str, list[str]]]
) -> list[str]:
    """Return the ranks that most entities have, in descending order of their numbers of items."""
    n_entities: Counter[str] = Counter()
    items = defaultdict(set)
    for label, classes_by_rank in ranked_classes.items():
        for rank, classes in classes_by_rank.items():
            n_entities[rank] += counts[label]
            items[rank].update(classes)
    least_entities = _COMMON * sum(counts.values())
    levels = []
    for rank, count in n_entities.items():
        if count >= least_entities and len(items[rank]) > 1:
            levels.append(rank)
    if not levels:
        raise ConfigurationError(
            f"no rank is above {_COMMON:.0%} of the entities and tells them apart; name the levels, such as "
            "parents:genus,family,order"
        )
    return sorted(levels, key=lambda rank: -len(items[rank]))


def _ambiguity(
    classes: Mapping[str, list[str]], levels: Sequence[str], tree: ClassTree
) -> str | None:
    """Return the reason why a label has no unique class at each level; None if it has."""
    for level in levels:
        nearest = classes.get(level, [])
        if not nearest:
            return f"no {level} above it"
        if len(nearest) > 1:
            described = " and ".join(f"{tree.labels[item]} ({item})" for item in nearest)
            return f"{described} are equally near as {level}"
    return None


def _unique_names(paths: Iterable[Sequence[str]], tree: ClassTree) -> dict[tuple[int, str], str]:
    """Return the name of each item at a level: its label, with the item if labels are equal."""
    items: dict[tuple[int, str], None] = {}
    for path in paths:
        items.update(dict.fromkeys(enumerate(path)))
    n_same_label = Counter((level, tree.labels[item]) for level, item in items)
    names = {}
    for level, item in items:
        label = tree.labels[item]
        names[level, item] = f"{label} ({item})" if n_same_label[level, label] > 1 else label
    return names


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
    The parent of a node is the nearest class that is also above another node of the same root;
    nodes with the same parent become one node of the next level. The distance is the smallest
    number of P279 steps from any class of the node; it is 0 if another node is below one of these
    classes (volcano is below mountain). Ties go to the class above the fewest nodes, then to the
    first item. A node that shares no class with other nodes remains a node with its own name. So
    levels are nested and never cross roots, whatever cycles and errors P279 has.

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
                # Items of equal length are sorted like their numbers.
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

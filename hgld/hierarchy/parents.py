"""Groups and all levels above them, from superclasses of labels on Wikidata that form a tree.

Taxa form such a tree. The levels are ranks, such as genus, family and order, from the column
``rank`` of the tables ``classes``. For other superclasses see
:mod:`hgld.hierarchy.subclass_levels`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
    ranked_classes = {}
    ranks: set[str] = set()
    for label in counts:
        ranked_classes[label] = _nearest_by_rank(label, tree)
        ranks.update(ranked_classes[label])
    levels = levels or _common_levels(counts, ranked_classes)
    for level in levels:
        if level not in ranks:
            raise ConfigurationError(
                f"nothing has the rank {level}; there are {preview(sorted(ranks))}"
            )
    paths: dict[InstanceOf, list[str]] = {}
    reasons = {}
    for label, classes in ranked_classes.items():
        reason = _ambiguity(classes, levels, tree)
        if reason is None:
            paths[label] = [classes[level][0] for level in levels]
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
        path_names = tuple(names[place] for place in enumerate(path))
        name = path_names[0]
        groups[name] = Group(
            name, path_names[-1], "", (path[0],), between=path_names[1:-1], levels=tuple(levels)
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

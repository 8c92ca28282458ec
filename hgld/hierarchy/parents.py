"""Groups and levels from the superclasses of labels on Wikidata, where these are a tree already, as taxa are.

A level is a rank of the superclasses, such as genus, family and order; which item has which rank is in the column
``rank`` of the tables ``classes``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from hgld import tables
from hgld.errors import ConfigurationError, InputError
from hgld.io.columns import preview
from hgld.labels.class_graph import levels_above, read_class_labels, read_superclasses
from hgld.labels.clean import InstanceOf
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group

#: A rank becomes a level if this share of the entities has it, and not all of them the same item.
_COMMON = 0.9


@dataclass(frozen=True)
class ClassTree:
    """Classes of Wikidata with what is above them, by item.

    Args:
        superclasses: Direct superclasses, or parents by another property.
        ranks: Label of the rank of each class that has one.
    """

    superclasses: Mapping[str, Sequence[str]]
    labels: Mapping[str, str]
    ranks: Mapping[str, str]


def read_class_tree(paths: Sequence[Path]) -> ClassTree:
    """Read ``classes`` tables."""
    ranks: dict[str, str] = {}
    for path in paths:
        table = tables.read_table(path, tables.CLASSES)
        if "rank" in table.column_names:
            pairs = zip(table["item"].to_pylist(), table["rank"].to_pylist(), strict=True)
            ranks |= {item: rank for item, rank in pairs if rank is not None}
    if not ranks:
        raise InputError(
            f"{', '.join(map(str, paths))}: no class has a rank (P105), by which levels are told apart; scrape with "
            "--parents P171, or decide on labels with hgld review"
        )
    return ClassTree(read_superclasses(paths), read_class_labels(paths), ranks)


def groups_from_parents(
    labels: Iterable[InstanceOf], tree: ClassTree, levels: Sequence[str] = ()
) -> tuple[list[Group], list[Decision]]:
    """Return the groups above labels, and a decision for each label.

    At each level, what is above a label is the nearest superclass of that rank. A label is ``unsure``, with the
    reason as comment, if there is none, or several are equally near.

    Args:
        levels: Ranks, finest first; by default those that most entities have, without ranks where all have the same.

    Raises:
        ConfigurationError: No entity has one of the ranks, or the levels cannot be found.
    """
    counts = Counter(labels)
    above = {label: _by_rank(label, tree) for label in counts}
    levels = levels or _common_levels(counts, above)
    found = {rank for ranks in above.values() for rank in ranks}
    if missing := [level for level in levels if level not in found]:
        raise ConfigurationError(f"nothing has the rank {missing[0]}; there are {preview(sorted(found))}")
    paths = {label: _path(label, ranks, levels, tree) for label, ranks in above.items()}
    names = _unique_names([path for path in paths.values() if not isinstance(path, str)], tree)
    groups: dict[str, Group] = {}
    decisions = []
    for label, path in paths.items():
        now = datetime.now(timezone.utc)
        if isinstance(path, str):
            decisions.append(Decision(label.item or "", label.label, "unsure", None, "machine", now, path))
            continue
        name, *upper = [names[level, item] for level, item in enumerate(path)]
        root = upper[-1] if upper else name
        groups[name] = Group(name, root, "", path[:1], between=tuple(upper[:-1]), levels=tuple(levels))
        decisions.append(Decision(label.item or "", label.label, "group", name, "machine", now))
    return list(groups.values()), decisions


def _by_rank(label: InstanceOf, tree: ClassTree) -> dict[str, list[str]]:
    """Return the nearest classes of each rank at or above a label, in the order of their distance."""
    by_rank: dict[str, list[str]] = {}
    if label.item is None:
        return by_rank
    for items in [[label.item], *levels_above(label.item, tree.superclasses)]:
        nearest = defaultdict(list)
        for item in items:
            if item in tree.ranks:
                nearest[tree.ranks[item]].append(item)
        by_rank = {**by_rank, **{rank: items for rank, items in nearest.items() if rank not in by_rank}}
    return by_rank


def _common_levels(
    counts: Mapping[InstanceOf, int], above: Mapping[InstanceOf, Mapping[str, list[str]]]
) -> list[str]:
    having: Counter[str] = Counter()
    items = defaultdict(set)
    for label, ranks in above.items():
        for rank, nearest in ranks.items():
            having[rank] += counts[label]
            items[rank].update(nearest)
    total = sum(counts.values())
    levels = [rank for rank in having if having[rank] >= _COMMON * total and len(items[rank]) > 1]
    if not levels:
        raise ConfigurationError(
            f"no rank is above {_COMMON:.0%} of the entities and tells them apart; name the levels, such as "
            "parents:genus,family,order"
        )
    return sorted(levels, key=lambda rank: -len(items[rank]))


def _path(
    label: InstanceOf, ranks: Mapping[str, list[str]], levels: Sequence[str], tree: ClassTree
) -> tuple[str, ...] | str:
    """Return the item of each level, or why there are not all."""
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
        (level, item): tree.labels[item] + (f" ({item})" if n_same[level, tree.labels[item]] > 1 else "")
        for level, item in items
    }

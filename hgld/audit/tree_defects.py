"""Find defects of the superclasses that suggestions rest on: the statements "subclass of" (P279) of Wikidata.

A superclass points to the groups that are known for it, and the nearest ones count most
(:class:`hgld.labels.evidence.ClassVotes`). A group is known for a class that the taxonomy links to it, or that a term
of the group names. So a superfluous statement counts too much, a class above nearly everything says nothing, and what
a class says is divided if it is below, or above, classes of several groups.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from hgld import tables
from hgld.errors import InputError
from hgld.io.columns import preview
from hgld.labels.class_tree import ancestors, levels_above, nearest_classes, read_class_tree
from hgld.labels.evidence import taxonomy_terms
from hgld.labels.suggest import has_vocabulary
from hgld.labels.wording import normalised_words
from hgld.resources import annotation_file
from hgld.taxonomy.decisions import Category
from hgld.taxonomy.groups import Group, VocabularyTerm, find_taxonomy, read_taxonomy, read_vocabulary
from hgld.taxonomy.label_identity import label_id

#: The kinds of defects, as columns of tables name them, with what they mean.
PROBLEMS: Mapping[str, str] = {
    "redundant": "superclass that is above another superclass of the class",
    "cycle": "class that is above itself",
    "over-general": "class whose superclasses are above classes of more than half of the groups",
    "several groups above": "class whose nearest superclasses with a known group have different ones",
    "several groups below": "class above classes of several groups, the only evidence for some labels",
}


@dataclass(frozen=True)
class TreeDefect:
    """A defect of a class.

    Args:
        problem: Kind of the defect, a key of :data:`PROBLEMS`.
        item: Item of the class.
        superclasses: Items of the superclasses that are the problem.
        detail: Description of the defect.
        labels: Items of the labels at or below the class that it touches.
    """

    problem: str
    item: str
    superclasses: tuple[str, ...]
    detail: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class TreeAudit:
    """Defects of the superclasses of labels, those that touch most labels first.

    ``names`` has the label of each class in the tables, and ``landmarks`` the number of landmarks of each label, by
    its item, or by another id if it has none.
    """

    defects: Sequence[TreeDefect]
    names: Mapping[str, str]
    landmarks: Mapping[str, int]

    def to_arrow(self) -> pa.Table:
        """Return a row for each defect; items, and the labels that it touches, are joined in one text."""
        defects = self.defects
        return pa.table(
            {
                "problem": [defect.problem for defect in defects],
                "item": [defect.item for defect in defects],
                "class": [self.names[defect.item] for defect in defects],
                "superclasses": [" ".join(defect.superclasses) for defect in defects],
                "detail": [defect.detail for defect in defects],
                "labels": [len(defect.labels) for defect in defects],
                "landmarks": [sum(self.landmarks[item] for item in defect.labels) for defect in defects],
                "touched": ["; ".join(self.names[item] for item in defect.labels) for defect in defects],
            }
        )


@dataclass(frozen=True)
class GroupedClasses:
    """Classes with their labels, direct superclasses, and the groups that are known for them, where any is."""

    superclasses: Mapping[str, Sequence[str]]
    names: Mapping[str, str]
    known: Mapping[str, frozenset[str]]

    @cached_property
    def above(self) -> Mapping[str, set[str]]:
        """All classes above each class."""
        items = {*self.superclasses, *(parent for parents in self.superclasses.values() for parent in parents)}
        return {item: ancestors(item, self.superclasses) for item in items}

    @cached_property
    def groups_below(self) -> Mapping[str, set[str]]:
        """Groups that are known at or below classes."""
        below: defaultdict[str, set[str]] = defaultdict(set)
        for item, groups in self.known.items():
            for each in {item} | self.above[item]:
                below[each] |= groups
        return below

    @cached_property
    def general(self) -> set[str]:
        """Classes above those of more than half of the groups, which tell little about the group of a label."""
        n_groups = len(set().union(*self.known.values()))
        return {item for item, groups in self.groups_below.items() if len(groups) > max(n_groups / 2, 1)}

    @cached_property
    def nearest(self) -> Mapping[str, set[str]]:
        """The nearest classes at or above each class for which a group is known, without general ones."""
        informative = self.known.keys() - self.general
        return {
            item: nearest_classes(({item} | above) & informative, self.above) for item, above in self.above.items()
        }

    def groups_above(self, item: str) -> frozenset[str]:
        """Return the groups of the nearest classes at or above a class."""
        return frozenset().union(*(self.known[each] for each in self.nearest[item]))

    def informative_superclasses(self, item: str) -> list[str]:
        """Return the first superclasses that are not general and at or above a class with a known group."""
        for level in levels_above([item], self.superclasses):
            informative = [each for each in level if each in self.groups_below and each not in self.general]
            if informative:
                return informative
        return []

    def name(self, item: str) -> str:
        """Return the label of a class with its item."""
        return f"{self.names.get(item, '?')} ({item})"


def audit_tree(clean: Path, classes: Sequence[Path], taxonomy: Path | None = None) -> TreeAudit:
    """Find defects of the superclasses of the labels in a table ``clean``, by tables ``classes``.

    Groups are by default those that come with hgld, with their vocabulary.
    """
    if not classes:
        raise InputError(
            f"{clean.parent}: has no *.classes.parquet; give tables of classes from hgld scrape as `classes`"
        )
    table = tables.read_table(clean, tables.CLEAN)
    landmarks = Counter(map(label_id, table["supercategory"].to_pylist(), table["class_item"].to_pylist()))
    groups = read_taxonomy(find_taxonomy(taxonomy))
    keys = {group.key for group in groups}
    terms = read_vocabulary(annotation_file("vocabulary.csv"), keys) if has_vocabulary(groups) else []
    tree = read_class_tree(classes)
    names = tree.labels
    graph = GroupedClasses(tree.superclasses, names, known_groups(names, groups, terms))
    return TreeAudit(find_tree_defects(graph, landmarks.keys() & names.keys()), names, landmarks)


def known_groups(
    names: Mapping[str, str], groups: Sequence[Group], vocabulary: Iterable[VocabularyTerm] = ()
) -> dict[str, frozenset[str]]:
    """Return the groups that are known for classes, as for suggestions: by links, and by terms, which may drop them.

    Names are labels of classes by item; terms are those of the guidelines and of a vocabulary.
    """
    by_item: defaultdict[str, set[str]] = defaultdict(set)
    by_words: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    names_of_groups = [str(Category("group", group.name)) for group in groups]
    for term in taxonomy_terms(groups, vocabulary):
        name = names_of_groups[term.group] if term.group < len(groups) else str(Category("drop"))
        by_words[normalised_words(term.text)].add(name)
        for item in term.items:
            by_item[item].add(name)
    for group, name_of_group in zip(groups, names_of_groups, strict=True):
        for item in group.items:
            by_item[item] = {name_of_group}
    known = {item: by_item.get(item) or by_words.get(normalised_words(name), set()) for item, name in names.items()}
    return {item: frozenset(found) for item, found in known.items() if found}


def find_tree_defects(graph: GroupedClasses, labels: Iterable[str]) -> list[TreeDefect]:
    """Return the defects that touch one of the labels, which are items, those that touch most first."""
    below: defaultdict[str, list[str]] = defaultdict(list)
    for label in sorted(set(labels)):
        for item in {label} | graph.above[label]:
            below[item].append(label)
    defects = [*_redundant(graph, below), *_cycles(graph, below)]
    if graph.known:
        defects += [*_over_general(graph, below), *_several_above(graph, below), *_several_below(graph, below)]
    order = list(PROBLEMS)
    return sorted(
        (defect for defect in defects if defect.labels),
        key=lambda defect: (-len(defect.labels), order.index(defect.problem), defect.item),
    )


_Below = Mapping[str, Sequence[str]]


def _redundant(graph: GroupedClasses, below: _Below) -> Iterator[TreeDefect]:
    """Find superclasses that are above another superclass of the class; cycles are left to :func:`_cycles`."""
    above = graph.above
    for item, parents in graph.superclasses.items():
        for parent in dict.fromkeys(parents):
            detours = [
                other
                for other in dict.fromkeys(parents)
                if parent in above[other] and other not in above[parent] and item not in above[other]
            ]
            if detours:
                ways = " and ".join(map(graph.name, detours))
                detail = f"below {graph.name(parent)} by way of {ways} already"
                yield TreeDefect("redundant", item, (parent,), detail, tuple(below.get(item, ())))


def _cycles(graph: GroupedClasses, below: _Below) -> Iterator[TreeDefect]:
    """Find classes that are above each other."""
    visited: set[str] = set()
    for item in graph.superclasses:
        if item not in visited and item in graph.above[item]:
            others = tuple(each for each in sorted(graph.above[item] - {item}) if item in graph.above[each])
            visited.update(others)
            detail = f"above itself by way of {preview(list(map(graph.name, others)))}" if others else "above itself"
            yield TreeDefect("cycle", item, others, detail, tuple(below.get(item, ())))


def _over_general(graph: GroupedClasses, below: _Below) -> Iterator[TreeDefect]:
    """Find classes that have no superclasses, or only general ones."""
    for item, parents in graph.superclasses.items():
        if item not in graph.general and graph.general.issuperset(parents):
            touched = tuple(
                label
                for label in below.get(item, ())
                if not graph.nearest[label] and not graph.informative_superclasses(label)
            )
            general = [f"{graph.name(each)}, above {len(graph.groups_below[each])} groups" for each in parents]
            detail = f"only below {' and '.join(general)}" if general else "below no class"
            yield TreeDefect("over-general", item, tuple(parents), detail, touched)


def _several_above(graph: GroupedClasses, below: _Below) -> Iterator[TreeDefect]:
    """Find the topmost classes that the nearest classes with a known group put into several groups."""
    for item, parents in graph.superclasses.items():
        groups = graph.groups_above(item)
        others = (parent for parent in parents if item not in graph.above[parent])
        if len(groups) > 1 and all(graph.groups_above(parent) != groups for parent in others):
            touched = tuple(label for label in below.get(item, ()) if graph.groups_above(label) >= groups)
            nearest = sorted(graph.nearest[item])
            claims = [f"{graph.name(each)}: {' and '.join(sorted(graph.known[each]))}" for each in nearest]
            yield TreeDefect("several groups above", item, tuple(nearest), "; ".join(claims), touched)


def _several_below(graph: GroupedClasses, below: _Below) -> Iterator[TreeDefect]:
    """Find classes above those of several groups, if the group of labels rests on these classes alone."""
    touched: defaultdict[str, list[str]] = defaultdict(list)
    for label in (item for item in graph.superclasses if item in below.get(item, ()) and not graph.nearest[item]):
        superclasses = graph.informative_superclasses(label)
        if len(set().union(*(graph.groups_below[item] for item in superclasses))) > 1:
            for item in superclasses:
                touched[item].append(label)
    for item, labels in touched.items():
        detail = f"above classes of {preview(sorted(graph.groups_below[item]), 5)}"
        yield TreeDefect("several groups below", item, (), detail, tuple(labels))

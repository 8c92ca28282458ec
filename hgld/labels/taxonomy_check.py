"""Check a taxonomy for cycles, doubled names, missing guidelines, and empty or overlapping groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

from hgld import tables
from hgld.errors import counted
from hgld.io.columns import preview
from hgld.labels.class_tree import ClassTree, ancestors, nearest_classes, read_class_tree
from hgld.taxonomy.decisions import read_surviving_decisions
from hgld.taxonomy.groups import Group, read_taxonomy
from hgld.taxonomy.label_identity import normalise_label


@dataclass(frozen=True)
class Finding:
    """A problem of a taxonomy.

    Args:
        problem: Kind of problem, such as "cycle".
        what: Names of the groups, levels or classes concerned.
        is_error: Whether the taxonomy must be corrected before use.
    """

    problem: str
    what: str
    is_error: bool = False


@dataclass(frozen=True)
class TaxonomyReport:
    """Number of groups, and the findings, errors first."""

    n_groups: int
    findings: Sequence[Finding]


def check_taxonomy(
    taxonomy: Path,
    *,
    classes: Sequence[Path] = (),
    clusters: Path | None = None,
    decisions: Sequence[Path] = (),
) -> TaxonomyReport:
    """Check a taxonomy.

    Args:
        taxonomy: CSV file of groups.
        classes: ``classes`` tables; classes below several groups, and groups without classes, are
            reported.
        clusters: Table of clusters with suggestions; groups that are neither suggested nor decided
            are reported.
        decisions: CSV files of decisions; groups that are neither suggested nor decided are
            reported.

    Raises:
        InputError: A file is invalid.
    """
    groups = read_taxonomy(taxonomy)
    findings = _find_cycle(groups) + _find_doubled_names(groups)
    used: set[str | None] = set()
    for path in decisions:
        used.update(decision.group for decision in read_surviving_decisions(path, groups))
    if clusters is not None:
        suggested = tables.read_table(clusters, tables.CLUSTERS)["suggested_group"]
        used.update(suggested.to_pylist())
    without_guideline = [group.name for group in groups if not group.guideline]
    if without_guideline:
        findings.append(_group_finding("no guideline", without_guideline))
    unused = [group.name for group in groups if group.key not in used]
    if unused and (decisions or clusters is not None):
        findings.append(_group_finding("empty", unused))
    if classes:
        findings += _check_classes(groups, read_class_tree(classes))
    return TaxonomyReport(len(groups), findings)


def _group_finding(problem: str, names: Sequence[str]) -> Finding:
    return Finding(problem, f"{counted(len(names), 'group')}: {preview(names)}")


def _find_cycle(groups: Sequence[Group]) -> list[Finding]:
    """Find a name that is below itself, in one row of the taxonomy or across several rows."""
    parents: defaultdict[str, list[str]] = defaultdict(list)
    for group in groups:
        path = [normalise_label(name) for name in group.path]
        for name, parent in pairwise(path):
            if name != parent:
                parents[name].append(parent)
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        cycle = [f'"{name}"' for name in error.args[1]]
        return [Finding("cycle", " > ".join(cycle), is_error=True)]
    return []


def _find_doubled_names(groups: Sequence[Group]) -> list[Finding]:
    """Find names of a level that differ only in case, spaces or Unicode forms."""
    findings = []
    for column, level in enumerate(groups[0].levels):
        spellings = defaultdict(set)
        for group in groups:
            spellings[normalise_label(group.path[column])].add(group.path[column])
        for names in spellings.values():
            if len(names) > 1:
                quoted = [f'"{name}"' for name in sorted(names)]
                problem = f"{level}: {' and '.join(quoted)} are one name"
                findings.append(Finding("doubled", problem, is_error=True))
    return findings


def _check_classes(groups: Sequence[Group], tree: ClassTree) -> list[Finding]:
    """Find classes that belong to several groups, and groups without classes.

    A class belongs to the groups that the taxonomy links to the class or to its nearest
    superclasses.
    """
    group_of_item: dict[str, str] = {}
    for group in groups:
        for item in group.items:
            group_of_item[item] = group.name
    ancestors_of_item = {item: ancestors(item, tree.superclasses) for item in group_of_item}
    shared_classes: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    filled: set[str] = set()
    for item in tree.superclasses:
        linked_items = ({item} | ancestors(item, tree.superclasses)) & group_of_item.keys()
        filled.update(group_of_item[linked] for linked in linked_items)
        nearest_items = nearest_classes(linked_items, ancestors_of_item)
        nearest_groups = {group_of_item[linked] for linked in nearest_items}
        if len(nearest_groups) > 1:
            shared_classes[tuple(sorted(nearest_groups))].append(f"{tree.labels[item]} ({item})")
    findings = []
    for names, classes in shared_classes.items():
        what = f"{' and '.join(names)}: {preview(classes, 5)}"
        findings.append(Finding("classes of several groups", what))
    empty = [group.name for group in groups if group.items and group.name not in filled]
    if empty:
        what = f"{counted(len(empty), 'group')} without a class in the table: {preview(empty)}"
        findings.append(Finding("empty", what))
    return findings

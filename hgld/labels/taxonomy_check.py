"""Find mistakes in a taxonomy: cycles, doubled and empty groups, missing guidelines, classes of several groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
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
    """What is wrong with a taxonomy.

    Args:
        is_error: Whether the taxonomy should not be used like this.
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

    ``hgld taxonomy check`` describes the parameters.

    Raises:
        InputError: A file is invalid.
    """
    groups = read_taxonomy(taxonomy)
    findings = [*_cycles(groups), *_doubled_names(groups)]
    used: set[str | None] = set()
    for path in decisions:
        used |= {row.group for row in read_surviving_decisions(path, groups)}
    if clusters is not None:
        used |= {*tables.read_table(clusters, tables.CLUSTERS)["suggested_group"].to_pylist()}
    without_guideline = [group.name for group in groups if not group.guideline]
    if without_guideline:
        findings.append(_group_finding("no guideline", without_guideline))
    unused = [group.name for group in groups if group.key not in used]
    if unused and (decisions or clusters is not None):
        findings.append(_group_finding("empty", unused))
    if classes:
        findings += _shared_classes(groups, read_class_tree(classes))
    return TaxonomyReport(len(groups), findings)


def _group_finding(problem: str, names: Sequence[str]) -> Finding:
    return Finding(problem, f"{counted(len(names), 'group')}: {preview(names)}")


def _cycles(groups: Sequence[Group]) -> Iterator[Finding]:
    """Find a name that is below itself, in one row or by several."""
    above: defaultdict[str, list[str]] = defaultdict(list)
    for group in groups:
        for name, parent in pairwise(map(normalise_label, group.path)):
            if name != parent:
                above[name].append(parent)
    try:
        TopologicalSorter(above).prepare()
    except CycleError as error:
        yield Finding("cycle", " > ".join(f'"{name}"' for name in error.args[1]), is_error=True)


def _doubled_names(groups: Sequence[Group]) -> Iterator[Finding]:
    """Find names of a level that differ only in case, spaces or forms of characters."""
    for column, level in enumerate(groups[0].levels):
        spellings = defaultdict(set)
        for group in groups:
            spellings[normalise_label(group.path[column])].add(group.path[column])
        for names in spellings.values():
            if len(names) > 1:
                listed = " and ".join(f'"{name}"' for name in sorted(names))
                yield Finding("doubled", f"{level}: {listed} are one name", is_error=True)


def _shared_classes(groups: Sequence[Group], tree: ClassTree) -> Iterator[Finding]:
    """Find classes below items of several groups, none of which is below another; and groups without classes."""
    group_of = {item: group.name for group in groups for item in group.items}
    above = {item: ancestors(item, tree.superclasses) for item in group_of}
    shared = defaultdict(list)
    filled = set()
    for item in tree.superclasses:
        linked = ({item} | ancestors(item, tree.superclasses)) & group_of.keys()
        filled |= {group_of[each] for each in linked}
        nearest = {group_of[each] for each in nearest_classes(linked, above)}
        if len(nearest) > 1:
            shared[tuple(sorted(nearest))].append(f"{tree.labels[item]} ({item})")
    for names, items in shared.items():
        yield Finding("classes of several groups", f"{' and '.join(names)}: {preview(items, 5)}")
    if empty := [group.name for group in groups if group.items and group.name not in filled]:
        yield Finding(
            "empty",
            f"{counted(len(empty), 'group')} without a class in the table: {preview(empty)}",
        )

"""Propose a taxonomy for labels that have none, and find mistakes in a taxonomy that can be read.

Proposals are made from the superclasses of labels on Wikidata and the meaning of their names. Groups are labels
merged step by step, those with the highest mean cosine first (average linkage). Roots are groups merged by their mean
vectors (Ward's linkage, which makes parts of similar size). The vector of a label has two parts: the classes above
it, each weighted by the information in it (the logarithm of how few labels are below it), and its text embedding or,
without embeddings, its clusters. ``benchmarks/proposals.py`` compares drafts with trees.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import chain, count, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hgld import tables
from hgld.arrays import Floats, Integers
from hgld.compute.machine import one_thread
from hgld.errors import ConfigurationError, InputError, counted, require_at_least
from hgld.io.columns import preview
from hgld.labels.class_tree import ClassTree, ancestors, nearest_classes, read_class_tree
from hgld.labels.embed import vectors_of_labels
from hgld.taxonomy.decisions import read_surviving_decisions
from hgld.taxonomy.groups import Group, read_taxonomy, write_taxonomy
from hgld.taxonomy.label_identity import normalise_label

#: Share of the classes in the similarity of labels that have classes.
_CLASS_SHARE = 0.75
#: A class names a group if the harmonic mean of precision and recall is above this.
_MIN_AGREEMENT = 0.5
_LABELS_PER_NAME, _LABELS_PER_GUIDELINE = 2, 8


@dataclass(frozen=True)
class ProposeConfig:
    """Settings of a proposal.

    Args:
        groups: Number of groups. Default: that of the sub-clusters.
        roots: Number of roots. Default: that of the clusters.
    """

    groups: int | None = None
    roots: int | None = None

    def __post_init__(self) -> None:
        require_at_least(1, **vars(self))


@dataclass(frozen=True)
class ProposalSummary:
    """Numbers of labels, of groups, of those named by a class, and of roots."""

    labels: int
    groups: int
    by_class: int
    roots: int


@dataclass(frozen=True)
class Labels:
    """Labels to group.

    Args:
        counts: int64, shape (n,); number of entities of each label.
        vectors: float64, shape (n, dimension); unit vectors.
    """

    ids: Sequence[str]
    texts: Sequence[str]
    counts: Integers
    clusters: Sequence[tuple[int, int]]
    vectors: Floats
    classes: ClassTree


def propose_taxonomy(
    clusters: Path,
    out: Path,
    config: ProposeConfig | None = None,
    *,
    embeddings: Path | None = None,
    classes: Sequence[Path] | None = None,
) -> ProposalSummary:
    """Write a draft of a taxonomy with groups and roots; the guideline of a group says what it was made of.

    Takes O(labels^2) memory.

    Args:
        clusters: Clusters from hgld cluster.
        out: Draft to write.
        config: Numbers of groups and roots.
        embeddings: Label embeddings. Default: label_embeddings.parquet beside ``clusters``, if it exists.
        classes: ``classes`` tables; ``*.classes.parquet`` beside ``clusters`` by default.

    Raises:
        ConfigurationError: There are fewer labels than groups.
    """
    labels = read_labels(clusters, embeddings, classes)
    config = config or ProposeConfig()
    n_groups = config.groups or len({*labels.clusters})
    n_roots = config.roots or min(n_groups, len({cluster for cluster, _ in labels.clusters}))
    for name, number, limit, parts in (
        ("groups", n_groups, len(labels.ids), "labels"),
        ("roots", n_roots, n_groups, "groups"),
    ):
        if number > limit:
            raise ConfigurationError(f"{clusters}: `{name}` is {number}, but there are {limit:,} {parts}")
    groups = [group for group, _ in propose_groups(labels, n_groups, n_roots)]
    write_taxonomy(out, groups)
    by_class = sum(bool(group.items) for group in groups)
    return ProposalSummary(len(labels.ids), len(groups), by_class, len({group.root for group in groups}))


def read_labels(clusters: Path, embeddings: Path | None = None, classes: Sequence[Path] | None = None) -> Labels:
    """Read labels with all that is known about them, see :func:`propose_taxonomy`."""
    table = tables.read_table(clusters, tables.CLUSTERS).sort_by([("label", "ascending"), ("label_id", "ascending")])
    if not len(table):
        raise InputError(f"{clusters}: no labels in it")
    ids, texts = (table[name].to_pylist() for name in ("label_id", "label"))
    pairs = list(zip(table["cluster"].to_pylist(), table["subcluster"].to_pylist(), strict=True))
    beside = clusters.with_name("label_embeddings.parquet")
    if embeddings is None and not beside.is_file():
        # Labels of a sub-cluster are equal, and those of a cluster similar.
        clusters_of = np.array(pairs)
        same_cluster = np.equal.outer(clusters_of[:, 0], np.unique(clusters_of[:, 0]))
        same_subcluster = (clusters_of[:, None] == np.unique(clusters_of, axis=0)).all(axis=2)
        vectors = np.hstack([same_cluster, same_subcluster]) / np.sqrt(2)
    else:
        vectors = vectors_of_labels(embeddings or beside, clusters, ids, texts)
    paths = tables.find_classes_tables(clusters) if classes is None else classes
    return Labels(
        ids=ids,
        texts=texts,
        counts=table["landmarks_train"].to_numpy() + table["landmarks_index"].to_numpy(),
        clusters=pairs,
        vectors=vectors,
        classes=read_class_tree(paths),
    )


def propose_groups(labels: Labels, n_groups: int, n_roots: int) -> list[tuple[Group, Integers]]:
    """Return groups with the rows of their labels; roots and groups with the most entities come first."""
    superclasses = labels.classes.superclasses
    above = [{item, *ancestors(item, superclasses)} if item in superclasses else set() for item in labels.ids]
    cosines = _similarity(labels.vectors, above)
    with one_thread():
        group = _cut(1 - cosines, n_groups, "average")
        means = np.equal.outer(np.arange(n_groups), group) / np.bincount(group)[:, None]
        # Scalar products of the groups' mean vectors, from those of their labels.
        products = means @ cosines @ means.T
        lengths = np.sqrt(np.maximum(np.diag(products), 1e-12))
        distances = np.sqrt(np.maximum(2 - 2 * products / np.outer(lengths, lengths), 0))
        root = _cut(distances, n_roots, "ward")[group]
    namer = _Namer(labels, above, cosines)
    groups: list[tuple[Group, Integers]] = []
    names: set[str] = set()
    root_names: set[str] = set()
    linked: set[str] = set()
    for root_rows in _largest_first(np.arange(len(group)), root, labels.counts):
        root_name = namer.name(root_rows).unique(root_names)
        for rows in _largest_first(root_rows, group[root_rows], labels.counts):
            name = namer.name(rows)
            items = (name.item,) if name.item and name.item not in linked else ()
            linked.update(items)
            groups.append((Group(name.unique(names), root_name, name.reason, items), rows))
    return groups


def _similarity(vectors: Floats, above: Sequence[set[str]]) -> Floats:
    """Return the cosines of labels by their vectors and by the classes that they are and that are above them."""
    from sklearn.preprocessing import MultiLabelBinarizer, normalize

    by_text: Floats = vectors @ vectors.T
    if not any(above):
        return by_text
    classes = MultiLabelBinarizer(sparse_output=True).fit_transform(above)
    information = np.log(sum(map(bool, above)) / classes.sum(axis=0))
    weighted = normalize(classes.multiply(information).tocsr())
    by_class = (weighted @ weighted.T).toarray()
    lengths = np.sqrt(_CLASS_SHARE * by_class.diagonal() + 1 - _CLASS_SHARE)
    return np.asarray((_CLASS_SHARE * by_class + (1 - _CLASS_SHARE) * by_text) / np.outer(lengths, lengths))


def _cut(distances: Floats, n_parts: int, linkage: str) -> Integers:
    """Divide rows by agglomerative clustering; return the part of each, from 0."""
    from scipy.cluster import hierarchy
    from scipy.spatial.distance import squareform

    if len(distances) == 1:
        return np.zeros(1, np.int64)
    # Rounded: the order of summation depends on the row, and must not decide between equal distances.
    merges = hierarchy.linkage(squareform(np.round(distances, 9), checks=False), linkage)
    return np.asarray(hierarchy.cut_tree(merges, [n_parts])[:, 0])


def _largest_first(rows: Integers, parts: Integers, counts: Integers) -> list[Integers]:
    """Return the rows of each part, that with the most entities first."""
    members = [rows[parts == part] for part in np.unique(parts)]
    return sorted(members, key=lambda part: (-counts[part].sum(), part[0]))


class _Name(NamedTuple):
    """Name of a group, what tells it from another group of that name, its class if it is named by one, and why."""

    text: str
    detail: str
    item: str | None
    reason: str

    def unique(self, taken: set[str]) -> str:
        """Return the name, with what tells it from those taken already, and enter it there."""
        further = (f"{self.text} ({detail})" for detail in chain([self.detail], count(2)))
        name = next(name for name in chain([self.text], further) if name.casefold() not in taken)
        taken.add(name.casefold())
        return name


class _Namer:
    """Names groups by what their labels have in common, given the classes above each label and their cosines."""

    def __init__(self, labels: Labels, above: Sequence[set[str]], cosines: Floats) -> None:
        self._labels, self._above, self._cosines = labels, above, cosines
        self._totals = Counter(chain.from_iterable(above))
        self._depths = {item: len(ancestors(item, labels.classes.superclasses)) for item in self._totals}

    def name(self, rows: Integers) -> _Name:
        """Name labels by a class if most of them and few others are below it, else by typical ones."""
        labels, texts = self._labels, self._typical_texts(rows)
        inside = Counter(chain.from_iterable(self._above[row] for row in rows))
        agreement = {item: 2 * inside[item] / (len(rows) + self._totals[item]) for item in inside}
        # Of classes above the same labels, the most special one says most.
        item = max(agreement, key=lambda item: (agreement[item], self._depths[item], item), default=None)
        if item is None or agreement[item] <= _MIN_AGREEMENT or item not in labels.classes.labels:
            (cluster, shared), *_ = Counter(labels.clusters[row][0] for row in rows).most_common(1)
            name, detail, item = ", ".join(texts[:_LABELS_PER_NAME]), f"cluster {cluster}", None
            place = f"of cluster {cluster}"
        else:
            name, detail, shared = labels.classes.labels[item], texts[0], inside[item]
            place = f"below {name} ({item})"
        n_labels, n_entries = counted(len(rows), "label"), labels.counts[rows].sum()
        share = n_labels if shared == len(rows) else f"{shared} of {n_labels}"
        entries = f"{n_entries:,} {'entry' if n_entries == 1 else 'entries'}"
        return _Name(name, detail, item, f"{share} {place}, {entries}: {', '.join(texts[:_LABELS_PER_GUIDELINE])}")

    def _typical_texts(self, rows: Integers) -> list[str]:
        """Return the texts of labels, frequent ones first that are close to the others."""
        counts, closeness = self._labels.counts[rows], self._cosines[np.ix_(rows, rows)].mean(axis=1)
        centrality = (closeness - closeness.min()).round(6)
        order = np.lexsort((-counts, -np.log1p(counts) * centrality))
        return list(dict.fromkeys(self._labels.texts[row] for row in rows[order]))


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
    taxonomy: Path, *, classes: Sequence[Path] = (), clusters: Path | None = None, decisions: Sequence[Path] = ()
) -> TaxonomyReport:
    """Check a taxonomy.

    Args:
        taxonomy: CSV file of groups and the levels above them.
        classes: Table of classes from hgld scrape, to find classes below two groups; may be repeated.
        clusters: Clusters from hgld suggest, to find groups without labels.
        decisions: CSV file of decisions, to find groups without labels; may be repeated.

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
    lists = {"no guideline": [group.name for group in groups if not group.guideline]}
    if decisions or clusters is not None:
        lists["empty"] = [group.name for group in groups if group.key not in used]
    findings += [
        Finding(problem, f"{counted(len(names), 'group')}: {preview(names)}")
        for problem, names in lists.items()
        if names
    ]
    if classes:
        findings += _shared_classes(groups, read_class_tree(classes))
    return TaxonomyReport(len(groups), findings)


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
        yield Finding("empty", f"{counted(len(empty), 'group')} without a class in the table: {preview(empty)}")

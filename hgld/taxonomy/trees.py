"""Trees of any depth as the groups of a taxonomy, and back.

Trees that are published elsewhere are read as paths, tables of levels or classes of Wikidata. Taxonomies are written
as paths.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from hgld import tables
from hgld.errors import ConfigurationError, InputError, counted
from hgld.io.columns import preview, text_column_names
from hgld.io.files import atomic_write, require_own_csv, write_csv
from hgld.io.table_rows import escape_formula, read_rows, unescape_formula, unify_line_breaks
from hgld.names import stored_name
from hgld.taxonomy.groups import Group, read_taxonomy, write_taxonomy
from hgld.taxonomy.settings import ImportConfig

log = logging.getLogger(__name__)

#: Separator of the levels of a path, coarsest first. In a name, the word ">" is escaped by a backslash.
SEPARATOR = " > "
_BETWEEN_NAMES = re.compile(r"\s>(?=\s)")
_SIGN_IN_NAME = re.compile(r"(?<!\S)\\*>(?!\S)")
_ESCAPED_SIGN = re.compile(r"(?<!\S)\\(\\*>)(?!\S)")

#: Keys of each node and the nodes above it, finest first, by the key of the node.
_Chains = Mapping[Hashable, Sequence[Hashable]]


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a tree.

    Args:
        parent: Key of the node above it; None at the top.
    """

    name: str
    parent: Hashable
    items: tuple[str, ...] = ()
    guideline: str = ""


#: Nodes by key, of any one type; without cycles.
Tree = Mapping[Any, Node]


def tree_groups(tree: Tree, levels: Sequence[str] = ()) -> list[Group]:
    """Return the leaves of a tree as groups, those of a parent together.

    A leaf above the finest level repeats its name at the finer levels. Nodes with the same name at a level get the
    names above them in parentheses, as many as needed.

    Raises:
        InputError: Two nodes below a parent have the same name.
        ConfigurationError: The tree has another number of levels.

    >>> tree = {1: Node("Food", None), 2: Node("Tools", None), 3: Node("Other", 1), 4: Node("Other", 2)}
    >>> [group.path for group in tree_groups(tree, ["shelf", "aisle"])]
    [('Other (Food)', 'Food'), ('Other (Tools)', 'Tools')]
    """
    chains: dict[Hashable, list[Hashable]] = {key: [key] for key in tree}
    for chain in chains.values():
        parent = tree[chain[0]].parent
        while parent is not None:
            chain.append(parent)
            parent = tree[parent].parent
    n_levels = max(map(len, chains.values()))
    levels = tuple(levels) or tuple(f"level{n}" for n in range(n_levels, 0, -1))
    if len(levels) != n_levels:
        raise ConfigurationError(
            f"the tree has {n_levels} levels, but `levels` are {len(levels)}: {', '.join(levels)}"
        )
    names = _unique_names(tree, chains, n_levels)
    position = {key: number for number, key in enumerate(tree)}

    def order(leaf: Hashable) -> list[int]:
        return [position[key] for key in reversed(chains[leaf])]

    leaves = tree.keys() - {node.parent for node in tree.values()}
    groups = []
    for leaf in sorted(leaves, key=order):
        path = [names[key] for key in chains[leaf]]
        path = [path[0]] * (n_levels - len(path)) + path
        node = tree[leaf]
        between = tuple(path[1:-1])
        group = Group(path[0], path[-1], node.guideline, node.items, between=between, levels=levels)
        groups.append(group)
    return groups


def _unique_names(tree: Tree, chains: _Chains, n_levels: int) -> dict[Hashable, str]:
    """Return a name for each node that is unique at the levels of the node.

    A leaf stands at its level and at all finer levels. Nodes with the same name get the name of their parent in
    parentheses. Nodes that still have the same name get the name of the parent's parent as well, and so on.

    Args:
        chains: Keys of each node and the nodes above it.
    """
    names = {key: stored_name(node.name) for key, node in tree.items()}
    inner = {node.parent for node in tree.values()}
    for n_above in range(1, n_levels + 1):
        keys_by_name = defaultdict(list)
        for key, chain in chains.items():
            finest = len(chain) if key in inner else n_levels
            for level in range(len(chain), finest + 1):
                keys_by_name[level, names[key].casefold()].append(key)
        same = [keys for keys in keys_by_name.values() if len(keys) > 1]
        for keys in same:
            name = tree[keys[0]].name
            parents = Counter(tree[key].parent for key in keys)
            parent, count = parents.most_common(1)[0]
            if count > 1:
                place = "at the top" if parent is None else f'below "{tree[parent].name}"'
                raise InputError(
                    f'"{name}" occurs {count} times {place}; give each a name of its own'
                )
        for keys in same:
            for key in keys:
                above = [tree[parent].name for parent in chains[key][1 : n_above + 1]]
                if above:
                    names[key] = stored_name(f"{tree[key].name} ({', '.join(above)})")
    renamed = sorted(name for key, name in names.items() if name != stored_name(tree[key].name))
    if renamed:
        log.info(
            "%s with the parent, as others have the same: %s",
            counted(len(renamed), "name"),
            preview(renamed),
        )
    return names


def tree_paths(groups: Iterable[Group]) -> list[tuple[str, ...]]:
    """Return the names from the top to each group, without repetitions of the name above.

    The path of a catch-all group keeps one repetition, which distinguishes it from the name above it.

    >>> levels = ("leaf", "shelf", "aisle")
    >>> tree_paths([Group("Rye", "Food", "", between=("Bread",), levels=levels),
    ...             Group("Bread", "Food", "", between=("Bread",), levels=levels),
    ...             Group("Milk", "Food", "", between=("Milk",), levels=levels)])
    [('Food', 'Bread', 'Rye'), ('Food', 'Bread', 'Bread'), ('Food', 'Milk')]
    """
    whole = [group.path[::-1] for group in groups]
    inner = set()
    for path in whole:
        for n_names in range(1, len(path)):
            if set(path[n_names:]) != {path[n_names - 1]}:
                inner.add(path[:n_names])
    paths = []
    for path in whole:
        n_names = len(path)
        while n_names > 1 and path[n_names - 2] == path[-1]:
            n_names -= 1
        if path[:n_names] in inner:
            n_names += 1
        paths.append(path[:n_names])
    return paths


def import_taxonomy(source: Path, out: Path, config: ImportConfig | None = None) -> dict[str, int]:
    """Write the leaves of a tree as the groups of a taxonomy, see :func:`hgld.taxonomy.trees.tree_groups`.

    ``hgld taxonomy import`` describes the parameters.

    Returns:
        The number of names at each level, by the name of the level, finest first.

    Raises:
        InputError: The source is missing, has another format, or is not a tree.
        ConfigurationError: The settings do not fit the source, or ``out`` exists and has other columns.
    """
    config = config or ImportConfig()
    if out.resolve() == source.resolve():
        raise ConfigurationError(f"{out}: `out` is the file to read; name another one")
    tree = _read_tree(source, config)
    with atomic_write(out) as draft:
        try:
            groups = tree_groups(tree, config.levels)
            write_taxonomy(draft, groups)
            read_taxonomy(draft)
        except (InputError, ConfigurationError) as error:
            raise type(error)(f"{source}: {error}") from error
        require_own_csv(out, text_column_names(draft))
    n_names = {}
    for place, level in enumerate(groups[0].levels):
        n_names[level] = len({group.path[place] for group in groups})
    return n_names


def _read_tree(source: Path, config: ImportConfig) -> Tree:
    suffix = source.suffix.lower()
    if not source.is_file():
        raise InputError(f"{source}: no such file; expected .csv or a table of classes")
    if (suffix == ".parquet") != (config.root is not None):
        raise ConfigurationError(
            f"{source}: `root`, the class to import, goes with a table of classes (.parquet)"
        )
    if config.root is not None:
        return _read_classes(source, config.root, config.depth)
    if suffix != ".csv":
        raise InputError(f'{source}: the suffix is "{suffix}"; expected .csv or .parquet')
    columns = text_column_names(source)
    if "path" in columns and set(columns).isdisjoint(config.levels):
        return _read_paths(source)
    if not config.levels:
        raise InputError(
            f"{source}: no column path; name the columns of levels, finest first, by `levels`"
        )
    return _read_levels(source, config.levels)


def _read_paths(source: Path) -> Tree:
    """Read nodes, whose keys are paths, from a column of paths."""
    tree: dict[tuple[str, ...], Node] = {}

    def parse(_: int, row: Mapping[str, str]) -> None:
        _add_path(tree, _split_path(unescape_formula(row["path"])), row)

    read_rows(source, ["path"], parse)
    return tree


def _split_path(path: str) -> list[str]:
    r"""Return the names in a path.

    >>> _split_path(r"weather > Temperature \> 30")
    ['weather', 'Temperature > 30']
    """
    parts = _BETWEEN_NAMES.split(f" {path} ")
    return [_ESCAPED_SIGN.sub(r"\1", stored_name(part)) for part in parts]


def join_path(names: Iterable[str]) -> str:
    """Return the path that :func:`_split_path` splits into these names."""
    return SEPARATOR.join(_SIGN_IN_NAME.sub(r"\\\g<0>", name) for name in names)


def _read_levels(source: Path, levels: Sequence[str]) -> Tree:
    """Read nodes, whose keys are paths, from a column for each level, finest first."""
    tree: dict[tuple[str, ...], Node] = {}

    def parse(_: int, row: Mapping[str, str]) -> None:
        names = [stored_name(unescape_formula(row[level])) for level in reversed(levels)]
        while len(names) > 1 and not names[-1]:  # the row ends at a coarser level
            names.pop()
        _add_path(tree, names, row)

    read_rows(source, levels, parse)
    return tree


def _add_path(
    tree: dict[tuple[str, ...], Node], names: Sequence[str], row: Mapping[str, str]
) -> None:
    """Add the nodes of a path, coarsest first, to a tree; the last node gets the items and guideline of the row.

    Raises:
        ValueError: A name is empty or below itself.
    """
    path = tuple(names)
    shown = SEPARATOR.join(path)
    if not all(path):
        raise ValueError(f'a level of "{shown}" has no name')
    distinct = [name for name, _ in groupby(path)]
    if len(set(distinct)) < len(distinct):
        raise ValueError(f'a cycle: a name is below itself in "{shown}"')
    for n_above, name in enumerate(path):
        tree.setdefault(path[: n_above + 1], Node(name, path[:n_above] or None))
    items = tuple(row.get("items", "").split())
    guideline = unescape_formula(row.get("guideline", ""))
    if items or guideline:
        tree[path] = replace(tree[path], items=items, guideline=guideline)


def _read_classes(source: Path, root: str, depth: int | None) -> Tree:
    """Read a class and its subclasses, each below the nearest of its superclasses."""
    rows = {row["item"]: row for row in tables.read_table(source, tables.CLASSES).to_pylist()}
    if root not in rows:
        raise InputError(
            f"{source}: no class {root} among its {len(rows):,}; scrape it, or name another `root`"
        )
    labels = {item: row["label"] for item, row in rows.items()}
    subclasses = _subclasses(rows)
    parents = _nearest_parents(root, subclasses, labels, depth)
    n_parents: Counter[str] = Counter()
    for item in parents:
        n_parents.update(subclasses[item] & parents.keys())
    del n_parents[root]
    several = sorted(item for item, count in n_parents.items() if count > 1)
    if several:
        log.info("put below the nearest of several superclasses: %s", preview(several))
    n_same = Counter((parent, labels[item].casefold()) for item, parent in parents.items())
    tree = {}
    for item, parent in parents.items():
        name = labels[item]
        if n_same[parent, name.casefold()] > 1:
            name = f"{name} ({item})"
        tree[item] = Node(name, parent, (item,), rows[item]["description"] or "")
    return tree


def _subclasses(rows: Mapping[str, Mapping[str, Any]]) -> defaultdict[str, set[str]]:
    """Return the direct subclasses of each class; a merged item counts as the item that it was merged into."""
    merged = {}
    for item, row in rows.items():
        for old_item in row["redirected_from"] or ():
            merged[old_item] = item
    subclasses = defaultdict(set)
    for item in rows.keys() - merged.keys():
        for parent in rows[item]["subclass_of"]:
            subclasses[merged.get(parent, parent)].add(item)
    return subclasses


def _nearest_parents(
    root: str,
    subclasses: Mapping[str, set[str]],
    labels: Mapping[str, str],
    depth: int | None,
) -> dict[str, str | None]:
    """Return the superclass of each class that is nearest to the root, by a breadth-first search.

    Args:
        subclasses: Direct subclasses of each class.
        labels: Labels of the classes, which give the order of subclasses.
        depth: Largest distance from the root; None for no limit.
    """

    def by_label(item: str) -> tuple[str, str]:
        return labels[item].casefold(), item

    parents: dict[str, str | None] = {root: None}
    level = [root]
    n_levels = 0
    while level and (depth is None or n_levels < depth):
        next_level: list[str] = []
        for item in level:
            for child in sorted(subclasses[item] - parents.keys(), key=by_label):
                parents[child] = item
                next_level.append(child)
        level = next_level
        n_levels += 1
    return parents


def export_taxonomy(taxonomy: Path, out: Path) -> int:
    """Write a taxonomy as a table of paths, which :func:`import_taxonomy` reads.

    ``hgld taxonomy export`` describes the parameters.

    Returns:
        The number of groups.

    Raises:
        InputError: The taxonomy is invalid.
        ConfigurationError: ``out`` is ``taxonomy``.
    """
    if out.resolve() == taxonomy.resolve():
        raise ConfigurationError(f"{out}: `out` is the file to read; name another one")
    groups = read_taxonomy(taxonomy)
    rows = []
    for path, group in zip(tree_paths(groups), groups, strict=True):
        cells = (join_path(path), " ".join(group.items), unify_line_breaks(group.guideline))
        rows.append([escape_formula(cell) for cell in cells])
    write_csv(out, ("path", "items", "guideline"), rows)
    return len(groups)

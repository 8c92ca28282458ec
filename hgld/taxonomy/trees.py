"""Trees of any depth as the groups of a taxonomy, and back."""

from __future__ import annotations

import logging
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hgld.errors import ConfigurationError, InputError, counted
from hgld.io.columns import preview
from hgld.taxonomy.groups import Group

log = logging.getLogger(__name__)

#: What separates the levels of a path, coarsest first.
SEPARATOR = " > "

#: A node of a tree with the nodes above it.
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

    A leaf that is less deep than others repeats its name at the finer levels. A name that several nodes have at a
    level is followed by the names above it in parentheses, as many as needed.

    Raises:
        InputError: Two nodes below a parent have the same name.
        ConfigurationError: The tree has another number of levels.

    >>> tree = {1: Node("Food", None), 2: Node("Tools", None), 3: Node("Other", 1), 4: Node("Other", 2)}
    >>> [group.path for group in tree_groups(tree, ["shelf", "aisle"])]
    [('Other (Food)', 'Food'), ('Other (Tools)', 'Tools')]
    """
    chains: dict[Hashable, list[Hashable]] = {key: [key] for key in tree}
    for chain in chains.values():
        while (parent := tree[chain[-1]].parent) is not None:
            chain.append(parent)
    n_levels = max(map(len, chains.values()))
    levels = tuple(levels) or tuple(f"level{n}" for n in range(n_levels, 0, -1))
    if len(levels) != n_levels:
        raise ConfigurationError(
            f"the tree has {n_levels} levels, but `levels` are {len(levels)}: {', '.join(levels)}"
        )
    names = _unique_names(tree, chains, n_levels)
    position = {key: number for number, key in enumerate(tree)}
    leaves = tree.keys() - {node.parent for node in tree.values()}
    groups = []
    for leaf in sorted(leaves, key=lambda leaf: [position[key] for key in reversed(chains[leaf])]):
        path = [names[key] for key in chains[leaf]]
        path = [path[0]] * (n_levels - len(path)) + path
        node = tree[leaf]
        groups.append(Group(path[0], path[-1], node.guideline, node.items, between=tuple(path[1:-1]), levels=levels))
    return groups


def _unique_names(tree: Tree, chains: _Chains, n_levels: int) -> dict[Hashable, str]:
    names = {key: tidy_name(node.name) for key, node in tree.items()}
    inner = {node.parent for node in tree.values()}
    for n_above in range(1, n_levels + 1):
        at_level = defaultdict(list)
        for key, chain in chains.items():
            for level in range(len(chain), (len(chain) if key in inner else n_levels) + 1):
                at_level[level, names[key].casefold()].append(key)
        same = [keys for keys in at_level.values() if len(keys) > 1]
        for keys in same:
            name = tree[keys[0]].name
            (parent, count), *_ = Counter(tree[key].parent for key in keys).most_common(1)
            if count > 1:
                place = "at the top" if parent is None else f'below "{tree[parent].name}"'
                raise InputError(f'"{name}" occurs {count} times {place}; give each a name of its own')
        for key in {key for keys in same for key in keys}:
            above = [tree[each].name for each in chains[key][1 : n_above + 1]]
            names[key] = tidy_name(f"{tree[key].name} ({', '.join(above)})" if above else tree[key].name)
    renamed = sorted(name for key, name in names.items() if name != tidy_name(tree[key].name))
    if renamed:
        log.info("%s with the parent, as others have the same: %s", counted(len(renamed), "name"), preview(renamed))
    return names


def tree_paths(groups: Iterable[Group]) -> list[tuple[str, ...]]:
    """Return the names from the top to each group, without those that only repeat the name above.

    A group for what is not known more exactly keeps one repetition, which tells it from the name above it.

    >>> levels = ("leaf", "shelf", "aisle")
    >>> tree_paths([Group("Rye", "Food", "", between=("Bread",), levels=levels),
    ...             Group("Bread", "Food", "", between=("Bread",), levels=levels),
    ...             Group("Milk", "Food", "", between=("Milk",), levels=levels)])
    [('Food', 'Bread', 'Rye'), ('Food', 'Bread', 'Bread'), ('Food', 'Milk')]
    """
    whole = [group.path[::-1] for group in groups]
    inner = {path[:n] for path in whole for n in range(1, len(path)) if len({*path[n - 1 :]}) > 1}
    paths = []
    for path in whole:
        n_names = len(path)
        while path[n_names - 2 : n_names - 1] == path[-1:]:
            n_names -= 1
        paths.append(path[: n_names + (path[:n_names] in inner)])
    return paths


def tidy_name(name: str) -> str:
    """Return a name in NFC, with single spaces for white space."""
    return " ".join(unicodedata.normalize("NFC", name).split())

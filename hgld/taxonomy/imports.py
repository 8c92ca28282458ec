"""Make taxonomies of trees that are published elsewhere: paths, tables of levels, SKOS and classes of Wikidata."""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from hgld import tables
from hgld.errors import ConfigurationError, InputError
from hgld.io.columns import preview, text_column_names
from hgld.io.csv_files import read_rows, unescape_formula
from hgld.io.files import atomic_write
from hgld.taxonomy.groups import NO_LEVELS, read_taxonomy, write_taxonomy
from hgld.taxonomy.skos import SKOS_FORMATS, read_skos
from hgld.taxonomy.trees import SEPARATOR, Node, Tree, tidy_name, tree_groups

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImportConfig:
    """Settings of the import of a tree.

    Args:
        levels: Names of the levels, finest first, separated by commas; in a CSV file without paths those of the
            columns. Default: level3,level2,level1 and so on.
        language: Language of names in SKOS; may be repeated, the first that a concept has is used.
        root: Class of Wikidata that is imported with its subclasses, such as Q23397.
        depth: Number of levels below that class. Default: all.
    """

    levels: tuple[str, ...] = ()
    language: tuple[str, ...] = ("en",)
    root: str | None = None
    depth: int | None = None

    def __post_init__(self) -> None:
        for name in self.levels:
            if not name or name in NO_LEVELS or self.levels.count(name) > 1:
                raise ConfigurationError(
                    f'`levels` has "{name}"; give each level a name of its own, other than {preview(NO_LEVELS, 99)}'
                )
        if self.depth is not None and self.depth < 1:
            raise ConfigurationError(f"`depth` is {self.depth}; expected 1 or more")


@dataclass(frozen=True)
class ImportSummary:
    """Number of names at each level, by its name, finest first."""

    names: Mapping[str, int]


def import_taxonomy(source: Path, out: Path, config: ImportConfig | None = None) -> ImportSummary:
    """Write the leaves of a tree as the groups of a taxonomy, see :func:`hgld.taxonomy.trees.tree_groups`.

    Args:
        source: CSV file with the column ``path``, such as ``Food > Bread > Rye``, and possibly ``items`` and
            ``guideline``; CSV file with a column for each level; SKOS (.ttl, .rdf, .jsonld); or a ``classes`` table.
    """
    config = config or ImportConfig()
    if out.resolve() == source.resolve():
        raise ConfigurationError(f"{out}: `out` is the file to read; name another one")
    tree = _read_tree(source, config)
    try:
        groups = tree_groups(tree, config.levels)
        with atomic_write(out) as draft:
            write_taxonomy(draft, groups)
            read_taxonomy(draft)
    except (InputError, ConfigurationError) as error:
        raise type(error)(f"{source}: {error}") from error
    columns = zip(*(group.path for group in groups), strict=True)
    return ImportSummary({level: len({*names}) for level, names in zip(groups[0].levels, columns, strict=True)})


def _read_tree(source: Path, config: ImportConfig) -> Tree:
    suffix = source.suffix.lower()
    if not source.is_file():
        raise InputError(f"{source}: no such file; expected .csv, {', '.join(SKOS_FORMATS)} or a table of classes")
    if (suffix == ".parquet") != (config.root is not None):
        raise ConfigurationError(f"{source}: `root`, the class to import, goes with a table of classes (.parquet)")
    if config.root is not None:
        return _read_classes(source, config.root, config.depth)
    if suffix in SKOS_FORMATS:
        return read_skos(source, config.language)
    if suffix != ".csv":
        raise InputError(f'{source}: the suffix is "{suffix}"; expected .csv, {", ".join(SKOS_FORMATS)} or .parquet')
    columns = text_column_names(source)
    if "path" in columns and not {*columns} & {*config.levels}:
        return _read_paths(source, ["path"])
    if not config.levels:
        raise InputError(f"{source}: no column path; name the columns of levels, finest first, by `levels`")
    return _read_paths(source, config.levels)


def _read_paths(source: Path, columns: Sequence[str]) -> Tree:
    """Read nodes, whose keys are paths, from a column of these or a column for each level, finest first."""
    tree: dict[tuple[str, ...], Node] = {}

    def parse(_: int, row: Mapping[str, str]) -> None:
        cells = [unescape_formula(row[name]) for name in reversed(columns)]
        names = [
            tidy_name(name) for name in (re.split(r"\s>(?=\s)", f" {cells[0]} ") if columns == ["path"] else cells)
        ]
        while len(names) > 1 and not names[-1] and columns != ["path"]:  # the row ends at a coarser level
            names.pop()
        path, shown = tuple(names), SEPARATOR.join(names)
        if not all(names):
            raise ValueError(f'a level of "{shown}" has no name')
        distinct = [name for name, _ in groupby(names)]
        if len({*distinct}) < len(distinct):
            raise ValueError(f'a cycle: a name is below itself in "{shown}"')
        for n in range(len(path)):
            tree.setdefault(path[: n + 1], Node(path[n], path[:n] or None))
        items, guideline = tuple(row.get("items", "").split()), unescape_formula(row.get("guideline", ""))
        if items or guideline:
            tree[path] = replace(tree[path], items=items, guideline=guideline)

    read_rows(source, columns, parse)
    return tree


def _read_classes(source: Path, root: str, depth: int | None) -> Tree:
    """Read a class and its subclasses, each below the nearest of its superclasses."""
    rows = {row["item"]: row for row in tables.read_table(source, tables.CLASSES).to_pylist()}
    if root not in rows:
        raise InputError(f"{source}: no class {root} among its {len(rows):,}; scrape it, or name another `root`")
    merged = {old: item for item, row in rows.items() for old in row["redirected_from"] or ()}
    below = defaultdict(set)
    for item in rows.keys() - merged.keys():
        for parent in rows[item]["subclass_of"]:
            below[merged.get(parent, parent)].add(item)
    chains: dict[str, tuple[str, ...]] = {root: ()}
    queue = [root]
    for item in queue:
        if depth is None or len(chains[item]) < depth:
            new = sorted(below[item] - chains.keys(), key=lambda child: (rows[child]["label"].casefold(), child))
            chains |= dict.fromkeys(new, (*chains[item], item))
            queue += new
    parents = Counter(child for item in queue for child in below[item] if child in chains and child != root)
    if several := sorted(item for item, count in parents.items() if count > 1):
        log.info("put below the nearest of several superclasses: %s", preview(several))
    nodes = {item: (rows[item]["label"], chains[item][-1] if chains[item] else None) for item in queue}
    same = Counter((parent, label.casefold()) for label, parent in nodes.values())
    return {
        item: Node(
            f"{label} ({item})" if same[parent, label.casefold()] > 1 else label,
            parent,
            (item,),
            rows[item]["description"] or "",
        )
        for item, (label, parent) in nodes.items()
    }

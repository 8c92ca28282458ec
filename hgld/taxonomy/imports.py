"""Make taxonomies of trees that are published elsewhere: paths, tables of levels, SKOS and classes of Wikidata."""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import groupby
from pathlib import Path
from typing import Any

from hgld import tables
from hgld.errors import ConfigurationError, InputError, require_at_least
from hgld.io.columns import preview, read_rows, text_column_names, unescape_formula
from hgld.io.files import atomic_write
from hgld.taxonomy.groups import NO_LEVELS, read_taxonomy, write_taxonomy
from hgld.taxonomy.trees import SEPARATOR, Node, Tree, tidy_name, tree_groups

log = logging.getLogger(__name__)


#: Formats of SKOS files by suffix, as rdflib calls them.
SKOS_FORMATS = {".ttl": "turtle", ".rdf": "xml", ".jsonld": "json-ld"}
_WIKIDATA_ITEM = re.compile("https?://www[.]wikidata[.]org/(?:entity|wiki)/(Q[1-9][0-9]*)")


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
        require_at_least(1, depth=self.depth)


@dataclass(frozen=True)
class ImportSummary:
    """Number of names at each level, by its name, finest first."""

    names: Mapping[str, int]


def import_taxonomy(source: Path, out: Path, config: ImportConfig | None = None) -> ImportSummary:
    """Write the leaves of a tree as the groups of a taxonomy, see :func:`hgld.taxonomy.trees.tree_groups`.

    Args:
        source: Tree: a CSV file with the column path (A > B > C), and possibly items and guideline, or a column for
            each level; SKOS (.ttl, .rdf, .jsonld); or a table of classes from hgld scrape.
        out: Taxonomy to write.
        config: Settings of the import.

    Raises:
        InputError: The source is missing, has another format, or is no tree.
        ConfigurationError: The settings do not fit the source, or SKOS needs a package that is not installed.
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


def read_skos(source: Path, languages: Sequence[str]) -> Tree:
    """Read concepts, in the order of their notations or else of their addresses.

    Args:
        languages: Languages of names, best first; texts without a language come after these.
    """
    try:
        from rdflib import Graph, Literal
        from rdflib.namespace import RDF, SKOS
    except ImportError as error:
        raise ConfigurationError(
            "SKOS needs the package rdflib, which is not installed; type pip install '.[skos]' in a clone of hgld"
        ) from error
    kind = SKOS_FORMATS[source.suffix.lower()]
    try:
        graph: Any = Graph().parse(source, format=kind)
    except Exception as error:  # each format has errors of its own
        raise InputError(f"{source}: cannot be read as {kind}: {' '.join(str(error).split())[:200]}") from error

    def text(concept: Any, predicate: Any) -> str:
        literals = [each for each in graph.objects(concept, predicate) if isinstance(each, Literal)]
        for language in [*map(str.lower, languages), ""]:
            for literal in sorted(literals):
                tag = (literal.language or "").lower()
                if tag == language or tag.startswith(f"{language}-"):
                    return str(literal)
        return ""

    pairs = {*graph.subject_objects(SKOS.broader)}
    pairs |= {(child, parent) for parent, child in graph.subject_objects(SKOS.narrower)}
    broader = defaultdict(list)
    for child, parent in sorted(pairs):
        broader[child].append(parent)
    concepts = {concept for pair in pairs for concept in pair}
    concepts |= {*graph.subjects(RDF.type, SKOS.Concept), *graph.subjects(SKOS.topConceptOf)}
    concepts |= {*graph.objects(None, SKOS.hasTopConcept)}
    if not concepts:
        raise InputError(f"{source}: it has no skos:Concept")
    names = {concept: text(concept, SKOS.prefLabel) for concept in concepts}
    if unnamed := sorted(concept for concept, name in names.items() if not name.strip()):
        raise InputError(
            f"{source}: {len(unnamed):,} of {len(concepts):,} concepts have no skos:prefLabel in the `language` "
            f"{', '.join(languages)}, such as {unnamed[0]}"
        )
    try:
        TopologicalSorter(broader).prepare()
    except CycleError as error:
        cycle = " > ".join(f'"{names[concept]}"' for concept in error.args[1])
        raise InputError(f"{source}: a cycle of skos:broader: {cycle}; a tree has none") from error
    for concept, parents in broader.items():
        if len(parents) > 1:
            above = " and ".join(f'"{names[parent]}"' for parent in parents)
            raise InputError(
                f'{source}: "{names[concept]}" ({concept}) is below {above}; a tree has one parent for each'
            )

    def node(concept: Any) -> Node:
        matches = [graph.objects(concept, match) for match in (SKOS.exactMatch, SKOS.closeMatch, SKOS.narrowMatch)]
        items = {match[1] for each in matches for value in each if (match := _WIKIDATA_ITEM.fullmatch(str(value)))}
        guideline = text(concept, SKOS.scopeNote) or text(concept, SKOS.definition)
        return Node(
            names[concept], next(iter(broader.get(concept, ())), None), tuple(sorted(items, key=_natural)), guideline
        )

    order = {concept: _natural(str(graph.value(concept, SKOS.notation, default=concept))) for concept in concepts}
    return {concept: node(concept) for concept in sorted(concepts, key=lambda concept: (order[concept], concept))}


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts the numbers in texts by value.

    >>> sorted(["c10", "c9", "c"], key=_natural)
    ['c', 'c9', 'c10']
    """
    return [(int(part) if part.isdecimal() else -1, part) for part in re.findall(r"[0-9]+|[^0-9]+", text)]

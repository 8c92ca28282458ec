"""Trees of any depth as the groups of a taxonomy, and back.

Trees that are published elsewhere are read as paths, tables of levels, SKOS or classes of Wikidata. Taxonomies are
written as SKOS, as paths, or as mappings of groups to Wikidata in SSSOM.
"""

from __future__ import annotations

import csv
import json
import logging
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import groupby
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from hgld import tables
from hgld.errors import ConfigurationError, InputError, counted, require_at_least
from hgld.io.columns import escape_formula, preview, read_rows, text_column_names, unescape_formula, unify_line_breaks
from hgld.io.files import atomic_write
from hgld.taxonomy.groups import NO_LEVELS, Group, read_taxonomy, write_taxonomy

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
    """Return a name for each node that no other node has at the same level.

    A leaf stands at its own level and, as it is repeated there, at all finer ones. Nodes of the same name get the
    name of their parent behind it; those that are still the same get that of the parent's parent, too, and so on.

    Args:
        chains: Each node, followed by those above it.
    """
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


def import_taxonomy(source: Path, out: Path, config: ImportConfig | None = None) -> dict[str, int]:
    """Write the leaves of a tree as the groups of a taxonomy, see :func:`hgld.taxonomy.trees.tree_groups`.

    Args:
        source: Tree: a CSV file with the column path (A > B > C), and possibly items and guideline, or a column for
            each level; SKOS (.ttl, .rdf, .jsonld); or a table of classes from hgld scrape.
        out: Taxonomy to write.
        config: Settings of the import.

    Returns:
        The number of names at each level, by its name, finest first.

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
    return {level: len({*names}) for level, names in zip(groups[0].levels, columns, strict=True)}


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
    """Read the concepts of a SKOS file, in the order of their notations or else of their addresses.

    Args:
        languages: Languages of names, best first; texts without a language come after these.
    """
    try:
        from rdflib import RDF, SKOS, Graph
    except ImportError as error:
        raise ConfigurationError(
            "SKOS needs the package rdflib, which is not installed; type pip install '.[skos]' in a clone of hgld"
        ) from error
    kind = SKOS_FORMATS[source.suffix.lower()]
    try:
        graph: Any = Graph().parse(source, format=kind)
    except Exception as error:  # each format has errors of its own
        raise InputError(f"{source}: cannot be read as {kind}: {' '.join(str(error).split())[:200]}") from error
    pairs = {*graph.subject_objects(SKOS.broader)}
    pairs |= {(child, parent) for parent, child in graph.subject_objects(SKOS.narrower)}
    concepts = {concept for pair in pairs for concept in pair}
    concepts |= {*graph.subjects(RDF.type, SKOS.Concept), *graph.subjects(SKOS.topConceptOf)}
    concepts |= {*graph.objects(None, SKOS.hasTopConcept)}
    if not concepts:
        raise InputError(f"{source}: it has no skos:Concept")
    text = partial(_text, graph, languages)
    names = {concept: text(concept, SKOS.prefLabel) for concept in concepts}
    if unnamed := sorted(concept for concept, name in names.items() if not name.strip()):
        raise InputError(
            f"{source}: {len(unnamed):,} of {len(concepts):,} concepts have no skos:prefLabel in the `language` "
            f"{', '.join(languages)}, such as {unnamed[0]}"
        )
    parents = _only_parents(source, pairs, names)
    order = {concept: _natural(str(graph.value(concept, SKOS.notation, default=concept))) for concept in concepts}
    tree = {}
    for concept in sorted(concepts, key=lambda concept: (order[concept], concept)):
        matches = [graph.objects(concept, match) for match in (SKOS.exactMatch, SKOS.closeMatch, SKOS.narrowMatch)]
        items = {match[1] for each in matches for value in each if (match := _WIKIDATA_ITEM.fullmatch(str(value)))}
        guideline = text(concept, SKOS.scopeNote) or text(concept, SKOS.definition)
        tree[concept] = Node(names[concept], parents.get(concept), tuple(sorted(items, key=_natural)), guideline)
    return tree


def _text(graph: Any, languages: Sequence[str], concept: Any, predicate: Any) -> str:
    """Return what a concept has under a predicate in the best language; empty if there is nothing in any of them."""
    from rdflib import Literal

    literals = [each for each in graph.objects(concept, predicate) if isinstance(each, Literal)]
    for language in [*map(str.lower, languages), ""]:
        for literal in sorted(literals):
            tag = (literal.language or "").lower()
            if tag == language or tag.startswith(f"{language}-"):
                return str(literal)
    return ""


def _only_parents(source: Path, pairs: Iterable[tuple[Any, Any]], names: Mapping[Any, str]) -> dict[Any, Any]:
    """Return the concept above each that is below one, or raise if pairs of child and parent do not make a tree."""
    broader = defaultdict(list)
    for child, parent in sorted(pairs):
        broader[child].append(parent)
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
    return {concept: parent for concept, (parent,) in broader.items()}


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts the numbers in texts by value.

    >>> sorted(["c10", "c9", "c"], key=_natural)
    ['c', 'c9', 'c10']
    """
    return [(int(part) if part.isdecimal() else -1, part) for part in re.findall(r"[0-9]+|[^0-9]+", text)]


#: Beginning of the addresses of concepts, if there is no other.
NAMESPACE = "http://example.org/taxonomy/"
_WIKIDATA = "http://www.wikidata.org/entity/"
_SKOS = "http://www.w3.org/2004/02/skos/core#"
_MAPPINGS = ("subject_id", "subject_label", "predicate_id", "object_id", "mapping_justification")


def export_taxonomy(taxonomy: Path, out: Path, kind: str, namespace: str = NAMESPACE) -> int:
    """Write a taxonomy in another form.

    Args:
        taxonomy: CSV file of groups and the levels above them.
        out: File to write.
        kind: Form: skos (Turtle), csv (paths), or sssom (mappings of groups to Wikidata, TSV).
        namespace: Beginning of the addresses of groups in SKOS and SSSOM.

    Returns:
        The number of groups.

    Raises:
        InputError: The taxonomy is invalid or, for SSSOM, no group has an item.
        ConfigurationError: There is no such form, or ``out`` is ``taxonomy``.
    """
    if kind not in EXPORTS:
        raise ConfigurationError(f'`to` is "{kind}"; expected one of {", ".join(EXPORTS)}')
    if out.resolve() == taxonomy.resolve():
        raise ConfigurationError(f"{out}: `out` is the file to read; name another one")
    groups = read_taxonomy(taxonomy)
    if kind == "sssom" and not any(group.items for group in groups):
        raise InputError(f"{taxonomy}: no group has items of Wikidata, which SSSOM would map")
    with atomic_write(out) as draft, draft.open("w", encoding="utf-8", newline="") as stream:
        EXPORTS[kind](stream, groups, namespace)
    return len(groups)


def _concept(path: Sequence[str], levels: Sequence[str]) -> str:
    """Return the address of a name within the namespace.

    >>> _concept(("Food & Drink", "Bread"), ("leaf", "shelf", "aisle"))
    'shelf/Bread'
    """
    return f"{quote(levels[-len(path)], safe='')}/{quote(path[-1], safe='')}"


def _match(group: Group) -> str:
    """Return the relation of a group to its items: several are each a part of it."""
    return "skos:closeMatch" if len(group.items) == 1 else "skos:narrowMatch"


def _write_skos(stream: IO[str], groups: Sequence[Group], namespace: str) -> None:
    stream.write(
        f"@prefix skos: <{_SKOS}> .\n@prefix wikidata: <{_WIKIDATA}> .\n\n<{namespace}> a skos:ConceptScheme .\n"
    )
    group_of = dict(zip(tree_paths(groups), groups, strict=True))
    nodes = dict.fromkeys(path[:n] for path in group_of for n in range(1, len(path) + 1))
    for number, path in enumerate(nodes, 1):
        group = group_of.get(path)
        address = f"{namespace}{_concept(path, groups[0].levels)}"
        above = f"<{namespace}{_concept(path[:-1], groups[0].levels)}>" if len(path) > 1 else ""
        facts = [
            "a skos:Concept",
            f"skos:prefLabel {json.dumps(path[-1], ensure_ascii=False)}",
            f'skos:notation "{number}"',
            f"skos:inScheme <{namespace}>",
            f"skos:broader {above}" if above else f"skos:topConceptOf <{namespace}>",
        ]
        if group and group.guideline:
            facts.append(f"skos:scopeNote {json.dumps(group.guideline, ensure_ascii=False)}")
        if group and group.items:
            facts.append(f"{_match(group)} {', '.join(f'wikidata:{item}' for item in group.items)}")
        stream.write(f"\n<{address}> " + " ;\n    ".join(facts) + " .\n")


def _write_paths(stream: IO[str], groups: Sequence[Group], _: str) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(("path", "items", "guideline"))
    for path, group in zip(tree_paths(groups), groups, strict=True):
        row = (SEPARATOR.join(path), " ".join(group.items), unify_line_breaks(group.guideline))
        writer.writerow(map(escape_formula, row))


def _write_mappings(stream: IO[str], groups: Sequence[Group], namespace: str) -> None:
    prefixes = {
        "taxonomy": namespace,
        "wikidata": _WIKIDATA,
        "skos": _SKOS,
        "semapv": "https://w3id.org/semapv/vocab/",
    }
    stream.write(f"#mapping_set_id: {namespace}mappings\n#license: https://w3id.org/sssom/license/unspecified\n")
    stream.writelines(["#curie_map:\n", *(f"#  {name}: {address}\n" for name, address in prefixes.items())])
    writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
    writer.writerow(_MAPPINGS)
    for path, group in zip(tree_paths(groups), groups, strict=True):
        subject = f"taxonomy:{_concept(path, group.levels)}"
        for item in group.items:
            writer.writerow((subject, group.name, _match(group), f"wikidata:{item}", "semapv:ManualMappingCuration"))


EXPORTS: dict[str, Callable[[IO[str], Sequence[Group], str], None]] = {
    "skos": _write_skos,
    "csv": _write_paths,
    "sssom": _write_mappings,
}

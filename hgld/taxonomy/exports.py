"""Write taxonomies in other forms: SKOS, paths, and mappings of groups to Wikidata in SSSOM."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO
from urllib.parse import quote

from hgld.errors import ConfigurationError, InputError
from hgld.io.columns import escape_formula, unify_line_breaks
from hgld.io.files import atomic_write
from hgld.taxonomy.groups import Group, read_taxonomy
from hgld.taxonomy.trees import SEPARATOR, tree_paths

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

"""Read trees in SKOS, the vocabulary of the W3C for thesauri and classifications."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from hgld.errors import ConfigurationError, InputError
from hgld.taxonomy.trees import Node, Tree

#: Formats of SKOS files by suffix, as rdflib calls them.
SKOS_FORMATS = {".ttl": "turtle", ".rdf": "xml", ".jsonld": "json-ld"}
_WIKIDATA_ITEM = re.compile("https?://www[.]wikidata[.]org/(?:entity|wiki)/(Q[1-9][0-9]*)")


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

"""Settings and counts of results in sentences, for tables in a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hgld.evaluation.metric_units import is_distance
from hgld.evaluation.results import WITHOUT_POSITIVES, RetrievalResult


def setting_notes(results: Sequence[RetrievalResult]) -> list[str]:
    """Describe what the numbers depend on; a sentence that is not true of all results begins with their names."""
    names_by_note: dict[str, list[str]] = {}
    for result in results:
        for note in _notes(result):
            names_by_note.setdefault(note, []).append(result.name)
    return [
        note if len(names) == len(results) else f"{', '.join(names)}: {note}" for note, names in names_by_note.items()
    ]


def _notes(result: RetrievalResult) -> list[str]:
    sentences = (_sentence(name, value, result.metrics) for name, value in result.settings.items())
    notes = [sentence for sentence in sentences if sentence is not None]
    if distances := [name for name in result.metrics if is_distance(name)]:
        notes.append(f"{', '.join(distances)}: in levels of the tree and not in %; lower is better.")
    for name, count in result.counts.items():
        if count and name not in {"queries", "gallery"} and not name.startswith(WITHOUT_POSITIVES):
            notes.append(f"{_capitalised(name)}: {count:,}.")
    return notes


def _sentence(setting: str, value: Any, metrics: Sequence[str]) -> str | None:
    """Return a setting as a sentence; None where no metric depends on it."""
    weighted = any(name.startswith("H-") for name in metrics)
    match setting:
        case "relevance":
            return f"H-AP: relevance {value}." if weighted else None
        case "query_counted":
            return f"Query counted in |Omega^(L)|: {value}." if weighted else None
        case "gain":
            return f"NDCG: gain {value}." if any(name.startswith("NDCG") for name in metrics) else None
        case "level_weights":
            return f"wAP: weights of the levels, coarsest first: {value}." if "wAP" in metrics else None
        case "ties":
            first = "lower" if value == "pessimistic" else "higher"
            return f"Ties: {value}; among items with equal scores, the {first} level ranks first."
        case "precision":
            return f"Score precision: {value}."
        case "normalize":
            return f"Scores: {'cosine similarity' if value else 'inner product, embeddings not normalised'}."
    return f"{_capitalised(setting)}: {value}."


def _capitalised(name: str) -> str:
    words = name.replace("_", " ")
    return words[:1].upper() + words[1:]

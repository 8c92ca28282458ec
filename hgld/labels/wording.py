"""What the words of labels and of the taxonomy say: the head of a label, the terms that stand for a group."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from hgld.labels.identity import normalise_label
from hgld.review.taxonomy import Group

# What follows says something about a thing, not what it is; "its building" is of the thing named before.
_QUALIFIER = re.compile(
    r"(?:^|\s+)(?:that|what|where|whose|its|other than|of (?:any|every|a)"
    r"|for|without|in|to|as|from|by|known|too)\b.*",
    re.IGNORECASE,
)
_SMALL_WORDS = re.compile(r"^(?:(?:also|not|the|an?|whole)\b\s*)+", re.IGNORECASE)
_PLACE = re.compile(r"\s+(?:in|for|on|at|near|with|from|by)\s+.*|\s*[(,].*")
#: "Group of lakes" names lakes.
_COLLECTIONS = frozenset(("chain", "cluster", "collection", "complex", "group", "network", "pair", "part", "series"))


class Term(NamedTuple):
    """A text that the taxonomy gives for a group (the group by its number)."""

    text: str
    group: int
    is_name: bool


def taxonomy_terms(groups: Sequence[Group]) -> list[Term]:
    """The names of the groups, then what their guidelines list; each text once in a group.

    The name of one group is no term of another, though its guideline may list it: of roads there are tunnels.
    """
    terms: dict[tuple[tuple[str, ...], int], Term] = {}
    names: dict[tuple[str, ...], int] = {}
    for number, group in enumerate(groups):
        for name in group.name.split(" / "):
            names[words_of(name)] = number
            terms[words_of(name), number] = Term(name, number, is_name=True)
    for number, group in enumerate(groups):
        for text in guideline_terms(group.guideline):
            words = words_of(text)
            if names.get(words, number) == number:
                terms.setdefault((words, number), Term(text, number, is_name=False))
    return list(terms.values())


def guideline_terms(guideline: str) -> list[str]:
    """The typical members that a guideline lists in its first sentence; the others say what does not belong.

    What stands before a colon is taken if it is a list, too; else it describes the group. Single words before
    "and" share the noun behind it.

    >>> guideline_terms("Any build: toll bridge, arch, rail and foot bridge, viaduct. One for water is an aqueduct.")
    ['toll bridge', 'arch bridge', 'rail bridge', 'foot bridge', 'viaduct']
    """
    found: list[str] = []
    sentence = guideline.partition(". ")[0].rstrip(".")
    before, colon, after = sentence.partition(":")
    for clause in re.split(r"[:;()]|\bwith\b", after if colon and "," not in before else sentence):
        single: list[str] = []
        for item in clause.split(","):
            parts = [_SMALL_WORDS.sub("", part.strip()) for part in re.split(r"\b(?:and|or)\b", item)]
            parts = [text for part in parts if (text := _QUALIFIER.sub("", part))]
            single += [part for part in parts if " " not in part]
            if parts and " " in parts[-1]:
                shared = parts[-1].rpartition(" ")[2] if len(parts) > 1 and " of " not in parts[-1] else ""
                found += [f"{word} {shared}".strip() for word in single]
                single = []
            found += [part for part in parts if " " in part]
        found += single
    return list(dict.fromkeys(found))


@lru_cache(maxsize=100_000)
def words_of(text: str) -> tuple[str, ...]:
    """The words of a text in the form in which they are compared: normalised, and (in English) in the singular.

    >>> words_of("Rock formations"), words_of("churches")
    (('rock', 'formation'), ('church',))
    """
    return tuple(_singular(word) for word in re.findall(r"[\w'’-]+", normalise_label(text)))


def head_words(label: str) -> tuple[str, ...]:
    """The words that say what a label names, its head noun last.

    >>> head_words("Rock formations in the United States"), head_words("group of lakes"), head_words("arch bridge")
    (('rock', 'formation'), ('lake',), ('arch', 'bridge'))
    """
    head, _, members = _PLACE.sub("", normalise_label(label)).partition(" of ")
    words = words_of(head)
    return words_of(members) if members and words and words[-1] in _COLLECTIONS else words


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word

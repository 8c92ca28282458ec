"""Words of labels and of the taxonomy: the head noun of a label, and the terms that denote a group."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from hgld.taxonomy.groups import Group
from hgld.taxonomy.label_identity import normalise_label

_PLACE = re.compile(r"\s+(?:in|for|on|at|near|with|from|by)\s+.*|\s*[(,].*")
#: Words such as "group" in "group of lakes", where the members name the landmark.
_COLLECTIONS = frozenset(("chain", "cluster", "collection", "complex", "group", "network", "pair", "part", "series"))


class Term(NamedTuple):
    """A text that denotes a group: its name or part of its guideline. ``group`` is the index of the group."""

    text: str
    group: int
    is_name: bool


def taxonomy_terms(groups: Sequence[Group]) -> list[Term]:
    """Return the names of the groups, then the terms listed in their guidelines, each once per group.

    The name of a group is not a term of another group, even if that group's guideline lists it.
    """
    terms: dict[tuple[tuple[str, ...], int], Term] = {}
    groups_by_name: dict[tuple[str, ...], int] = {}
    for number, group in enumerate(groups):
        for name in group.name.split(" / "):
            groups_by_name[normalised_words(name)] = number
            terms[normalised_words(name), number] = Term(name, number, is_name=True)
    for number, group in enumerate(groups):
        for text in guideline_terms(group.guideline):
            words = normalised_words(text)
            if groups_by_name.get(words, number) == number:
                terms.setdefault((words, number), Term(text, number, is_name=False))
    return list(terms.values())


def guideline_terms(guideline: str) -> list[str]:
    """Return the typical members listed in the first sentence of a guideline, after the colon if there is one.

    Later sentences describe what does not belong to the group.

    >>> guideline_terms("Watercraft, also ashore: ship, ferry, tug. A port is a harbor.")
    ['ship', 'ferry', 'tug']
    """
    before, colon, after = guideline.partition(". ")[0].rstrip(".").partition(":")
    return [term for text in (after if colon else before).split(",") if (term := text.strip())]


@lru_cache(maxsize=100_000)
def normalised_words(text: str) -> tuple[str, ...]:
    """Return the words of a text in the form used for comparison: normalised, English plurals as singulars.

    >>> normalised_words("Rock formations"), normalised_words("churches")
    (('rock', 'formation'), ('church',))
    """
    return tuple(_singular(word) for word in re.findall(r"[\w'’-]+", normalise_label(text)))


def head_words(label: str) -> tuple[str, ...]:
    """Return the noun phrase that says what a label denotes, its head noun last.

    >>> head_words("Rock formations in the United States"), head_words("group of lakes"), head_words("arch bridge")
    (('rock', 'formation'), ('lake',), ('arch', 'bridge'))
    """
    head, _, members = _PLACE.sub("", normalise_label(label)).partition(" of ")
    words = normalised_words(head)
    return normalised_words(members) if members and words and words[-1] in _COLLECTIONS else words


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word

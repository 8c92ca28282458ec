"""What the words of labels and of the taxonomy say: the head of a label, the terms that stand for a group."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from hgld.taxonomy.groups import Group
from hgld.taxonomy.label_identity import normalise_label

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

    The name of one group is no term of another, though its guideline may list it.
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
    """The typical members that a guideline lists in its first sentence, after the colon if there is one.

    The other sentences say what does not belong.

    >>> guideline_terms("Watercraft, also ashore: ship, ferry, tug. A port is a harbor.")
    ['ship', 'ferry', 'tug']
    """
    before, colon, after = guideline.partition(". ")[0].rstrip(".").partition(":")
    return [term for text in (after if colon else before).split(",") if (term := text.strip())]


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

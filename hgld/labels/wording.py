"""Words of labels: normalised words, the head noun phrase, its endings, and the terms listed in a guideline."""

from __future__ import annotations

import re
from functools import lru_cache

from hgld.taxonomy.label_identity import normalise_label

_PLACE = re.compile(r"\s+(?:in|for|on|at|near|with|from|by)\s+.*|\s*[(,].*")
#: Words such as "group" in "group of lakes", where the members name the landmark.
_COLLECTIONS = frozenset(("chain", "cluster", "collection", "complex", "group", "network", "pair", "part", "series"))
#: British and older spellings of words in names of landmarks, and those that they are compared as.
_SPELLINGS = {
    "archaeological": "archeological",
    "archaeology": "archeology",
    "centre": "center",
    "harbour": "harbor",
    "mediaeval": "medieval",
    "neighbourhood": "neighborhood",
    "sepulchre": "sepulcher",
    "theatre": "theater",
}


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
    """Return the words of a text in the form used for comparison: normalised, plurals as singulars, in one spelling.

    >>> normalised_words("Rock formations"), normalised_words("Open-air theatres")
    (('rock', 'formation'), ('open', 'air', 'theater'))
    """
    singulars = (_singular(word) for word in re.findall(r"[\w'’]+", normalise_label(text)))
    return tuple(_SPELLINGS.get(word, word) for word in singulars)


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

"""Split labels into normalised words, find their head nouns, and list the terms of a guideline."""

from __future__ import annotations

import re
from functools import lru_cache

from hgld.labels.plurals import singular
from hgld.taxonomy.label_identity import normalise_label

_PLACE = re.compile(r"\s+(?:in|for|on|at|near|with|from|by)\s+.*|\s*[(,].*")
#: Words such as "group" in "group of lakes", where the members name the landmark.
_COLLECTIONS = frozenset(
    ("chain", "cluster", "collection", "complex", "group", "network", "pair", "part", "series")
)
#: American spelling of words that names of landmarks have in a British or an older spelling.
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
#: Replaces typographic hyphens, dashes and quotation marks by ASCII characters.
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("‐‑‒–—―−", "-"),
        **dict.fromkeys("‘’‛ʼ′", "'"),
        **dict.fromkeys("“”„‟«»″", '"'),
    }
)
#: Punctuation between words, without signs that are part of a word, as in C++, C# and -5.
_PUNCTUATION = '\\s!"&(),./:;?@\\[\\\\\\]`{}¡¦§¨¯¶·¸¿\u055a-\u055f\u0589\u05be\u060c\u061b\u061f\u066a-\u066d\u06d4'
_PUNCTUATION += (
    "\u0964\u0965\u1361-\u1368\u2000-\u206f\u3000-\u3003\u3008-\u3011\u3014-\u301f\u30fb"
)
_WORD = re.compile(f"[^{_PUNCTUATION}]+")
#: Hyphens and underscores between two words, unless both are numbers.
_BETWEEN_WORDS = re.compile(
    f"(?<=[^{_PUNCTUATION}_-])(?:(?<![0-9])[-_]+|[-_]+(?![0-9]))(?=[^{_PUNCTUATION}_-])"
)
#: A hyphen without a number behind it, before a word or alone.
_LEADING_HYPHENS = re.compile("^[-_]+(?![0-9])")


def guideline_terms(guideline: str) -> list[str]:
    """Return the typical members that the first sentence of a guideline lists.

    The list follows the colon; without a colon, the whole sentence is the list. Later sentences
    describe labels that do not belong to the group.

    >>> guideline_terms("Watercraft, also ashore: ship, ferry, tug. A port is a harbor.")
    ['ship', 'ferry', 'tug']
    """
    first_sentence = guideline.partition(". ")[0].rstrip(".")
    before, colon, after = first_sentence.partition(":")
    listed = after if colon else before
    terms = [text.strip() for text in listed.split(",")]
    return [term for term in terms if term]


def spelled_words(label: str) -> tuple[str, ...]:
    """Return the words of a label in a form that is equal for two labels that differ only in spelling.

    Case, white space, hyphens between words, Unicode forms, invisible characters and English
    plurals are spelling. Accents, tones, vowel signs and all other signs are not.

    >>> spelled_words("Open\u2011Air Theatres") == spelled_words("open air theatre")
    True
    >>> spelled_words("C++"), spelled_words("año"), spelled_words("-5")
    (('c++',), ('año',), ('-5',))
    """
    return tuple(singular(word) for word in plain_label(label, hyphens_as_spaces=True).split())


def plain_label(label: str, *, hyphens_as_spaces: bool = False) -> str:
    """Return the normalised label with ASCII punctuation and without spaces around slashes.

    >>> plain_label("Castle / Fort"), plain_label("open\u2011air", hyphens_as_spaces=True)
    ('castle/fort', 'open air')
    """
    plain = re.sub(r" ?/ ?", "/", normalise_label(label.translate(_SIGNS)))
    if hyphens_as_spaces:
        return _BETWEEN_WORDS.sub(" ", plain)
    return plain


@lru_cache(maxsize=100_000)
def normalised_words(text: str) -> tuple[str, ...]:
    """Return the words of a text in the singular, without punctuation, in American spelling.

    >>> normalised_words("Rock formations"), normalised_words("Open-air theatres"), normalised_words("C++ (language)")
    (('rock', 'formation'), ('open', 'air', 'theater'), ('c++', 'language'))
    """
    words = []
    for word in _WORD.findall(plain_label(text, hyphens_as_spaces=True)):
        noun = singular(_LEADING_HYPHENS.sub("", word))
        if noun:
            words.append(_SPELLINGS.get(noun, noun))
    return tuple(words)


def head_words(label: str) -> tuple[str, ...]:
    """Return the noun phrase that says what a label denotes, its head noun last.

    >>> head_words("Rock formations in the United States"), head_words("group of lakes"), head_words("arch bridge")
    (('rock', 'formation'), ('lake',), ('arch', 'bridge'))
    """
    without_place = _PLACE.sub("", normalise_label(label))
    head, _, members = without_place.partition(" of ")
    words = normalised_words(head)
    if members and words and words[-1] in _COLLECTIONS:
        return normalised_words(members)
    return words

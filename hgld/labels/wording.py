"""Words of labels: words as they are compared, the head noun phrase, its endings, and the terms of a guideline."""

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
#: Typographic forms of signs, and the signs that they are compared as.
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
#: Hyphens and underscores between words, of which one at least is no number.
_BETWEEN_WORDS = re.compile(
    f"(?<=[^{_PUNCTUATION}_-])(?:(?<![0-9])[-_]+|[-_]+(?![0-9]))(?=[^{_PUNCTUATION}_-])"
)
#: A hyphen without a number behind it, before a word or alone.
_LEADING_HYPHENS = re.compile("^[-_]+(?![0-9])")


def guideline_terms(guideline: str) -> list[str]:
    """Return the typical members listed in the first sentence of a guideline, after the colon if there is one.

    Later sentences describe what does not belong to the group.

    >>> guideline_terms("Watercraft, also ashore: ship, ferry, tug. A port is a harbor.")
    ['ship', 'ferry', 'tug']
    """
    before, colon, after = guideline.partition(". ")[0].rstrip(".").partition(":")
    return [term for text in (after if colon else before).split(",") if (term := text.strip())]


def spelled_words(label: str) -> tuple[str, ...]:
    """Return the words of a label, equal for two labels that differ in spelling alone.

    Case, white space, hyphens between words, Unicode forms, invisible characters and English plurals are spelling.
    Accents, tones, vowel signs and all other signs are not.

    >>> spelled_words("Open\u2011Air Theatres") == spelled_words("open air theatre")
    True
    >>> spelled_words("C++"), spelled_words("año"), spelled_words("-5")
    (('c++',), ('año',), ('-5',))
    """
    return tuple(singular(word) for word in plain_label(label, hyphens_as_spaces=True).split())


def plain_label(label: str, *, hyphens_as_spaces: bool = False) -> str:
    """Return the normalised label with plain hyphens and quotation marks, and without spaces around slashes.

    >>> plain_label("Castle / Fort"), plain_label("open\u2011air", hyphens_as_spaces=True)
    ('castle/fort', 'open air')
    """
    plain = re.sub(r" ?/ ?", "/", normalise_label(label.translate(_SIGNS)))
    return _BETWEEN_WORDS.sub(" ", plain) if hyphens_as_spaces else plain


@lru_cache(maxsize=100_000)
def normalised_words(text: str) -> tuple[str, ...]:
    """Return the words of a text as :func:`spelled_words` does, without punctuation and in one of several spellings.

    >>> normalised_words("Rock formations"), normalised_words("Open-air theatres"), normalised_words("C++ (language)")
    (('rock', 'formation'), ('open', 'air', 'theater'), ('c++', 'language'))
    """
    words = [
        singular(_LEADING_HYPHENS.sub("", word))
        for word in _WORD.findall(plain_label(text, hyphens_as_spaces=True))
    ]
    return tuple(_SPELLINGS.get(word, word) for word in words if word)


def head_words(label: str) -> tuple[str, ...]:
    """Return the noun phrase that says what a label denotes, its head noun last.

    >>> head_words("Rock formations in the United States"), head_words("group of lakes"), head_words("arch bridge")
    (('rock', 'formation'), ('lake',), ('arch', 'bridge'))
    """
    head, _, members = _PLACE.sub("", normalise_label(label)).partition(" of ")
    words = normalised_words(head)
    return normalised_words(members) if members and words and words[-1] in _COLLECTIONS else words

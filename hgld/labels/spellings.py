"""Spellings of labels: which are one label, and which might be.

Labels that differ in spelling alone are one label: in case, white space, hyphens, Unicode forms, invisible characters
and English plurals. Labels that differ by more, such as accents, punctuation or one typing mistake, may be different
words: año and ano, sad and sąd. They are proposed, and people decide.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from hgld.errors import ConfigurationError
from hgld.labels.plurals import likely_singular
from hgld.labels.wording import normalised_words, plain_label, spelled_words
from hgld.names import stored_name
from hgld.taxonomy.label_identity import normalise_label

_WRITTEN_OUT = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa", "æ": "ae", "œ": "oe"}
)
#: Letters of the Latin, Greek and Cyrillic scripts with accents. Marks of other scripts are letters of their own.
_ACCENTED = re.compile("([A-Za-z\u00c0-\u024f\u0370-\u03ff\u0400-\u04ff])[\u0300-\u036f]+")
#: Fewest letters of a word with a typing mistake.
_LONG = 6
#: Most characters of labels that are compared letter by letter, which takes time by the square of their number.
_LONGEST = 100


class Variant(NamedTuple):
    """A spelling in the list and another one, which is its label or may be.

    Args:
        variant: Spelling in the list.
        label: Label of the spelling if the two are merged.
        why: How the two differ.
        merged: Whether the spelling became the label.
    """

    variant: str
    label: str
    why: str
    merged: bool


class DecidedSpellings(NamedTuple):
    """Decisions of people on spellings.

    Args:
        apart: Pairs of spellings that are different labels.
        merged: Spellings that become a label.
    """

    apart: Sequence[tuple[str, str]] = ()
    merged: Sequence[Variant] = ()


def unify_spellings(
    spellings: Sequence[str],
    counts: Sequence[int],
    words: frozenset[str] = frozenset(),
    decided: DecidedSpellings | None = None,
) -> tuple[list[str], list[Variant]]:
    """Give all spellings of a label one of them: the most frequent, and of equally frequent ones the first.

    Args:
        spellings: Label of each row.
        counts: Number of things that each row stands for.
        words: Words that are not typing mistakes, in lower case.
        decided: Spellings that people merged or keep apart. Default: none.

    Returns:
        The label of each row, and variants: the spellings that became another label, then proposals.

    Raises:
        ConfigurationError: Decisions contradict one another, or keep labels apart that have the same identity.

    >>> labels, variants = unify_spellings(["Café", "café ", "cafe", "oat cookies", "Oat-cookie"], [1, 2, 1, 2, 1])
    >>> labels
    ['café', 'café', 'cafe', 'oat cookies', 'oat cookies']
    >>> variants[-1]
    Variant(variant='cafe', label='café', why='accents', merged=False)
    """
    if decided is None:
        decided = DecidedSpellings()
    frequency: Counter[str] = Counter()
    for text, count in zip(spellings, counts, strict=True):
        frequency[text] += count
    apart = {frozenset(map(normalise_label, pair)) for pair in decided.apart}
    label_of = _merge_spellings(frequency, apart)
    _merge_decided(label_of, decided.merged)
    _check_apart(label_of, decided.apart)

    labels = {text: label_of[normalise_label(text)] for text in frequency}
    decided_reasons = {normalise_label(row.variant): row.why for row in decided.merged}
    variants = []
    label_counts: Counter[str] = Counter()
    for text, label in labels.items():
        label_counts[label] += frequency[text]
        if text != label:
            why = (
                _difference(text, label) or decided_reasons.get(normalise_label(text)) or "decided"
            )
            variants.append(Variant(text, label, why, merged=True))
    for proposal in _proposals(label_counts, words):
        if (
            frozenset((normalise_label(proposal.variant), normalise_label(proposal.label)))
            not in apart
        ):
            variants.append(proposal)
    return [labels[text] for text in spellings], variants


def _merge_spellings(frequency: Mapping[str, int], apart: set[frozenset[str]]) -> dict[str, str]:
    """Return the label of each spelling by its normalised form, where labels that differ in spelling are one."""
    label_of: dict[str, str] = {}
    labels_of_words: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    members: defaultdict[str, list[str]] = defaultdict(list)
    for text in sorted(frequency, key=lambda text: -frequency[text]):
        identity = normalise_label(text)
        if identity in label_of:
            continue
        labels = labels_of_words[spelled_words(text)]
        for label in labels:
            if not any(frozenset((identity, member)) in apart for member in members[label]):
                break
        else:
            label = stored_name(text)
            labels.append(label)
        label_of[identity] = label
        members[label].append(identity)
    return label_of


def _merge_decided(label_of: dict[str, str], merged: Iterable[Variant]) -> None:
    """Change labels as people decided; spellings that are not in the list are ignored."""
    target_of: dict[str, str] = {}
    for row in merged:
        label = label_of.get(normalise_label(row.variant))
        target = label_of.get(normalise_label(row.label), stored_name(row.label))
        if label is not None and label != target and target_of.setdefault(label, target) != target:
            raise ConfigurationError(
                f'"{label}" is merged with "{target_of[label]}" and with "{target}"; choose one'
            )
    for identity, label in label_of.items():
        path = [label]
        while path[-1] in target_of:
            path.append(target_of[path[-1]])
            if path[-1] in path[:-1]:
                raise ConfigurationError(
                    f"labels are merged in a circle: {', '.join(path)}; choose one of them"
                )
        label_of[identity] = path[-1]


def _check_apart(label_of: Mapping[str, str], apart: Iterable[tuple[str, str]]) -> None:
    """Raise unless spellings that people keep apart are different labels."""
    for first, second in apart:
        identities = normalise_label(first), normalise_label(second)
        if identities[0] == identities[1]:
            raise ConfigurationError(
                f'"{first}" and "{second}" cannot be kept apart: labels that differ in case, white space or Unicode '
                "form alone have the same identity; give one of them another name in the list"
            )
        label = label_of.get(identities[0])
        if label is not None and label == label_of.get(identities[1]):
            raise ConfigurationError(
                f'"{first}" and "{second}" are kept apart, but both are merged with "{label}"'
            )


def _difference(text: str, label: str) -> str:
    """Say how a spelling differs from its label; empty if they differ by more than can be said."""
    if " ".join(text.split()).casefold() == " ".join(label.split()).casefold():
        return "case or spaces"
    if plain_label(text) == plain_label(label):
        return "Unicode form or invisible characters"
    if spelled_words(text) == spelled_words(label):
        words = plain_label(text, hyphens_as_spaces=True)
        return "hyphens" if words == plain_label(label, hyphens_as_spaces=True) else "plural"
    if normalised_words(text) == normalised_words(label):
        return "punctuation or another spelling"
    if [*map(likely_singular, normalised_words(text))] == [
        *map(likely_singular, normalised_words(label))
    ]:
        return "perhaps a plural"
    if {*map(spelled_words, _without_accents(text))} & {
        *map(spelled_words, _without_accents(label))
    }:
        return "accents"
    if {*_loose_forms(text)} & {*_loose_forms(label)}:
        return "accents, punctuation or plural"
    return ""


def _without_accents(text: str) -> tuple[str, str]:
    """Return a text with its accents written out as letters, and without them."""
    normalised = normalise_label(text)
    forms = []
    for form in (normalised.translate(_WRITTEN_OUT), normalised):
        decomposed = unicodedata.normalize("NFD", form)
        forms.append(unicodedata.normalize("NFC", _ACCENTED.sub(r"\1", decomposed)))
    return forms[0], forms[1]


def _loose_forms(label: str) -> list[tuple[str, ...]]:
    """Return the words of a label without accents, punctuation and plurals of any language.

    >>> _loose_forms("Käse-Messer"), _loose_forms("Glasses")
    ([('kaese', 'messer'), ('kase', 'messer')], [('glass',)])
    """
    forms = []
    for text in _without_accents(label):
        words = tuple(map(likely_singular, normalised_words(text)))
        if words and words not in forms:
            forms.append(words)
    return forms


def _proposals(label_counts: Mapping[str, int], words: frozenset[str]) -> Iterator[Variant]:
    """Yield pairs of labels that may be one label, the less frequent one first.

    Args:
        label_counts: Number of things with each label.
        words: Words that are not typing mistakes.
    """
    label_of_form: dict[tuple[str, ...], str] = {}
    root_of: dict[str, str] = {}
    for label in sorted(label_counts, key=lambda label: -label_counts[label]):
        forms = _loose_forms(label)
        similar = next((label_of_form[form] for form in forms if form in label_of_form), None)
        root_of[label] = label if similar is None else root_of[similar]
        for form in forms:
            label_of_form.setdefault(form, label)
        if similar is not None:
            yield Variant(label, similar, _difference(label, similar), merged=False)
    yield from _typing_mistakes(label_counts, root_of, words)


def _typing_mistakes(
    label_counts: Mapping[str, int], root_of: Mapping[str, str], words: frozenset[str]
) -> Iterator[Variant]:
    """Yield labels that differ from exactly one other label by a typing mistake, with that label.

    Args:
        label_counts: Number of things with each label.
        root_of: Label that each label is proposed to be.
        words: Words that are not typing mistakes.
    """
    form_of = {}
    for label in label_counts:
        forms = _loose_forms(label)
        if forms and len(label) <= _LONGEST:
            form_of[label] = forms[0]
    used = Counter(word for form in set(form_of.values()) for word in form)
    labels_of_gap: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for label, form in form_of.items():
        for gap in _gaps(form):
            labels_of_gap[gap].append(label)
    proposed = set[frozenset[str]]()
    for label, form in form_of.items():
        similar_roots: dict[str, str] = {}
        for gap in _gaps(form):
            for other in labels_of_gap[gap]:
                if root_of[other] != root_of[label] and _is_mistake(
                    form, form_of[other], used, words
                ):
                    similar_roots[root_of[other]] = other
        if len(similar_roots) != 1:
            continue
        other = next(iter(similar_roots.values()))
        pair = frozenset((label, other))
        if pair not in proposed:
            proposed.add(pair)
            if _is_mistaken(label, other, form_of, words, label_counts):
                yield Variant(label, other, "typing mistake", merged=False)
            else:
                yield Variant(other, label, "typing mistake", merged=False)


def _is_mistaken(
    label: str,
    other: str,
    form_of: Mapping[str, tuple[str, ...]],
    words: frozenset[str],
    label_counts: Mapping[str, int],
) -> bool:
    """Return whether the first of two labels has the typing mistake: the unknown one, or the less frequent one."""
    is_known = words.issuperset(form_of[label])
    is_other_known = words.issuperset(form_of[other])
    if is_known != is_other_known:
        return is_other_known
    return label_counts[label] < label_counts[other]


def _gaps(form: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Return the words of a label with one letter of a long one left out, which labels one mistake apart share."""
    gaps = set()
    for number, word in enumerate(form):
        if len(word) >= _LONG - 1:
            gaps.add(form)
            for letter in range(len(word)):
                gaps.add((*form[:number], word[:letter] + word[letter + 1 :], *form[number + 1 :]))
    return gaps


def _is_mistake(
    form: tuple[str, ...], other: tuple[str, ...], used: Mapping[str, int], words: frozenset[str]
) -> bool:
    """Return whether a label is another one with one mistyped word, which no other label has and no list knows."""
    if len(form) != len(other):
        return False
    pairs = [(word, right) for word, right in zip(form, other, strict=True) if word != right]
    if len(pairs) != 1:
        return False
    word, right = pairs[0]
    has_letters_only = (word + right).replace("'", "").isalpha()
    if max(len(word), len(right)) < _LONG or not has_letters_only or word in words:
        return False
    is_known = right in words or used[right] > 1 or min(len(word), len(right)) >= _LONG
    return used[word] == 1 and is_known and _distance_is_one(word, right)


def _distance_is_one(word: str, other: str) -> bool:
    """Return whether a letter after the first was added, left out or exchanged with the next one.

    Words that differ by another letter are seldom mistakes: tannery and cannery, tower and power.
    """
    shorter = min(len(word), len(other))
    start = 0
    while start < shorter and word[start] == other[start]:
        start += 1
    first, second = word[start:], other[start:]
    exchanged = first[:2] == second[1::-1] and first[2:] == second[2:]
    return start > 0 and (first[1:] == second or first == second[1:] or exchanged)

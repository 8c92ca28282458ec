"""Merge spelling variants of labels, and propose labels that may be variants.

Labels that differ only in spelling are merged: in case, white space, hyphens, Unicode forms,
invisible characters and English plurals. Labels that differ by more, such as accents, punctuation
or one typing mistake, may be different words: año and ano, sad and sąd. Such pairs are proposed,
and people decide.
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
#: Letters of the Latin, Greek and Cyrillic scripts with accents. Marks of other scripts are letters
#: of their own.
_ACCENTED = re.compile("([A-Za-z\u00c0-\u024f\u0370-\u03ff\u0400-\u04ff])[\u0300-\u036f]+")
#: Smallest number of letters of a word with a typing mistake.
_LONG = 6
#: Largest number of characters of labels that are compared letter by letter, in quadratic time.
_LONGEST = 100


class Variant(NamedTuple):
    """A spelling, and the label that it was merged with or may be merged with.

    Args:
        variant: Spelling in the list.
        label: Label that replaces the spelling if the two are merged.
        why: How the two differ.
        merged: Whether the spelling was replaced by the label.
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
    """Replace all spellings of a label by its most frequent spelling, on ties by the first.

    Args:
        spellings: Label of each row.
        counts: Number of things that each row stands for.
        words: Words that are not typing mistakes, in lower case.
        decided: Spellings that people merged or keep apart. Default: no decisions.

    Returns:
        The label of each row, and the variants: replaced spellings, then proposals.

    Raises:
        ConfigurationError: Decisions contradict one another, or keep labels apart that have the
            same identity.

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
        if text == label:
            continue
        why = _describe_difference(text, label)
        if not why:
            why = decided_reasons.get(normalise_label(text)) or "decided"
        variants.append(Variant(text, label, why, merged=True))
    for proposal in _propose_merges(label_counts, words):
        pair = frozenset((normalise_label(proposal.variant), normalise_label(proposal.label)))
        if pair not in apart:
            variants.append(proposal)
    return [labels[text] for text in spellings], variants


def _merge_spellings(frequency: Mapping[str, int], apart: set[frozenset[str]]) -> dict[str, str]:
    """Merge labels that differ only in spelling, and return the label of each normalised spelling.

    Args:
        frequency: Number of things with each spelling.
        apart: Pairs of normalised labels that people keep apart.
    """
    label_of: dict[str, str] = {}
    labels_of_words: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    members: defaultdict[str, list[str]] = defaultdict(list)
    for text in sorted(frequency, key=lambda text: -frequency[text]):
        identity = normalise_label(text)
        if identity in label_of:
            continue
        label = None
        same_words = labels_of_words[spelled_words(text)]
        for candidate in same_words:
            pairs = {frozenset((identity, member)) for member in members[candidate]}
            if apart.isdisjoint(pairs):
                label = candidate
                break
        if label is None:
            label = stored_name(text)
            same_words.append(label)
        label_of[identity] = label
        members[label].append(identity)
    return label_of


def _merge_decided(label_of: dict[str, str], merged: Iterable[Variant]) -> None:
    """Apply the merges that people decided; spellings that are not in ``label_of`` are ignored."""
    target_of: dict[str, str] = {}
    for row in merged:
        label = label_of.get(normalise_label(row.variant))
        target = label_of.get(normalise_label(row.label), stored_name(row.label))
        if label is None or label == target:
            continue
        if target_of.setdefault(label, target) != target:
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
    """Raise a ConfigurationError if two spellings that people keep apart have the same label."""
    for first, second in apart:
        first_identity = normalise_label(first)
        second_identity = normalise_label(second)
        if first_identity == second_identity:
            raise ConfigurationError(
                f'"{first}" and "{second}" cannot be kept apart: labels that differ in case, white space or Unicode '
                "form alone have the same identity; give one of them another name in the list"
            )
        label = label_of.get(first_identity)
        if label is not None and label == label_of.get(second_identity):
            raise ConfigurationError(
                f'"{first}" and "{second}" are kept apart, but both are merged with "{label}"'
            )


def _describe_difference(text: str, label: str) -> str:
    """Return in words how a spelling differs from its label; "" if no kind of difference applies."""
    if " ".join(text.split()).casefold() == " ".join(label.split()).casefold():
        return "case or spaces"
    if plain_label(text) == plain_label(label):
        return "Unicode form or invisible characters"
    if spelled_words(text) == spelled_words(label):
        without_hyphens = plain_label(text, hyphens_as_spaces=True)
        if without_hyphens == plain_label(label, hyphens_as_spaces=True):
            return "hyphens"
        return "plural"
    text_words = normalised_words(text)
    label_words = normalised_words(label)
    if text_words == label_words:
        return "punctuation or another spelling"
    if list(map(likely_singular, text_words)) == list(map(likely_singular, label_words)):
        return "perhaps a plural"
    text_forms = {spelled_words(form) for form in _without_accents(text)}
    label_forms = {spelled_words(form) for form in _without_accents(label)}
    if text_forms & label_forms:
        return "accents"
    if set(_loose_forms(text)) & set(_loose_forms(label)):
        return "accents, punctuation or plural"
    return ""


def _without_accents(text: str) -> tuple[str, str]:
    """Return a text with its accents written out as letters (ä as ae), and without accents (ä as a)."""
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


def _propose_merges(label_counts: Mapping[str, int], words: frozenset[str]) -> Iterator[Variant]:
    """Iterate over pairs of labels that may be variants, the less frequent label as the variant.

    Args:
        label_counts: Number of things with each label.
        words: Words that are not typing mistakes.
    """
    label_of_form: dict[tuple[str, ...], str] = {}
    root_of: dict[str, str] = {}
    for label in sorted(label_counts, key=lambda label: -label_counts[label]):
        forms = _loose_forms(label)
        similar_labels = [label_of_form[form] for form in forms if form in label_of_form]
        for form in forms:
            label_of_form.setdefault(form, label)
        root_of[label] = label
        if similar_labels:
            similar = similar_labels[0]
            root_of[label] = root_of[similar]
            yield Variant(label, similar, _describe_difference(label, similar), merged=False)
    yield from _typing_mistakes(label_counts, root_of, words)


def _typing_mistakes(
    label_counts: Mapping[str, int], root_of: Mapping[str, str], words: frozenset[str]
) -> Iterator[Variant]:
    """Iterate over pairs of labels that differ by a typing mistake.

    Labels that may be a mistyped form of several labels are left out.

    Args:
        label_counts: Number of things with each label.
        root_of: Most frequent label of each set of labels that were proposed as variants before.
        words: Words that are not typing mistakes.
    """
    form_of = {}
    for label in label_counts:
        forms = _loose_forms(label)
        if forms and len(label) <= _LONGEST:
            form_of[label] = forms[0]
    n_labels_with_word: Counter[str] = Counter()
    for form in set(form_of.values()):
        n_labels_with_word.update(form)
    labels_of_gap: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for label, form in form_of.items():
        for gap in _gaps(form):
            labels_of_gap[gap].append(label)
    proposed = set[frozenset[str]]()
    for label, form in form_of.items():
        similar_roots: dict[str, str] = {}
        for gap in _gaps(form):
            for other in labels_of_gap[gap]:
                if root_of[other] == root_of[label]:
                    continue
                if _is_mistake(form, form_of[other], n_labels_with_word, words):
                    similar_roots[root_of[other]] = other
        if len(similar_roots) != 1:
            continue
        (other,) = similar_roots.values()
        pair = frozenset((label, other))
        if pair in proposed:
            continue
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
    """Return whether the first of two labels is the mistyped label.

    If the word list contains only one of the labels, the other label is mistyped; otherwise the
    less frequent label is.
    """
    is_known = words.issuperset(form_of[label])
    is_other_known = words.issuperset(form_of[other])
    if is_known != is_other_known:
        return is_other_known
    return label_counts[label] < label_counts[other]


def _gaps(form: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Return the words of a label with one letter of a long word left out, in all ways.

    Two labels that are one typing mistake apart have such a form in common.
    """
    gaps = set()
    for number, word in enumerate(form):
        if len(word) < _LONG - 1:
            continue
        gaps.add(form)
        before = form[:number]
        after = form[number + 1 :]
        for letter in range(len(word)):
            shorter = word[:letter] + word[letter + 1 :]
            gaps.add((*before, shorter, *after))
    return gaps


def _is_mistake(
    form: tuple[str, ...],
    other: tuple[str, ...],
    n_labels_with_word: Mapping[str, int],
    words: frozenset[str],
) -> bool:
    """Return whether a label equals another label except for one mistyped word.

    The mistyped word occurs in no other label and not in the word list.

    Args:
        form: Words of the label that may be mistyped.
        other: Words of the other label.
        n_labels_with_word: Number of labels with each word.
        words: Words that are not typing mistakes.
    """
    if len(form) != len(other):
        return False
    pairs = [(word, right) for word, right in zip(form, other, strict=True) if word != right]
    if len(pairs) != 1:
        return False
    word, right = pairs[0]
    has_letters_only = (word + right).replace("'", "").isalpha()
    if max(len(word), len(right)) < _LONG or not has_letters_only or word in words:
        return False
    both_long = min(len(word), len(right)) >= _LONG
    is_known = right in words or n_labels_with_word[right] > 1 or both_long
    return n_labels_with_word[word] == 1 and is_known and _distance_is_one(word, right)


def _distance_is_one(word: str, other: str) -> bool:
    """Return whether a letter after the first was added, left out or exchanged with the next letter.

    Words that differ by another letter are seldom mistakes: tannery and cannery, tower and power.
    """
    shorter = min(len(word), len(other))
    start = 0
    while start < shorter and word[start] == other[start]:
        start += 1
    if start == 0:
        return False
    first = word[start:]
    second = other[start:]
    is_exchanged = first[:2] == second[1::-1] and first[2:] == second[2:]
    return is_exchanged or first[1:] == second or first == second[1:]

"""Evidence that a label belongs to a group: a value for each kind of evidence, and an explanation in words.

Three sources need no decisions: the names of the groups, the typical members listed in their guidelines, and the
Wikidata classes that the taxonomy links to them. Decisions on other labels add to each kind. The decision on a label
itself is never evidence for that label, so suggestions can be compared with decisions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hgld.labels.class_graph import nearest_grouped_ancestors
from hgld.labels.wording import Term, head_words, normalised_words, taxonomy_terms
from hgld.taxonomy.decisions import Decision, DecisionIndex
from hgld.taxonomy.groups import Group
from hgld.taxonomy.label_identity import normalise_label

#: The label is a term of the group; its class is below one of the group; its last words are those of a term or of a
#: decided label; its vector is similar to that of a decided label; its vector is similar to that of a term.
EVIDENCE_KINDS = ("term", "subclass", "head_words", "similar_label", "similar_term")

#: Encodes texts as unit vectors: float64, shape (n_texts, dimension).
EmbedTexts = Callable[[Sequence[str]], NDArray[np.float64]]
#: Transforms cosines; see :func:`_cosine_scale`.
ScaleCosines = Callable[[NDArray[np.float64]], NDArray[np.float64]]

#: Added to the number of examples in a share, so that a single example is no certainty.
_PRIOR_EXAMPLES = 0.5
#: Factor for each further step up to a superclass.
_DECAY_PER_STEP = 0.7


class EmbeddedLabels(NamedTuple):
    """Ids, texts and unit vectors (float64, shape (n, dimension)) of n labels."""

    ids: Sequence[str]
    texts: Sequence[str]
    vectors: NDArray[np.float64]


@dataclass(frozen=True)
class Evidence:
    """Evidence of one kind for every label and group.

    Args:
        values: float64, shape (n_labels, n_groups); 0 without evidence.
        explain: Returns the evidence in words, for the index of a label and of a group with a value above 0.
    """

    values: NDArray[np.float64]
    explain: Callable[[int, int], str]


@dataclass(frozen=True)
class _Examples:
    """Terms and decided labels that labels are compared with.

    Args:
        groups: Groups of the taxonomy.
        terms: Terms of the taxonomy.
        decisions: Decisions for a group of the taxonomy.
        decision_groups: int64, shape (n_decisions,); index of the group of each decision.
        own_decisions: For each label, the indices of the decisions on the label itself, by id or text.
    """

    groups: Sequence[Group]
    terms: Sequence[Term]
    decisions: Sequence[Decision]
    decision_groups: NDArray[np.int64]
    own_decisions: Sequence[set[int]]


def find_evidence(
    labels: EmbeddedLabels,
    groups: Sequence[Group],
    decisions: Iterable[Decision],
    classes: Sequence[pa.Table],
    embed: EmbedTexts,
) -> list[Evidence]:
    """Collect the evidence of every kind, in the order of ``EVIDENCE_KINDS``.

    Args:
        labels: Labels to find evidence for.
        groups: Groups of the taxonomy.
        decisions: Decisions on labels; those that are not for a group are ignored.
        classes: ``classes`` tables; for a class in several of them the first one counts.
        embed: Encoder and templates that ``labels.vectors`` were made with.
    """
    group_numbers = {group.key: number for number, group in enumerate(groups)}
    for_group = [row for row in decisions if row.decision == "group"]
    examples = _Examples(
        groups,
        taxonomy_terms(groups),
        for_group,
        np.array([group_numbers[row.group or ""] for row in for_group], np.int64),
        _own_decisions(labels, for_group),
    )
    term_vectors = embed([term.text for term in examples.terms])
    scale = _cosine_scale(term_vectors, np.array([term.group for term in examples.terms]))
    return [
        _term_evidence(labels, examples),
        _subclass_evidence(labels, examples, classes),
        _head_words_evidence(labels, examples),
        _similar_label_evidence(labels, examples, embed, scale),
        _similar_term_evidence(labels, examples, term_vectors, scale),
    ]


def _own_decisions(labels: EmbeddedLabels, decisions: Sequence[Decision]) -> list[set[int]]:
    by_id: defaultdict[str, set[int]] = defaultdict(set)
    by_text: defaultdict[str, set[int]] = defaultdict(set)
    for number, row in enumerate(decisions):
        by_id[row.label_id].add(number)
        by_text[normalise_label(row.label)].add(number)
    return [
        by_id[label_id] | by_text[normalise_label(text)]
        for label_id, text in zip(labels.ids, labels.texts, strict=True)
    ]


def _term_evidence(labels: EmbeddedLabels, examples: _Examples) -> Evidence:
    """1 where the label is a term of the group, divided by the number of groups with that term."""
    terms_by_words: defaultdict[tuple[str, ...], list[Term]] = defaultdict(list)
    for term in examples.terms:
        terms_by_words[normalised_words(term.text)].append(term)
    values = np.zeros((len(labels.ids), len(examples.groups)))
    for row, text in enumerate(labels.texts):
        terms = terms_by_words.get(normalised_words(text), [])
        for term in terms:
            values[row, term.group] = 1 / len(terms)

    def explain(row: int, group: int) -> str:
        (term,) = (term for term in terms_by_words[normalised_words(labels.texts[row])] if term.group == group)
        return "a name of the group" if term.is_name else "named in the group's guideline"

    return Evidence(values, explain)


def _cosine_scale(vectors: NDArray[np.float64], groups: NDArray[np.int64]) -> ScaleCosines:
    """Return a function that standardises cosines by those between terms of different groups, and clips them at 0.

    This makes the evidence comparable between encoders, some of which give high cosines to all pairs.
    """
    unrelated = (vectors @ vectors.T)[groups[:, None] != groups]
    mean, deviation = (unrelated.mean(), max(unrelated.std(), 0.01)) if unrelated.size else (0.0, 1.0)
    return lambda cosines: np.maximum((cosines - mean) / deviation, 0.0)


def _similar_term_evidence(
    labels: EmbeddedLabels, examples: _Examples, term_vectors: NDArray[np.float64], scale: ScaleCosines
) -> Evidence:
    """Scaled cosine to the nearest term of the group."""
    term_groups = np.array([term.group for term in examples.terms])
    cosines, nearest = nearest_examples(labels.vectors, term_vectors, term_groups, len(examples.groups))

    def explain(row: int, group: int) -> str:
        term = examples.terms[nearest[row, group]]
        return "near the group's name" if term.is_name else f"near “{term.text}” of the guideline"

    return Evidence(scale(cosines), explain)


def _similar_label_evidence(
    labels: EmbeddedLabels, examples: _Examples, embed: EmbedTexts, scale: ScaleCosines
) -> Evidence:
    """Scaled cosine to the nearest label that was decided for the group."""
    if not examples.decisions:
        return Evidence(np.zeros((len(labels.ids), len(examples.groups))), lambda row, group: "")
    cosines, nearest = nearest_examples(
        labels.vectors,
        embed([row.label for row in examples.decisions]),
        examples.decision_groups,
        len(examples.groups),
        examples.own_decisions,
    )
    return Evidence(
        scale(cosines), lambda row, group: f"like {_quote_decision(examples.decisions[nearest[row, group]])}"
    )


def nearest_examples(
    vectors: NDArray[np.float64],
    examples: NDArray[np.float64],
    example_groups: NDArray[np.int64],
    n_groups: int,
    excluded: Sequence[Iterable[int]] = (),
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Find the nearest example of every group for each vector.

    Takes O(n * examples of the largest group) memory.

    Args:
        vectors: float64, shape (n, dimension); unit vectors.
        examples: float64, shape (m, dimension); unit vectors.
        example_groups: int64, shape (m,); group of each example.
        n_groups: Number of groups.
        excluded: For each vector, the indices of examples to ignore; empty if there are none.

    Returns:
        Cosines, rounded to six digits, and indices of the examples (on ties the first), both of shape (n, n_groups);
        -1 and -1 where a group has no example.
    """
    pairs = np.array([(row, number) for row, numbers in enumerate(excluded) for number in numbers], np.int64)
    pairs = pairs.reshape(-1, 2)
    best_cosines = np.full((len(vectors), n_groups), -1.0)
    best_examples = np.full((len(vectors), n_groups), -1, np.int64)
    for group in np.unique(example_groups):
        members = np.flatnonzero(example_groups == group)
        # Rounded: the order of summation depends on the row, and must not decide between equal cosines.
        cosines = np.round(vectors @ examples[members].T, 6)
        pairs_in_group = pairs[example_groups[pairs[:, 1]] == group]
        cosines[pairs_in_group[:, 0], np.searchsorted(members, pairs_in_group[:, 1])] = -np.inf
        nearest, cosine = cosines.argmax(axis=1), cosines.max(axis=1)
        has_example = np.isfinite(cosine)
        best_cosines[has_example, group] = cosine[has_example]
        best_examples[has_example, group] = members[nearest[has_example]]
    return best_cosines, best_examples


def _head_words_evidence(labels: EmbeddedLabels, examples: _Examples) -> Evidence:
    """Share of the group among the terms and decided labels with the longest ending in common with the label."""
    n_terms = len(examples.terms)
    texts = [term.text for term in examples.terms] + [row.label for row in examples.decisions]
    groups = [term.group for term in examples.terms] + examples.decision_groups.tolist()
    by_ending: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, text in enumerate(texts):
        for ending in _endings(text):
            by_ending[ending].append(number)

    matches: list[tuple[tuple[str, ...], list[int]]] = []
    values = np.zeros((len(labels.ids), len(examples.groups)))
    for row, text in enumerate(labels.texts):
        candidates = (
            (
                ending,
                [
                    number
                    for number in by_ending.get(ending, ())
                    if number - n_terms not in examples.own_decisions[row]
                ],
            )
            for ending in _endings(text)
        )
        ending, numbers = next(((ending, numbers) for ending, numbers in candidates if numbers), ((), []))
        matches.append((ending, numbers))
        for group, count in Counter(groups[number] for number in numbers).items():
            values[row, group] = count / (len(numbers) + _PRIOR_EXAMPLES)

    def explain(row: int, group: int) -> str:
        ending, numbers = matches[row]
        # The shortest text shows best which words are shared.
        number = min((n for n in numbers if groups[n] == group), key=lambda n: len(head_words(texts[n])))
        if number >= n_terms:
            return f"named like {_quote_decision(examples.decisions[number - n_terms])}"
        is_ending = head_words(texts[number]) == ending
        return f"named after “{texts[number]}”" if is_ending else f"named like “{texts[number]}” of the guideline"

    return Evidence(values, explain)


def _endings(label: str) -> Iterable[tuple[str, ...]]:
    """Iterate over the last words of a label's head noun phrase, the longest sequence first."""
    words = head_words(label)
    return (words[start:] for start in range(len(words)))


def _subclass_evidence(labels: EmbeddedLabels, examples: _Examples, classes: Sequence[pa.Table]) -> Evidence:
    """1 where the class of the label, or its nearest superclass that belongs to any group, belongs to this group.

    The value decays with each further step. A class belongs to the group decided for it, else to the group that the
    taxonomy links it to, else to the only group with its label as a term (where classes have other ids than on
    Wikidata). Several classes at the same distance share the value.
    """
    class_rows = {row["item"]: row for table in reversed(classes) for row in table.to_pylist()}
    superclasses = {item: row["subclass_of"] for item, row in class_rows.items()}
    class_labels = {item: row["label"] for item, row in class_rows.items()}
    index = DecisionIndex(examples.decisions)
    decision_numbers = {row: number for number, row in enumerate(examples.decisions)}
    linked = {item: number for number, group in enumerate(examples.groups) for item in group.items}
    default_groups = _groups_by_term(class_labels, examples.terms) | linked

    def decision_on(item: str, row: int) -> Decision | None:
        decision = index.find(item, class_labels.get(item, item))
        is_own = decision is not None and decision_numbers[decision] in examples.own_decisions[row]
        return None if is_own else decision

    values = np.zeros((len(labels.ids), len(examples.groups)))
    classes_found: dict[tuple[int, int], str] = {}
    for row, label_id in enumerate(labels.ids):

        def group_of(item: str, row: int = row) -> int | None:
            decision = decision_on(item, row)
            if decision is None:
                return default_groups.get(item)
            return int(examples.decision_groups[decision_numbers[decision]])

        if label_id in linked:
            steps, grouped = 1, [(label_id, linked[label_id])]
        else:
            steps, grouped = nearest_grouped_ancestors(label_id, superclasses, group_of)
        for item, group in grouped:
            values[row, group] += _DECAY_PER_STEP ** (steps - 1) / len(grouped)
            classes_found.setdefault((row, group), item)

    def explain(row: int, group: int) -> str:
        item = classes_found[row, group]
        if item == labels.ids[row]:
            return "a class that the group is linked to"
        decision = decision_on(item, row)
        return f"subclass of {_quote_decision(decision) if decision else class_labels.get(item, item)}"

    return Evidence(values, explain)


def _groups_by_term(class_labels: Mapping[str, str], terms: Sequence[Term]) -> dict[str, int]:
    """Return the group of every class whose label is a term of that group and of no other."""
    groups: defaultdict[tuple[str, ...], set[int]] = defaultdict(set)
    for term in terms:
        groups[normalised_words(term.text)].add(term.group)
    candidates = {item: groups.get(normalised_words(label), set()) for item, label in class_labels.items()}
    return {item: next(iter(numbers)) for item, numbers in candidates.items() if len(numbers) == 1}


def _quote_decision(decision: Decision) -> str:
    return f"“{decision.label}” (decided {decision.group})"

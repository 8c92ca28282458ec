"""Evidence that a label belongs to a group: the ladder of evidence, from the strongest kind to the weakest.

Each kind gives every label a value for each group and for none. The names of groups, their guidelines, the vocabulary
and the classes that the taxonomy links to groups need no decisions; decisions on other labels add to every kind. The
decision on a label itself is never evidence for that label, so suggestions can be compared with decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hgld.labels.class_evidence import ClassVotes
from hgld.labels.endings import Endings
from hgld.labels.examples import EmbeddedLabels, Examples, collect_examples
from hgld.labels.wording import normalised_words
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group
from hgld.taxonomy.vocabulary import VocabularyTerm

#: The ladder, strongest first: the label is a term or has the words of a decided label; a direct superclass points to
#: the group; a farther one does; the label ends in the same words as examples of the group; its vector is similar to
#: that of an example. Examples are terms and decided labels.
EVIDENCE_KINDS = ("term", "superclass", "farther_superclass", "ending", "similar")

#: Encodes texts as unit vectors: float64, shape (n_texts, dimension).
EmbedTexts = Callable[[Sequence[str]], NDArray[np.float64]]
#: Transforms cosines; see :func:`_cosine_scale`.
ScaleCosines = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True)
class Evidence:
    """Evidence of one kind for every label and group.

    Args:
        values: float64, shape (n_labels, n_groups + 1); 0 without evidence; the last column is for no group.
        explain: Returns the evidence in words, for the index of a label and of a group with a value above 0.
    """

    values: NDArray[np.float64]
    explain: Callable[[int, int], str]


def find_evidence(
    labels: EmbeddedLabels,
    groups: Sequence[Group],
    vocabulary: Iterable[VocabularyTerm],
    decisions: Iterable[Decision],
    classes: Sequence[pa.Table],
    embed: EmbedTexts,
) -> list[Evidence]:
    """Collect the evidence of every kind, in the order of ``EVIDENCE_KINDS``.

    Args:
        labels: Labels to find evidence for.
        groups: Groups of the taxonomy.
        vocabulary: Terms of the vocabulary; their groups are among ``groups``.
        decisions: Decisions on labels; unsure ones are ignored.
        classes: ``classes`` tables; for a class in several of them the first one counts.
        embed: Encoder and templates that ``labels.vectors`` were made with.
    """
    examples = collect_examples(labels, groups, vocabulary, decisions)
    return [
        _term_evidence(labels, examples),
        *_superclass_evidence(labels, examples, classes),
        _ending_evidence(labels, examples),
        _similarity_evidence(labels, examples, embed),
    ]


def _term_evidence(labels: EmbeddedLabels, examples: Examples) -> Evidence:
    """Share of the group among the terms and decided labels with the same words; links of the class count as well."""
    matches = [
        [number for number in examples.by_words.get(normalised_words(text), ()) if number not in own]
        for text, own in zip(labels.texts, examples.own, strict=True)
    ]
    values = np.zeros((len(labels.ids), examples.n_columns))
    for row, (label_id, numbers) in enumerate(zip(labels.ids, matches, strict=True)):
        for number in numbers:
            values[row, examples.rows[number].group] += 1
        if label_id in examples.linked_groups:
            values[row, examples.linked_groups[label_id]] += 1
    values /= np.maximum(values.sum(axis=1, keepdims=True), 1)

    def explain(row: int, group: int) -> str:
        numbers = [number for number in matches[row] if examples.rows[number].group == group]
        if not numbers:
            return "a class that the group is linked to"
        sources = {
            "name": "a name of the group",
            "guideline": "named in the group's guideline",
            "vocabulary": "in the vocabulary",
        }
        return sources.get(examples.rows[numbers[0]].source) or f"named like {examples.quote(numbers[0])}"

    return Evidence(values, explain)


def _superclass_evidence(labels: EmbeddedLabels, examples: Examples, classes: Sequence[pa.Table]) -> list[Evidence]:
    """Shares of the group in the direct superclasses, and in the farther ones."""
    votes = ClassVotes(examples, classes)
    rows = list(zip(labels.ids, labels.texts, examples.own, strict=True))
    direct, farther = np.stack([votes.shares(*row) for row in rows], axis=1)
    return [
        Evidence(direct, lambda row, group: votes.explain(*rows[row], group, direct=True)),
        Evidence(farther, lambda row, group: votes.explain(*rows[row], group, direct=False)),
    ]


def _ending_evidence(labels: EmbeddedLabels, examples: Examples) -> Evidence:
    """Share of the group among the examples with the longest ending in common with the label."""
    endings = Endings(examples)
    rows = list(zip(labels.texts, examples.own, strict=True))
    values = np.stack([endings.shares(*row) for row in rows])
    return Evidence(values, lambda row, group: endings.explain(*rows[row], group))


def _similarity_evidence(labels: EmbeddedLabels, examples: Examples, embed: EmbedTexts) -> Evidence:
    """Scaled cosine to the nearest example of the group."""
    vectors = embed([example.text for example in examples.rows])
    example_groups = np.array([example.group for example in examples.rows], np.int64)
    is_term = np.array([example.source != "decision" for example in examples.rows])
    # Decisions leave the scale alone: values stay comparable as decisions come in.
    scale = _cosine_scale(vectors[is_term], example_groups[is_term])
    cosines, nearest = nearest_examples(
        labels.vectors, vectors, example_groups, examples.n_columns, [sorted(own) for own in examples.own]
    )

    def explain(row: int, group: int) -> str:
        number = int(nearest[row, group])
        source = examples.rows[number].source
        if source == "name":
            return "near the group's name"
        return f"{'like' if source == 'decision' else 'near'} {examples.quote(number)}"

    return Evidence(scale(cosines), explain)


def _cosine_scale(vectors: NDArray[np.float64], groups: NDArray[np.int64]) -> ScaleCosines:
    """Return a function that standardises cosines by those between terms of different groups, and clips them at 0.

    This makes the evidence comparable between encoders, some of which give high cosines to all pairs.
    """
    # Moments of all cosines less those within groups, without a matrix of all pairs: the sum of the cosines of a set
    # is the squared norm of the sum of its vectors; the sum of their squares is that of its second moments.
    sets = [vectors, *(vectors[groups == group] for group in np.unique(groups))]
    signs = np.array([1] + [-1] * (len(sets) - 1))
    counts, sums, squares = (
        float(signs @ np.array(values))
        for values in (
            [len(rows) ** 2 for rows in sets],
            [np.square(rows.sum(axis=0)).sum() for rows in sets],
            [np.square(rows.T @ rows).sum() for rows in sets],
        )
    )
    if counts <= 0:
        return lambda cosines: np.maximum(cosines, 0.0)
    mean = sums / counts
    deviation = max(np.sqrt(max(squares / counts - mean**2, 0.0)), 0.01)
    return lambda cosines: np.maximum((cosines - mean) / deviation, 0.0)


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

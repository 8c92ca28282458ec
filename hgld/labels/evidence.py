"""Evidence that a label belongs to a group, of several kinds from the strongest to the weakest.

Each kind gives every label a value for each group and for no group. The names of groups, their
guidelines, the vocabulary and the classes that the taxonomy links to groups need no decisions;
decisions on other labels add to every kind. The decision on a label itself is never evidence for
that label.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pyarrow as pa

from hgld.arrays import Floats, Integers
from hgld.labels.ending_evidence import EndingVotes
from hgld.labels.group_examples import EmbeddedLabels, Examples, Source, collect_examples
from hgld.labels.group_levels import decided_similarity, level_nodes
from hgld.labels.superclass_evidence import SuperclassVotes
from hgld.labels.wording import head_words, normalised_words
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group, VocabularyTerm

#: Kinds of evidence, strongest first:
#: - the label is a term or has the words of a decided label;
#: - a direct superclass points to the group;
#: - a farther superclass points to the group;
#: - the label ends in the same words as examples of the group;
#: - the label's vector is similar to the vector of an example;
#: - without a vocabulary, the label or a superclass is similar to the names of the group and of the
#: levels above;
#: - without a vocabulary, the label is similar to decided labels of the group and of the levels
#: above.
EVIDENCE_KINDS = (
    "term",
    "superclass",
    "farther_superclass",
    "ending",
    "similar",
    "names",
    "decided",
)
#: Separators of the parts of a group's name.
_NAME_PARTS = re.compile(r" & | and | / |, ")
#: Largest number of terms that are compared with one another to scale cosines.
_MAX_SCALE_TERMS = 4000
#: Encodes texts as unit vectors: float64, shape (n_texts, dimension).
EmbedTexts = Callable[[Sequence[str]], Floats]


@dataclass(frozen=True)
class Evidence:
    """Evidence of one kind for every label and group.

    Args:
        values: float64, shape (n_labels, n_groups + 1); 0 without evidence; the last column is for
            no group. Values of the last two kinds may be below 0.
        explain: Returns the evidence in words, for the index of a label and of a group with a value
            other than 0.
    """

    values: Floats
    explain: Callable[[int, int], str]


@dataclass(frozen=True)
class CosineScale:
    """Mean and standard deviation of the cosines between terms of different groups.

    Scaled cosines are comparable between encoders, some of which give high cosines to all pairs.
    """

    mean: float
    deviation: float

    @classmethod
    def from_terms(cls, vectors: Floats, groups: Integers) -> CosineScale:
        """Measure the scale, or leave cosines unchanged if all terms are in one group.

        Args:
            vectors: float64, shape (n_terms, dimension); unit vectors.
            groups: int64, shape (n_terms,); group of each term.
        """
        step = max(1, math.ceil(len(vectors) / _MAX_SCALE_TERMS))
        vectors = vectors[::step]
        groups = groups[::step]
        between_groups = (vectors @ vectors.T)[groups[:, None] != groups]
        if len(between_groups) == 0:
            return cls(mean=0.0, deviation=1.0)
        return cls(between_groups.mean(), max(between_groups.std(), 0.01))

    def standardise(self, cosines: Floats) -> Floats:
        """Return cosines as numbers of standard deviations above the mean."""
        return (cosines - self.mean) / self.deviation


def find_evidence(
    labels: EmbeddedLabels,
    groups: Sequence[Group],
    vocabulary: Iterable[VocabularyTerm],
    decisions: Iterable[Decision],
    classes: Sequence[pa.Table],
    embed: EmbedTexts,
    *,
    compare_names: bool = False,
) -> list[Evidence]:
    """Collect the evidence of every kind, in the order of ``EVIDENCE_KINDS``.

    Args:
        labels: The labels that need a group.
        groups: The groups of the taxonomy.
        vocabulary: Additional terms with their groups.
        decisions: Decisions of annotators on labels.
        classes: ``classes`` tables with the superclasses of each class.
        embed: Embeds texts with the encoder of the labels.
        compare_names: Add the kinds "names" and "decided"; the kind "similar" then compares labels
            only with the terms of guidelines and of the vocabulary.
    """
    examples = collect_examples(labels, groups, vocabulary, decisions)
    superclass_votes = SuperclassVotes(examples, classes)
    vectors = embed([example.text for example in examples.rows])
    # Decisions leave the scale alone: values stay comparable as decisions come in.
    is_term = np.array([example.source != "decision" for example in examples.rows])
    example_groups = np.array([example.group for example in examples.rows], np.int64)
    scale = CosineScale.from_terms(vectors[is_term], example_groups[is_term])
    evidence = [_term_evidence(labels, examples)]
    evidence += _superclass_evidence(labels, examples, superclass_votes)
    evidence.append(_ending_evidence(labels, examples))
    if compare_names:
        sources: Collection[Source] = ("guideline", "vocabulary")
        evidence.append(_similarity_evidence(labels, examples, vectors, scale, sources))
        evidence.append(_name_evidence(labels, examples, superclass_votes, embed, scale))
        evidence.append(_decided_evidence(labels, examples, vectors))
    else:
        sources = get_args(Source)
        no_evidence = _no_evidence(labels, examples)
        evidence.append(_similarity_evidence(labels, examples, vectors, scale, sources))
        evidence += [no_evidence, no_evidence]
    return evidence


def _no_evidence(labels: EmbeddedLabels, examples: Examples) -> Evidence:
    return Evidence(np.zeros((len(labels.ids), examples.n_columns)), lambda row, group: "")


def _term_evidence(labels: EmbeddedLabels, examples: Examples) -> Evidence:
    """Share of the group among terms, decided labels and linked classes that match the label."""
    matches: list[list[int]] = []
    values = np.zeros((len(labels.ids), examples.n_columns))
    for row, (label_id, text) in enumerate(zip(labels.ids, labels.texts, strict=True)):
        same_words = examples.by_words.get(normalised_words(text), ())
        own_decisions = examples.own_decisions[row]
        matches.append([number for number in same_words if number not in own_decisions])
        for number in matches[row]:
            values[row, examples.rows[number].group] += 1
        if label_id in examples.linked_groups:
            values[row, examples.linked_groups[label_id]] += 1
    values /= np.maximum(values.sum(axis=1, keepdims=True), 1)

    def explain(row: int, group: int) -> str:
        for number in matches[row]:
            example = examples.rows[number]
            if example.group != group:
                continue
            match example.source:
                case "name":
                    return "a name of the group"
                case "guideline":
                    return "named in the group's guideline"
                case "vocabulary":
                    return "in the vocabulary"
                case "decision":
                    return f"named like {examples.quote(number)}"
        return "a class that the group is linked to"

    return Evidence(values, explain)


def _superclass_evidence(
    labels: EmbeddedLabels, examples: Examples, votes: SuperclassVotes
) -> list[Evidence]:
    """Shares of the group in the direct superclasses, and in the farther superclasses."""
    rows = list(zip(labels.ids, labels.texts, examples.own_decisions, strict=True))
    shares = [votes.shares(label_id, text, own) for label_id, text, own in rows]
    direct, farther = np.stack(shares, axis=1)

    def explain_direct(row: int, group: int) -> str:
        label_id, text, own_decisions = rows[row]
        return votes.explain_direct(label_id, text, own_decisions, group)

    def explain_farther(row: int, group: int) -> str:
        label_id, text, own_decisions = rows[row]
        return votes.explain_farther(label_id, text, own_decisions, group)

    return [Evidence(direct, explain_direct), Evidence(farther, explain_farther)]


def _ending_evidence(labels: EmbeddedLabels, examples: Examples) -> Evidence:
    """Share of the group among the examples with the longest ending in common with the label."""
    votes = EndingVotes(examples)
    shares = []
    for text, own_decisions in zip(labels.texts, examples.own_decisions, strict=True):
        shares.append(votes.shares(text, own_decisions))

    def explain(row: int, group: int) -> str:
        return votes.explain(labels.texts[row], examples.own_decisions[row], group)

    return Evidence(np.stack(shares), explain)


def _similarity_evidence(
    labels: EmbeddedLabels,
    examples: Examples,
    vectors: Floats,
    scale: CosineScale,
    sources: Collection[Source],
) -> Evidence:
    """Scaled cosine to the nearest example of the group that comes from one of several sources.

    Args:
        vectors: float64, shape (n_examples, dimension).
    """
    example_groups = np.array([example.group for example in examples.rows], np.int64)
    # Examples from other sources get a column after the groups, which is not used.
    is_unused = np.array([example.source not in sources for example in examples.rows])
    example_groups[is_unused] = examples.n_columns
    own_decisions = [sorted(numbers) for numbers in examples.own_decisions]
    cosines, nearest = nearest_examples(
        labels.vectors, vectors, example_groups, examples.n_columns + 1, own_decisions
    )

    def explain(row: int, group: int) -> str:
        number = int(nearest[row, group])
        source = examples.rows[number].source
        if source == "name":
            return "near the group's name"
        if source == "decision":
            return f"like {examples.quote(number)}"
        return f"near {examples.quote(number)}"

    return Evidence(np.maximum(scale.standardise(cosines[:, :-1]), 0), explain)


def _name_evidence(
    labels: EmbeddedLabels,
    examples: Examples,
    votes: SuperclassVotes,
    embed: EmbedTexts,
    scale: CosineScale,
) -> Evidence:
    """Scaled cosine of the label, and of its nearest superclass, to the names of the group.

    Labels with superclasses get the sum of both cosines divided by the square root of 2, so that
    the sum of two independent values has the variance of one value.
    """
    superclasses = []
    for label_id, text in zip(labels.ids, labels.texts, strict=True):
        superclasses.append(votes.superclass_weights(label_id, text))
    groups = examples.groups
    values = np.zeros((len(labels.ids), examples.n_columns))
    values[:, :-1] = scale.standardise(name_cosines(labels.texts, labels.vectors, groups, embed))
    names = list(dict.fromkeys(name for weights in superclasses for name in weights))
    superclass_cosines: Mapping[str, Floats] = {}
    if names:
        cosines = scale.standardise(name_cosines(names, embed(names), groups, embed))
        superclass_cosines = dict(zip(names, cosines, strict=True))
    for row, weights in enumerate(superclasses):
        if weights:
            weighted = [weight * superclass_cosines[name] for name, weight in weights.items()]
            values[row, :-1] = (values[row, :-1] + np.max(weighted, axis=0)) / math.sqrt(2)

    def explain(row: int, group: int) -> str:
        reason = "similar to the names of the group and the levels above it"
        weights = superclasses[row]
        if not weights:
            return reason
        nearest = max(weights, key=lambda name: weights[name] * superclass_cosines[name][group])
        return f"{reason}, as a subclass of {nearest}"

    return Evidence(values, explain)


def _decided_evidence(labels: EmbeddedLabels, examples: Examples, vectors: Floats) -> Evidence:
    """Similarity to the decided labels of the group and of the levels above it."""
    is_decision = [example.source == "decision" for example in examples.rows]
    decided = np.flatnonzero(is_decision)
    if len(decided) == 0:
        return _no_evidence(labels, examples)
    is_own = np.zeros((len(labels.ids), len(decided)), bool)
    for row, own_decisions in enumerate(examples.own_decisions):
        is_own[row, np.searchsorted(decided, sorted(own_decisions))] = True
    decided_groups = np.array([examples.rows[int(number)].group for number in decided], np.int64)
    # Rounded: the order of summation depends on the row, and must not decide between equal cosines.
    cosines = np.round(labels.vectors @ vectors[decided].T, 6)
    values = decided_similarity(cosines, decided_groups, is_own, examples.groups)
    nodes = level_nodes(examples.groups)
    in_group = decided_groups < len(examples.groups)

    def explain(row: int, group: int) -> str:
        candidates = np.flatnonzero(in_group & ~is_own[row])
        is_shared = nodes[:, decided_groups[candidates]] == nodes[:, [group]]
        n_shared_levels = is_shared.sum(axis=0)
        # The nearest candidate among the candidates that share most levels.
        order = np.lexsort((cosines[row, candidates], n_shared_levels))
        nearest = candidates[order[-1]]
        return f"like {examples.quote(int(decided[nearest]))}"

    return Evidence(values, explain)


def name_cosines(
    texts: Sequence[str], vectors: Floats, groups: Sequence[Group], embed: EmbedTexts
) -> Floats:
    """Return how similar texts are to the names of groups: float64, shape (n_texts, n_groups).

    The value of a text and a group is the weighted mean of four cosines:

    - the text and the group's name, or the nearest part of a name such as "Mugs & Cups" (weight 1);
    - the text and the group's name in the singular (weight 1);
    - the text and the names of all levels, which distinguish a kitchen's fork from a garden's
    (weight 1);
    - the last word of the text and the nearest part: a "field recorder" is a recorder (weight 0.6).

    Args:
        vectors: float64, shape (n_texts, dimension); unit vectors of the texts.
    """
    parts: list[str] = []
    part_groups: list[int] = []
    singular_names = []
    paths = []
    for number, group in enumerate(groups):
        group_parts = list(dict.fromkeys([group.name, *_NAME_PARTS.split(group.name)]))
        parts += group_parts
        part_groups += [number] * len(group_parts)
        singular_names.append(" ".join(normalised_words(group.name)) or group.name)
        paths.append(", ".join(dict.fromkeys(group.path)))
    part_vectors = embed(parts)
    heads = []
    for text in texts:
        words = head_words(text)
        heads.append(words[-1] if words else text)
    head_vectors = embed(heads)
    owners = np.array(part_groups, np.int64)
    name_cosine, _ = nearest_examples(vectors, part_vectors, owners, len(groups))
    singular_cosine = vectors @ embed(singular_names).T
    path_cosine = vectors @ embed(paths).T
    head_cosine, _ = nearest_examples(head_vectors, part_vectors, owners, len(groups))
    mean = (name_cosine + singular_cosine + path_cosine) / 3 + head_cosine / 5
    # Rounded as in nearest_examples.
    return np.asarray(np.round(mean, 6) / 1.2)


def nearest_examples(
    vectors: Floats,
    examples: Floats,
    example_groups: Integers,
    n_groups: int,
    excluded: Sequence[Iterable[int]] = (),
) -> tuple[Floats, Integers]:
    """Find the nearest example of every group for each vector.

    Takes O(n * examples of the largest group) memory.

    Args:
        vectors: float64, shape (n, dimension); unit vectors.
        examples: float64, shape (m, dimension); unit vectors.
        example_groups: int64, shape (m,); group of each example.
        excluded: For each vector, the indices of the examples to ignore; default: no examples.

    Returns:
        Cosines, rounded to six digits, and indices of the examples (on ties the first), both of
        shape (n, n_groups); -1 and -1 where a group has no example.
    """
    excluded_pairs = []
    for row, numbers in enumerate(excluded):
        for number in numbers:
            excluded_pairs.append((row, number))
    pairs = np.array(excluded_pairs, np.int64).reshape(-1, 2)
    best_cosines = np.full((len(vectors), n_groups), -1.0)
    best_examples = np.full((len(vectors), n_groups), -1, np.int64)
    for group in np.unique(example_groups):
        members = np.flatnonzero(example_groups == group)
        # Rounded: the order of summation depends on the row, and must not decide between equal
        # cosines.
        cosines = np.round(vectors @ examples[members].T, 6)
        pairs_in_group = pairs[example_groups[pairs[:, 1]] == group]
        excluded_columns = np.searchsorted(members, pairs_in_group[:, 1])
        cosines[pairs_in_group[:, 0], excluded_columns] = -np.inf
        nearest = cosines.argmax(axis=1)
        cosine = cosines.max(axis=1)
        has_example = np.isfinite(cosine)
        best_cosines[has_example, group] = cosine[has_example]
        best_examples[has_example, group] = members[nearest[has_example]]
    return best_cosines, best_examples

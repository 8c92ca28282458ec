"""Evidence that a label belongs to a group, of several kinds from the strongest to the weakest.

Each kind gives every label a value for each group and for none. The names of groups, their guidelines, the vocabulary
and the classes that the taxonomy links to groups need no decisions; decisions on other labels add to every kind. The
decision on a label itself is never evidence for that label, so suggestions can be compared with decisions.

Labels are compared with examples: texts and classes whose group is known, or that belong to none.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa

from hgld.arrays import Floats, Integers
from hgld.labels.class_tree import levels_above
from hgld.labels.group_levels import decided_similarity, level_nodes
from hgld.labels.wording import guideline_terms, head_words, normalised_words
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group, VocabularyTerm
from hgld.taxonomy.label_identity import normalise_label

#: Where an example comes from: a group's name, its guideline, the vocabulary, or a decision.
Source = Literal["name", "guideline", "vocabulary", "decision"]

#: Kinds of evidence, strongest first: the label is a term or has the words of a decided label; a direct superclass
#: points to the group; a farther one does; the label ends in the same words as examples of the group; its vector is
#: similar to that of an example. Taxonomies without a vocabulary have the last kinds, too: the label or a superclass
#: is similar to the names of the group and of the levels above, and the label to decided labels of the group and of
#: these levels.
EVIDENCE_KINDS = (
    "term",
    "superclass",
    "farther_superclass",
    "ending",
    "similar",
    "names",
    "decided",
)
#: Weight of an example that consists of the ending alone, compared with one that has other words in front.
_WHOLE_WEIGHT = 3.0
#: Weight of all shorter endings together, as a number of examples.
_SHORTER_WEIGHT = 1.0
#: Weight of what is known for a class itself, compared with one of its subclasses.
_OWN_WEIGHT = 3.0
#: Weight of a decision on a class, compared with a term or link for it.
_DECISION_WEIGHT = 3.0
#: Between the parts of a group's name.
_NAME_PARTS = re.compile(r" & | and | / |, ")
#: Number of votes up to which a class counts more than another at the same distance.
_MAX_VOTES = 4.0
#: Weight of all farther classes together, in votes.
_FARTHER_WEIGHT = 0.3
#: Factor for each step up to a farther superclass.
_DECAY_PER_STEP = 0.8
#: Steps up to which the names of superclasses are compared with those of groups.
_NAMED_STEPS = 2
#: Largest number of terms that are compared with one another to scale cosines.
_MAX_SCALE_TERMS = 4000
#: Encodes texts as unit vectors: float64, shape (n_texts, dimension).
EmbedTexts = Callable[[Sequence[str]], Floats]
#: Transforms cosines; see :func:`_cosine_scale`.
ScaleCosines = Callable[[Floats], Floats]


class EmbeddedLabels(NamedTuple):
    """Ids, texts and unit vectors (float64, shape (n, dimension)) of n labels."""

    ids: Sequence[str]
    texts: Sequence[str]
    vectors: Floats


class Example(NamedTuple):
    """A text with its group.

    Args:
        group: Index of the group; the number of groups if labels of this kind are dropped.
        items: Ids of the classes that the text names, where known.
    """

    text: str
    group: int
    source: Source
    items: tuple[str, ...] = ()


@dataclass(frozen=True)
class Examples:
    """Terms and decided labels.

    Args:
        rows: The examples, those from decisions last.
        own: For each label, the indices of the decisions on the label itself, by id or text.
    """

    groups: Sequence[Group]
    rows: Sequence[Example]
    own: Sequence[frozenset[int]]

    @property
    def n_columns(self) -> int:
        """Number of groups, and one column for no group."""
        return len(self.groups) + 1

    @cached_property
    def linked_groups(self) -> Mapping[str, int]:
        """Index of the group that the taxonomy links each class to."""
        return {item: number for number, group in enumerate(self.groups) for item in group.items}

    @cached_property
    def by_words(self) -> Mapping[tuple[str, ...], Sequence[int]]:
        """Indices of the examples by their normalised words."""
        indices: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for number, example in enumerate(self.rows):
            indices[normalised_words(example.text)].append(number)
        return indices

    def quote(self, number: int) -> str:
        """Return the text of an example in quotation marks, with where it comes from."""
        example = self.rows[number]
        if example.source == "decision":
            group = (
                self.groups[example.group].name if example.group < len(self.groups) else "to drop"
            )
            return f"“{example.text}” (decided {group})"
        where = {"name": "", "guideline": " of the guideline", "vocabulary": " of the vocabulary"}[
            example.source
        ]
        return f"“{example.text}”{where}"


def collect_examples(
    labels: EmbeddedLabels,
    groups: Sequence[Group],
    vocabulary: Iterable[VocabularyTerm],
    decisions: Iterable[Decision],
) -> Examples:
    """Collect the names of groups, the terms of guidelines and of the vocabulary, and decided labels."""
    terms = taxonomy_terms(groups, vocabulary)
    columns = {group.key: number for number, group in enumerate(groups)}
    decided = [
        Example(
            row.label, columns[row.group] if row.group else len(groups), "decision", (row.label_id,)
        )
        for row in decisions
        if row.decision != "unsure"
    ]
    by_id: defaultdict[str, set[int]] = defaultdict(set)
    by_text: defaultdict[str, set[int]] = defaultdict(set)
    for number, example in enumerate(decided, len(terms)):
        by_id[example.items[0]].add(number)
        by_text[normalise_label(example.text)].add(number)
    own = [
        frozenset(by_id.get(label_id, set()) | by_text.get(normalise_label(text), set()))
        for label_id, text in zip(labels.ids, labels.texts, strict=True)
    ]
    return Examples(groups, [*terms, *decided], own)


def taxonomy_terms(
    groups: Sequence[Group], vocabulary: Iterable[VocabularyTerm] = ()
) -> list[Example]:
    """Return the names of the groups, then the terms listed in their guidelines, then those of the vocabulary.

    The name of a group is not a term of another group, even if that group's guideline or the vocabulary lists it. The
    vocabulary adds only terms that no guideline lists.
    """
    terms: dict[tuple[tuple[str, ...], int], Example] = {}
    groups_by_name: dict[tuple[str, ...], int] = {}
    for number, group in enumerate(groups):
        for name in group.name.split(" / "):
            groups_by_name[normalised_words(name)] = number
            terms[normalised_words(name), number] = Example(name, number, "name")
    for number, group in enumerate(groups):
        for text in guideline_terms(group.guideline):
            words = normalised_words(text)
            if groups_by_name.get(words, number) == number:
                terms.setdefault((words, number), Example(text, number, "guideline"))
    listed = {words for words, _ in terms}
    columns = {group.key: number for number, group in enumerate(groups)}
    for term in vocabulary:
        words = normalised_words(term.text)
        if words not in listed:
            number = len(groups) if term.group is None else columns[term.group]
            terms.setdefault((words, number), Example(term.text, number, "vocabulary", term.items))
    return list(terms.values())


@dataclass(frozen=True)
class Evidence:
    """Evidence of one kind for every label and group.

    Args:
        values: float64, shape (n_labels, n_groups + 1); 0 without evidence; the last column is for no group. Values
            of the last two kinds may be below 0.
        explain: Returns the evidence in words, for the index of a label and of a group with a value other than 0.
    """

    values: Floats
    explain: Callable[[int, int], str]


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

    With ``compare_names``, labels and their superclasses are compared with the names of the groups and of the levels
    above by the kind "names", labels with decided labels by the kind "decided", and with all other examples by the
    kind "similar".
    """
    examples = collect_examples(labels, groups, vocabulary, decisions)
    votes = ClassVotes(examples, classes)
    vectors = embed([example.text for example in examples.rows])
    # Decisions leave the scale alone: values stay comparable as decisions come in.
    is_term = np.array([example.source != "decision" for example in examples.rows])
    example_groups = np.array([example.group for example in examples.rows], np.int64)
    scale = _cosine_scale(vectors[is_term], example_groups[is_term])
    evidence = [
        _term_evidence(labels, examples),
        *_superclass_evidence(labels, examples, votes),
        _ending_evidence(labels, examples),
    ]
    if compare_names:
        evidence += [
            _similarity_evidence(labels, examples, vectors, scale, ("guideline", "vocabulary")),
            _name_evidence(labels, examples, votes, embed, scale),
            _decided_evidence(labels, examples, vectors),
        ]
    else:
        nothing = Evidence(np.zeros_like(evidence[0].values), lambda row, group: "")
        evidence += [
            _similarity_evidence(labels, examples, vectors, scale, get_args(Source)),
            nothing,
            nothing,
        ]
    return evidence


def _term_evidence(labels: EmbeddedLabels, examples: Examples) -> Evidence:
    """Share of the group among the terms and decided labels with the same words; links of the class count as well."""
    matches = [
        [
            number
            for number in examples.by_words.get(normalised_words(text), ())
            if number not in own
        ]
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
        return (
            sources.get(examples.rows[numbers[0]].source)
            or f"named like {examples.quote(numbers[0])}"
        )

    return Evidence(values, explain)


def _superclass_evidence(
    labels: EmbeddedLabels, examples: Examples, votes: ClassVotes
) -> list[Evidence]:
    """Shares of the group in the direct superclasses, and in the farther ones."""
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


def _similarity_evidence(
    labels: EmbeddedLabels,
    examples: Examples,
    vectors: Floats,
    scale: ScaleCosines,
    sources: Collection[Source],
) -> Evidence:
    """Scaled cosine to the nearest example of the group that comes from one of several sources.

    Args:
        vectors: float64, shape (n_examples, dimension).
    """
    example_groups = np.array([example.group for example in examples.rows], np.int64)
    # Examples from other sources have a column of their own, which is not used.
    is_unused = np.array([example.source not in sources for example in examples.rows])
    example_groups[is_unused] = examples.n_columns
    cosines, nearest = nearest_examples(
        labels.vectors,
        vectors,
        example_groups,
        examples.n_columns + 1,
        list(map(sorted, examples.own)),
    )

    def explain(row: int, group: int) -> str:
        number = int(nearest[row, group])
        source = examples.rows[number].source
        if source == "name":
            return "near the group's name"
        return f"{'like' if source == 'decision' else 'near'} {examples.quote(number)}"

    return Evidence(np.maximum(scale(cosines[:, :-1]), 0), explain)


def _name_evidence(
    labels: EmbeddedLabels,
    examples: Examples,
    votes: ClassVotes,
    embed: EmbedTexts,
    scale: ScaleCosines,
) -> Evidence:
    """Scaled cosine to the names of the group, of the label and of the superclass that is nearest to them.

    Both count alike. Their sum is divided by the square root of 2, so that it is as large as one of them alone where
    they say nothing.
    """
    superclasses = [
        votes.superclass_weights(label_id, text)
        for label_id, text in zip(labels.ids, labels.texts, strict=True)
    ]
    values = np.zeros((len(labels.ids), examples.n_columns))
    values[:, :-1] = scale(name_cosines(labels.texts, labels.vectors, examples.groups, embed))
    texts = list(dict.fromkeys(name for weights in superclasses for name in weights))
    scaled_cosines: Mapping[str, Floats] = {}
    if texts:
        cosines = scale(name_cosines(texts, embed(texts), examples.groups, embed))
        scaled_cosines = dict(zip(texts, cosines, strict=True))
    for row, weights in enumerate(superclasses):
        if weights:
            weighted = [weight * scaled_cosines[name] for name, weight in weights.items()]
            values[row, :-1] = (values[row, :-1] + np.max(weighted, axis=0)) / math.sqrt(2)

    def explain(row: int, group: int) -> str:
        reason = "similar to the names of the group and the levels above it"
        weights = superclasses[row]
        if not weights:
            return reason
        nearest = max(weights, key=lambda name: weights[name] * scaled_cosines[name][group])
        return f"{reason}, as a subclass of {nearest}"

    return Evidence(values, explain)


def _decided_evidence(labels: EmbeddedLabels, examples: Examples, vectors: Floats) -> Evidence:
    """Similarity to the decided labels of the group and of the levels above it."""
    decided = [
        number for number, example in enumerate(examples.rows) if example.source == "decision"
    ]
    if not decided:
        return Evidence(np.zeros((len(labels.ids), examples.n_columns)), lambda row, group: "")
    place_of = {number: place for place, number in enumerate(decided)}
    is_own = np.zeros((len(labels.ids), len(decided)), bool)
    for row, own in enumerate(examples.own):
        is_own[row, [place_of[number] for number in own]] = True
    decided_groups = np.array([examples.rows[number].group for number in decided], np.int64)
    # Rounded: the order of summation depends on the row, and must not decide between equal cosines.
    cosines = np.round(labels.vectors @ vectors[decided].T, 6)
    values = decided_similarity(cosines, decided_groups, is_own, examples.groups)
    nodes = level_nodes(examples.groups)
    in_group = decided_groups < len(examples.groups)

    def explain(row: int, group: int) -> str:
        candidates = np.flatnonzero(in_group & ~is_own[row])
        is_shared = nodes[:, decided_groups[candidates]] == nodes[:, [group]]
        # The nearest one among those that share most levels.
        order = np.lexsort((cosines[row, candidates], is_shared.sum(axis=0)))
        return f"like {examples.quote(decided[candidates[order[-1]]])}"

    return Evidence(values, explain)


def name_cosines(
    texts: Sequence[str], vectors: Floats, groups: Sequence[Group], embed: EmbedTexts
) -> Floats:
    """Return the mean cosine of n texts to several texts for each group: float64, shape (n, n_groups).

    Three texts are compared with each: the name of the group or the nearest of its parts, as in "Mugs & Cups"; its
    words in the singular; and the names of all levels, which tell a kitchen's fork from a garden's. The parts are
    compared with the last word of the text, too, with a fifth of the weight: a "field recorder" is a recorder.

    Args:
        vectors: float64, shape (n, dimension); unit vectors of the texts.
    """
    parts = [list(dict.fromkeys([group.name, *_NAME_PARTS.split(group.name)])) for group in groups]
    owner = np.repeat(np.arange(len(groups)), [len(names) for names in parts])
    part_vectors = embed([name for names in parts for name in names])
    heads = embed([" ".join(head_words(text)[-1:]) or text for text in texts])
    singular_names = [" ".join(normalised_words(group.name)) or group.name for group in groups]
    singular = vectors @ embed(singular_names).T
    path = vectors @ embed([", ".join(dict.fromkeys(group.path)) for group in groups]).T
    name, _ = nearest_examples(vectors, part_vectors, owner, len(groups))
    head, _ = nearest_examples(heads, part_vectors, owner, len(groups))
    # Rounded as in nearest_examples.
    return np.asarray(np.round((name + singular + path) / 3 + head / 5, 6) / 1.2)


def _cosine_scale(vectors: Floats, groups: Integers) -> ScaleCosines:
    """Return a function that standardises cosines by those between terms of different groups.

    This makes the evidence comparable between encoders, some of which give high cosines to all pairs.
    """
    step = max(1, math.ceil(len(vectors) / _MAX_SCALE_TERMS))
    vectors, groups = vectors[::step], groups[::step]
    between_groups = (vectors @ vectors.T)[groups[:, None] != groups]
    if not len(between_groups):
        return lambda cosines: cosines
    mean = between_groups.mean()
    deviation = max(between_groups.std(), 0.01)
    return lambda cosines: (cosines - mean) / deviation


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
        excluded: For each vector, the indices of examples to ignore; empty if there are none.

    Returns:
        Cosines, rounded to six digits, and indices of the examples (on ties the first), both of shape (n, n_groups);
        -1 and -1 where a group has no example.
    """
    pairs = np.array(
        [(row, number) for row, numbers in enumerate(excluded) for number in numbers], np.int64
    )
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


class Endings:
    """Groups of labels by the whole words that they end in: a "stave church" is a church.

    The longest ending that a label shares with examples counts most; shorter ones, down to the last word, fill in
    what the longer one leaves open. A word such as "tower", which ends the names of several groups, is divided among
    them. Examples with the indices ``own`` are ignored.
    """

    def __init__(self, examples: Examples) -> None:
        self._examples = examples
        self._numbers: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for number, example in enumerate(examples.rows):
            for ending, _ in _weighted_endings(example.text):
                self._numbers[ending].append(number)
        self._votes = self._count_votes(range(len(examples.rows)))

    def shares(self, text: str, own: Iterable[int]) -> Floats:
        """Return the smoothed share of each group among the examples that end as a label does.

        The shares at an ending are the votes of its examples and, with the weight ``_SHORTER_WEIGHT``, the shares at
        the next shorter ending (Dirichlet smoothing as in language models).

        Returns:
            float64, shape (n_groups + 1,); sums to less than 1.
        """
        own_votes = self._count_votes(own)
        shares = np.zeros(self._examples.n_columns)
        for ending, _ in reversed(_weighted_endings(text)):
            if ending not in self._votes:
                break
            votes = self._votes[ending] - own_votes.get(ending, 0)
            shares = (votes + _SHORTER_WEIGHT * shares) / (votes.sum() + _SHORTER_WEIGHT)
        return shares

    def _count_votes(self, numbers: Iterable[int]) -> Mapping[tuple[str, ...], Floats]:
        votes: dict[tuple[str, ...], Floats] = {}
        for number in numbers:
            example = self._examples.rows[number]
            for ending, weight in _weighted_endings(example.text):
                votes.setdefault(ending, np.zeros(self._examples.n_columns))[example.group] += (
                    weight
                )
        return votes

    def explain(self, text: str, own: frozenset[int], group: int) -> str:
        """Name an example of a group with the longest ending in common with a label."""
        rows = self._examples.rows
        ending, numbers = next(
            (ending, numbers)
            for ending, _ in _weighted_endings(text)
            if (
                numbers := [
                    n
                    for n in self._numbers.get(ending, ())
                    if n not in own and rows[n].group == group
                ]
            )
        )
        # The shortest text shows best which words are shared.
        number = min(numbers, key=lambda n: len(head_words(rows[n].text)))
        is_whole = rows[number].source != "decision" and head_words(rows[number].text) == tuple(
            filter(None, ending)
        )
        return (
            f"named after “{rows[number].text}”"
            if is_whole
            else f"named like {self._examples.quote(number)}"
        )


def _weighted_endings(text: str) -> list[tuple[tuple[str, ...], float]]:
    """Return the last words of a head noun phrase with their weights, the longest sequence first.

    The first sequence is the whole phrase once more, marked by an empty word in front.
    """
    words = head_words(text)
    if not words:
        return []
    shorter = [(words[start:], 1.0) for start in range(1, len(words))]
    return [(("", *words), _WHOLE_WEIGHT), (words, _WHOLE_WEIGHT), *shorter]


class ClassVotes:
    """Groups of labels by the superclasses of their class ("subclass of", P279): a post mill is a windmill.

    A superclass points to the groups that are known for it, and to those known for its other subclasses. The nearest
    superclasses count most; farther ones fill in what these leave open. A class above many groups, such as
    "building", is divided among them and so says little. Examples with the indices ``own`` are ignored.

    Args:
        classes: ``classes`` tables; for a class in several of them the first one counts.
    """

    def __init__(self, examples: Examples, classes: Sequence[pa.Table]) -> None:
        rows = {row["item"]: row for table in reversed(classes) for row in table.to_pylist()}
        self._examples = examples
        self._parents: Mapping[str, Sequence[str]] = {
            item: list(dict.fromkeys(row["subclass_of"])) for item, row in rows.items()
        }
        self._labels: dict[str, str] = {item: row["label"] for item, row in rows.items()}
        parents = {parent for above in self._parents.values() for parent in above}
        self._named = self._find_examples(sorted(rows.keys() | parents))
        self._items_of: defaultdict[int, list[str]] = defaultdict(list)
        for item, numbers in self._named.items():
            for number in numbers:
                self._items_of[number].append(item)
        self._items_by_text: defaultdict[str, list[str]] = defaultdict(list)
        for item, label in self._labels.items():
            self._items_by_text[normalise_label(label)].append(item)
        self._votes_below: defaultdict[str, Floats] = defaultdict(
            lambda: np.zeros(examples.n_columns, np.float64)
        )
        for item, above in self._parents.items():
            share = self._known_share(item, frozenset())
            if share is not None:
                for parent in above:
                    self._votes_below[parent] += share

    def _find_examples(self, items: Iterable[str]) -> dict[str, list[int]]:
        """Return the examples that name each class: by id, or else by words."""
        by_item: defaultdict[str, list[int]] = defaultdict(list)
        for number, example in enumerate(self._examples.rows):
            for item in example.items:
                by_item[item].append(number)
        named = {}
        for item in items:
            numbers = list(by_item.get(item, ()))
            if item in self._labels:
                by_words = self._examples.by_words.get(normalised_words(self._labels[item]), ())
                numbers += [number for number in by_words if number not in numbers]
            if numbers:
                named[item] = numbers
        return named

    def _known_share(self, item: str, own: frozenset[int]) -> Floats | None:
        """Return the share of each group in what is known for a class itself; None if nothing is."""
        votes = np.zeros(self._examples.n_columns)
        linked = self._examples.linked_groups.get(item)
        if linked is not None:
            votes[linked] += 1
        for number in self._named.get(item, ()):
            example = self._examples.rows[number]
            if number not in own:
                votes[example.group] += _DECISION_WEIGHT if example.source == "decision" else 1
        total = votes.sum()
        return votes / total if total else None

    def shares(self, label_id: str, text: str, own: frozenset[int]) -> Floats:
        """Return the smoothed share of each group in the superclasses of a label's class, found by id or text.

        Returns:
            float64, shape (2, n_groups + 1): from the direct superclasses, and from farther ones; the sum of both is
            less than 1.
        """
        below = self._own_votes_below(label_id, text, own)
        direct = farther = np.zeros(self._examples.n_columns)
        # From the farthest classes to the nearest: each step adds what is nearer and weakens what is farther.
        for level in reversed(self._levels(label_id, text)):
            votes = np.sum([self._class_votes(item, own, below) for item in level], axis=0)
            total = votes.sum() + _FARTHER_WEIGHT
            direct, farther = (
                votes / total,
                _DECAY_PER_STEP * (direct + farther) * _FARTHER_WEIGHT / total,
            )
        return np.stack([direct, farther])

    def _levels(self, label_id: str, text: str) -> list[list[str]]:
        if label_id not in self._parents:
            items = self._items_by_text.get(normalise_label(text), [])
            if len(items) != 1:
                return []
            label_id = items[0]
        return levels_above([label_id], self._parents)

    def superclass_weights(self, label_id: str, text: str) -> dict[str, float]:
        """Return the names of the superclasses of a label's class, up to ``_NAMED_STEPS`` above, with their weights.

        A direct superclass has the weight 1, and one a step farther ``_DECAY_PER_STEP`` of it. Superclasses that no
        table names are left out.
        """
        weights: dict[str, float] = {}
        for step, items in enumerate(self._levels(label_id, text)[:_NAMED_STEPS]):
            for item in items:
                if item in self._labels:
                    weights.setdefault(self._labels[item], _DECAY_PER_STEP**step)
        return weights

    def _own_votes_below(self, label_id: str, text: str, own: frozenset[int]) -> dict[str, Floats]:
        """Return what to subtract from the votes below each class: those of the label itself."""
        items = {label_id, *self._items_by_text.get(normalise_label(text), ())}
        changed = {item for number in own for item in self._items_of[number]}
        below: dict[str, Floats] = {}
        for item in sorted(items | changed):
            share = self._known_share(item, frozenset())
            if share is None:
                continue
            rest = None if item in items else self._known_share(item, own)
            for parent in self._parents.get(item, ()):
                below[parent] = below.get(parent, 0) + share - (0 if rest is None else rest)
        return below

    def _class_votes(
        self, item: str, own: frozenset[int], own_below: Mapping[str, Floats]
    ) -> Floats:
        """Return the votes of a class, fewer the more groups it is divided among."""
        votes = np.zeros(self._examples.n_columns)
        if item in self._votes_below:
            votes += self._votes_below[item]
        if item in own_below:
            votes = np.maximum(np.round(votes - own_below[item], 9), 0.0)
        share = self._known_share(item, own)
        if share is not None:
            votes += _OWN_WEIGHT * share
        total = votes.sum()
        if not total:
            return votes
        purity = votes.max() / total
        return np.asarray(votes / total * min(total, _MAX_VOTES) * purity)

    def explain(
        self, label_id: str, text: str, own: frozenset[int], group: int, *, direct: bool
    ) -> str:
        """Name the nearest superclass that points to a group with a share above 0."""
        below = self._own_votes_below(label_id, text, own)
        levels = self._levels(label_id, text)
        for level in levels[:1] if direct else levels[1:]:
            votes = {item: self._class_votes(item, own, below)[group] for item in level}
            item = max(level, key=votes.__getitem__)
            if votes[item]:
                return self._describe(item, own, group)
        raise ValueError(f"no such superclass of {label_id} points to the group {group}")

    def _describe(self, item: str, own: frozenset[int], group: int) -> str:
        name, rows = self._labels.get(item, item), self._examples.rows
        numbers = [n for n in self._named.get(item, ()) if n not in own and rows[n].group == group]
        decided = [n for n in numbers if rows[n].source == "decision"]
        if decided:
            return f"subclass of {self._examples.quote(decided[0])}"
        if numbers or self._examples.linked_groups.get(item) == group:
            return f"subclass of {name}"
        return f"subclass of {name}, as others of the group"

"""Examples that labels are compared with: texts and classes whose group is known, or that belong to none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgld.labels.wording import guideline_terms, normalised_words
from hgld.taxonomy.decisions import Decision
from hgld.taxonomy.groups import Group, VocabularyTerm
from hgld.taxonomy.label_identity import normalise_label

#: Where an example comes from: a group's name, its guideline, the vocabulary, or a decision.
Source = Literal["name", "guideline", "vocabulary", "decision"]


class EmbeddedLabels(NamedTuple):
    """Ids, texts and unit vectors (float64, shape (n, dimension)) of n labels."""

    ids: Sequence[str]
    texts: Sequence[str]
    vectors: NDArray[np.float64]


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
            group = self.groups[example.group].name if example.group < len(self.groups) else "to drop"
            return f"“{example.text}” (decided {group})"
        where = {"name": "", "guideline": " of the guideline", "vocabulary": " of the vocabulary"}[example.source]
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
        Example(row.label, columns[row.group] if row.group else len(groups), "decision", (row.label_id,))
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


def taxonomy_terms(groups: Sequence[Group], vocabulary: Iterable[VocabularyTerm] = ()) -> list[Example]:
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

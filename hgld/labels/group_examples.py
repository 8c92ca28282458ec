"""Examples of groups: names, terms of guidelines and of the vocabulary, and decided labels.

The decision on a label itself is not an example for that label, so suggestions can be compared with
decisions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from hgld.arrays import Floats
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
        groups: The groups of the taxonomy.
        rows: The examples, decisions last.
        own_decisions: For each label, the indices of the examples that are decisions on the label
            itself.
    """

    groups: Sequence[Group]
    rows: Sequence[Example]
    own_decisions: Sequence[frozenset[int]]

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
        """Return the text of an example in quotation marks, and its source in words."""
        example = self.rows[number]
        quoted_text = f"“{example.text}”"
        if example.source == "name":
            return quoted_text
        if example.source != "decision":
            return f"{quoted_text} of the {example.source}"
        if example.group < len(self.groups):
            return f"{quoted_text} (decided {self.groups[example.group].name})"
        return f"{quoted_text} (decided to drop)"


def collect_examples(
    labels: EmbeddedLabels,
    groups: Sequence[Group],
    vocabulary: Iterable[VocabularyTerm],
    decisions: Iterable[Decision],
) -> Examples:
    """Collect the names of groups, the terms of guidelines and of the vocabulary, and decided labels."""
    examples = taxonomy_terms(groups, vocabulary)
    columns = {group.key: number for number, group in enumerate(groups)}
    by_id: defaultdict[str, set[int]] = defaultdict(set)
    by_text: defaultdict[str, set[int]] = defaultdict(set)
    for decision in decisions:
        if decision.decision == "unsure":
            continue
        by_id[decision.label_id].add(len(examples))
        by_text[normalise_label(decision.label)].add(len(examples))
        group = columns[decision.group] if decision.group else len(groups)
        examples.append(Example(decision.label, group, "decision", (decision.label_id,)))
    own_decisions = []
    for label_id, text in zip(labels.ids, labels.texts, strict=True):
        same_id = by_id.get(label_id, set())
        same_text = by_text.get(normalise_label(text), set())
        own_decisions.append(frozenset(same_id | same_text))
    return Examples(groups, examples, own_decisions)


def taxonomy_terms(
    groups: Sequence[Group], vocabulary: Iterable[VocabularyTerm] = ()
) -> list[Example]:
    """Return the names of groups, then the terms of their guidelines, then the vocabulary.

    The name of a group is not a term of another group, even if that group's guideline or the
    vocabulary lists it. The vocabulary adds only terms that no guideline lists.
    """
    terms: dict[tuple[tuple[str, ...], int], Example] = {}
    groups_by_name: dict[tuple[str, ...], int] = {}
    for number, group in enumerate(groups):
        for name in group.name.split(" / "):
            words = normalised_words(name)
            groups_by_name[words] = number
            terms[words, number] = Example(name, number, "name")
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

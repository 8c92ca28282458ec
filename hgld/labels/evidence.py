"""What speaks for a label's being in a group: one number for each kind of evidence, and what was found in words.

Three things are known before anybody has decided anything: the names of the groups, the typical members that their
guidelines list, and the classes of Wikidata that the taxonomy links to them. Decisions on other labels add to each of
these. What was decided on a label itself is never evidence for it, so that the two can be compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hgld.labels.wording import Term, head_words, taxonomy_terms, words_of
from hgld.taxonomy.decisions import Decision, DecisionIndex
from hgld.taxonomy.groups import Group
from hgld.taxonomy.label_identity import normalise_label

#: A term of the group; a class of it or below one; the same last words; like a decided label; near a term.
KINDS = ("named", "subclass", "head", "alike", "near")

#: Turns texts into unit vectors, shape (texts, dimension).
Embed = Callable[[Sequence[str]], NDArray[np.float64]]

#: One example is no certainty: shares are taken as if there were half an example more, of no group.
_DOUBT = 0.5
#: How much a class still counts one step further up.
_PER_STEP = 0.7


class Labels(NamedTuple):
    """Labels, one entry each: ids, texts, and unit vectors, float64, shape (n, dimension)."""

    ids: Sequence[str]
    texts: Sequence[str]
    vectors: NDArray[np.float64]


@dataclass(frozen=True)
class Finding:
    """Evidence of one kind.

    Args:
        values: float64, shape (labels, groups), 0 where nothing was found.
        words: what was found for a label in favour of a group, given the two numbers.
    """

    values: NDArray[np.float64]
    words: Callable[[int, int], str]


@dataclass(frozen=True)
class _Known:
    """What labels are compared with.

    Args:
        groups: the taxonomy.
        terms: its terms.
        decided: decisions for a group of the taxonomy.
        group_of: the group of each decision, by its number.
        own: for every label the numbers of the decisions on the label itself, by its id or its text.
    """

    groups: Sequence[Group]
    terms: Sequence[Term]
    decided: Sequence[Decision]
    group_of: NDArray[np.int64]
    own: Sequence[set[int]]


def find_evidence(
    labels: Labels,
    groups: Sequence[Group],
    decisions: Iterable[Decision],
    classes: Sequence[pa.Table],
    embed: Embed,
) -> list[Finding]:
    """The evidence of every kind, in the order of ``KINDS``.

    Args:
        labels: the labels.
        groups: the taxonomy.
        decisions: what was decided; only decisions for a group are evidence.
        classes: ``classes`` tables; the first that knows a class counts.
        embed: the encoder that made ``labels.vectors``, with its templates.
    """
    numbers = {group.name: number for number, group in enumerate(groups)}
    decided = [row for row in decisions if row.decision == "group"]
    known = _Known(
        groups,
        taxonomy_terms(groups),
        decided,
        np.array([numbers[row.group or ""] for row in decided], np.int64),
        _own(labels, decided),
    )
    term_vectors = embed([term.text for term in known.terms])
    scaled = _scale(term_vectors, np.array([term.group for term in known.terms]))
    return [
        _named(labels, known),
        _subclass(labels, known, classes),
        _same_head(labels, known),
        _alike(labels, known, embed, scaled),
        _near(labels, known, term_vectors, scaled),
    ]


def _own(labels: Labels, decided: Sequence[Decision]) -> list[set[int]]:
    by_id: defaultdict[str, set[int]] = defaultdict(set)
    by_text: defaultdict[str, set[int]] = defaultdict(set)
    for number, row in enumerate(decided):
        by_id[row.label_id].add(number)
        by_text[normalise_label(row.label)].add(number)
    return [
        by_id[label_id] | by_text[normalise_label(text)]
        for label_id, text in zip(labels.ids, labels.texts, strict=True)
    ]


def _named(labels: Labels, known: _Known) -> Finding:
    """1 where the label is a term of the group; several groups with it share the 1."""
    claims: defaultdict[tuple[str, ...], list[Term]] = defaultdict(list)
    for term in known.terms:
        claims[words_of(term.text)].append(term)
    values = np.zeros((len(labels.ids), len(known.groups)))
    for row, text in enumerate(labels.texts):
        claimed = claims.get(words_of(text), [])
        for term in claimed:
            values[row, term.group] = 1 / len(claimed)

    def words(row: int, group: int) -> str:
        (term,) = (term for term in claims[words_of(labels.texts[row])] if term.group == group)
        return "a name of the group" if term.is_name else "named in the group's guideline"

    return Finding(values, words)


def _scale(
    vectors: NDArray[np.float64], group_of: NDArray[np.int64]
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Measures cosines by those between terms of different groups: in standard deviations above their mean.

    What is below the mean is 0. This way an encoder whose cosines are all high is not taken at its word.
    """
    unrelated = (vectors @ vectors.T)[group_of[:, None] != group_of]
    mean, deviation = (unrelated.mean(), max(unrelated.std(), 0.01)) if unrelated.size else (0.0, 1.0)
    return lambda cosines: np.maximum((cosines - mean) / deviation, 0.0)


def _near(
    labels: Labels,
    known: _Known,
    vectors: NDArray[np.float64],
    scaled: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> Finding:
    """How near the nearest term is."""
    group_of = np.array([term.group for term in known.terms])
    cosines, which = nearest(labels.vectors, vectors, group_of, len(known.groups))

    def words(row: int, group: int) -> str:
        term = known.terms[which[row, group]]
        return "near the group's name" if term.is_name else f"near “{term.text}” of the guideline"

    return Finding(scaled(cosines), words)


def _alike(
    labels: Labels, known: _Known, embed: Embed, scaled: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> Finding:
    """How near the nearest label is that was decided."""
    if not known.decided:
        return Finding(np.zeros((len(labels.ids), len(known.groups))), lambda row, group: "")
    vectors = embed([row.label for row in known.decided])
    cosines, which = nearest(labels.vectors, vectors, known.group_of, len(known.groups), known.own)
    return Finding(scaled(cosines), lambda row, group: f"like {_decided(known.decided[which[row, group]])}")


def nearest(
    vectors: NDArray[np.float64],
    examples: NDArray[np.float64],
    group_of: NDArray[np.int64],
    n_groups: int,
    excluded: Sequence[Iterable[int]] = (),
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The cosine to the nearest example of every group, and which one it is (of equal ones the first).

    Args:
        vectors: unit vectors, shape (n, dimension).
        examples: unit vectors, shape (m, dimension).
        group_of: the group of every example, shape (m,).
        n_groups: how many groups there are.
        excluded: for every vector the examples that it is not compared with; empty for none.

    Returns:
        Cosines, rounded to six digits, and numbers of examples, both of shape (n, n_groups); -1 and -1 where a
        group has no example. Memory: O(n * examples of the largest group).
    """
    pairs = np.array([(row, number) for row, numbers in enumerate(excluded) for number in numbers], np.int64)
    pairs = pairs.reshape(-1, 2)
    cosines = np.full((len(vectors), n_groups), -1.0)
    which = np.full((len(vectors), n_groups), -1, np.int64)
    for group in np.unique(group_of):
        members = np.flatnonzero(group_of == group)
        # In which order parts are summed up depends on the place of a row, and must not decide between equals.
        found = np.round(vectors @ examples[members].T, 6)
        here = pairs[group_of[pairs[:, 1]] == group]
        found[here[:, 0], np.searchsorted(members, here[:, 1])] = -np.inf
        best, cosine = found.argmax(axis=1), found.max(axis=1)
        some = np.isfinite(cosine)
        cosines[some, group], which[some, group] = cosine[some], members[best[some]]
    return cosines, which


def _same_head(labels: Labels, known: _Known) -> Finding:
    """Of all terms and decided labels that end in the same words, as many as possible, the share in the group."""
    n_terms = len(known.terms)
    texts = [term.text for term in known.terms] + [row.label for row in known.decided]
    groups = [term.group for term in known.terms] + known.group_of.tolist()
    ending: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, text in enumerate(texts):
        for end in _ends(text):
            ending[end].append(number)

    shared: list[tuple[tuple[str, ...], list[int]]] = []
    values = np.zeros((len(labels.ids), len(known.groups)))
    for row, text in enumerate(labels.texts):
        found = (
            (end, [number for number in ending.get(end, ()) if number - n_terms not in known.own[row]])
            for end in _ends(text)
        )
        end, others = next(((end, others) for end, others in found if others), ((), []))
        shared.append((end, others))
        for group, count in Counter(groups[number] for number in others).items():
            values[row, group] = count / (len(others) + _DOUBT)

    def words(row: int, group: int) -> str:
        end, others = shared[row]
        # The one with the fewest words besides shows best what is shared.
        number = min((n for n in others if groups[n] == group), key=lambda n: len(head_words(texts[n])))
        if number >= n_terms:
            return f"named like {_decided(known.decided[number - n_terms])}"
        same = head_words(texts[number]) == end
        return f"named after “{texts[number]}”" if same else f"named like “{texts[number]}” of the guideline"

    return Finding(values, words)


def _ends(label: str) -> Iterable[tuple[str, ...]]:
    """The last words of a label's head, the most of them first."""
    words = head_words(label)
    return (words[start:] for start in range(len(words)))


def _subclass(labels: Labels, known: _Known, classes: Sequence[pa.Table]) -> Finding:
    """1 where the label's class, or the nearest one above it (P279) that belongs to any group, belongs to this one.

    It is less for each further step. A class belongs to the group that was decided for it, else to the one that
    the taxonomy links it to, else to the only one that has its label for a term (where classes are numbered
    otherwise than on Wikidata). Several classes at the same distance share.
    """
    class_rows = {row["item"]: row for table in reversed(classes) for row in table.to_pylist()}
    parents = {item: row["subclass_of"] for item, row in class_rows.items()}
    label_of = {item: row["label"] for item, row in class_rows.items()}
    decisions = DecisionIndex(known.decided)
    number_of = {row: number for number, row in enumerate(known.decided)}
    linked = {item: number for number, group in enumerate(known.groups) for item in group.items}
    group_at = _only_claims(label_of, known.terms) | linked

    def decision_on(item: str, row: int) -> Decision | None:
        decision = decisions.find(item, label_of.get(item, item))
        return None if decision is None or number_of[decision] in known.own[row] else decision

    values = np.zeros((len(labels.ids), len(known.groups)))
    found_at: dict[tuple[int, int], str] = {}
    for row, label_id in enumerate(labels.ids):

        def belongs(item: str, row: int = row) -> int | None:
            decision = decision_on(item, row)
            return group_at.get(item) if decision is None else int(known.group_of[number_of[decision]])

        if label_id in linked:
            steps, found = 1, [(label_id, linked[label_id])]
        else:
            steps, found = nearest_above(label_id, parents, belongs)
        for item, group in found:
            values[row, group] += _PER_STEP ** (steps - 1) / len(found)
            found_at.setdefault((row, group), item)

    def words(row: int, group: int) -> str:
        item = found_at[row, group]
        if item == labels.ids[row]:
            return "a class that the group is linked to"
        decision = decision_on(item, row)
        return f"subclass of {_decided(decision) if decision else label_of.get(item, item)}"

    return Finding(values, words)


def _only_claims(label_of: Mapping[str, str], terms: Sequence[Term]) -> dict[str, int]:
    """The group of every class whose label is a term of that group and of no other."""
    groups: defaultdict[tuple[str, ...], set[int]] = defaultdict(set)
    for term in terms:
        groups[words_of(term.text)].add(term.group)
    claims = {item: groups.get(words_of(label), set()) for item, label in label_of.items()}
    return {item: next(iter(claimed)) for item, claimed in claims.items() if len(claimed) == 1}


def nearest_above(
    item: str, parents: Mapping[str, Sequence[str]], belongs: Callable[[str], int | None]
) -> tuple[int, list[tuple[str, int]]]:
    """The classes above ``item`` that belong to a group and are the fewest steps away: the steps, and each with it.

    >>> nearest_above("Q3", {"Q3": ["Q2"], "Q2": ["Q1", "Q0"]}, {"Q1": 7, "Q3": 8}.get)
    (2, [('Q1', 7)])
    """
    seen, level, steps = {item}, [item], 0
    while level:
        above = dict.fromkeys(parent for child in level for parent in parents.get(child, ()))
        level, steps = [parent for parent in above if parent not in seen], steps + 1
        seen.update(level)
        found = [(parent, group) for parent in level if (group := belongs(parent)) is not None]
        if found:
            return steps, found
    return steps, []


def _decided(row: Decision) -> str:
    return f"“{row.label}” (decided {row.group})"

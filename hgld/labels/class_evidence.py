"""Groups of labels by the superclasses of their class ("subclass of", P279): a post mill is a windmill.

A superclass points to the groups that are known for it, and to those known for its other subclasses. The nearest
superclasses count most; farther ones fill in what these leave open. A class above many groups, such as "building",
is divided among them and so says little.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hgld.labels.class_graph import levels_above
from hgld.labels.examples import Examples
from hgld.labels.wording import normalised_words
from hgld.taxonomy.label_identity import normalise_label

#: Weight of what is known for a class itself, compared with one of its subclasses.
_OWN_WEIGHT = 3.0
#: Weight of a decision on a class, compared with a term or link for it.
_DECISION_WEIGHT = 3.0
#: Number of votes up to which a class counts more than another at the same distance.
_MAX_VOTES = 4.0
#: Weight of all farther classes together, in votes.
_FARTHER_WEIGHT = 0.3
#: Factor for each step up to a farther superclass.
_DECAY_PER_STEP = 0.8


class ClassVotes:
    """Votes for groups by class.

    Args:
        examples: Terms and decided labels.
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
        self._votes_below: defaultdict[str, NDArray[np.float64]] = defaultdict(
            lambda: np.zeros(examples.n_columns, np.float64)
        )
        for item, above in self._parents.items():
            share = self._share(item, frozenset())
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

    def _share(self, item: str, own: frozenset[int]) -> NDArray[np.float64] | None:
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

    def shares(self, label_id: str, text: str, own: frozenset[int]) -> NDArray[np.float64]:
        """Return the smoothed share of each group in the superclasses of a label's class.

        Args:
            label_id: Id of the class, else the class with the text as its only label.
            text: Text of the label.
            own: Indices of examples to ignore.

        Returns:
            float64, shape (2, n_groups + 1): from the direct superclasses, and from farther ones; the sum of both is
            less than 1.
        """
        below = self._own_votes_below(label_id, text, own)
        direct = farther = np.zeros(self._examples.n_columns)
        for level in reversed(self._levels(label_id, text)):
            votes = np.sum([self._votes(item, own, below) for item in level], axis=0)
            total = votes.sum() + _FARTHER_WEIGHT
            direct, farther = votes / total, _DECAY_PER_STEP * (direct + farther) * _FARTHER_WEIGHT / total
        return np.stack([direct, farther])

    def _levels(self, label_id: str, text: str) -> list[list[str]]:
        if label_id not in self._parents:
            items = self._items_by_text.get(normalise_label(text), [])
            if len(items) != 1:
                return []
            label_id = items[0]
        return levels_above(label_id, self._parents)

    def _own_votes_below(self, label_id: str, text: str, own: frozenset[int]) -> dict[str, NDArray[np.float64]]:
        """Return what to subtract from the votes below each class: those of the label itself."""
        items = {label_id, *self._items_by_text.get(normalise_label(text), ())}
        changed = {item for number in own for item in self._items_of[number]}
        below: dict[str, NDArray[np.float64]] = {}
        for item in sorted(items | changed):
            share = self._share(item, frozenset())
            if share is None:
                continue
            rest = None if item in items else self._share(item, own)
            for parent in self._parents.get(item, ()):
                below[parent] = below.get(parent, 0) + share - (0 if rest is None else rest)
        return below

    def _votes(
        self, item: str, own: frozenset[int], own_below: Mapping[str, NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Return the votes of a class, fewer the more groups it is divided among."""
        votes = np.zeros(self._examples.n_columns)
        if item in self._votes_below:
            votes += self._votes_below[item]
        if item in own_below:
            votes = np.maximum(np.round(votes - own_below[item], 9), 0.0)
        share = self._share(item, own)
        if share is not None:
            votes += _OWN_WEIGHT * share
        total = votes.sum()
        if not total:
            return votes
        purity = votes.max() / total
        return np.asarray(votes / total * min(total, _MAX_VOTES) * purity)

    def explain(self, label_id: str, text: str, own: frozenset[int], group: int, *, direct: bool) -> str:
        """Name the nearest superclass that points to a group with a share above 0.

        Args:
            label_id: See :meth:`shares`.
            text: See :meth:`shares`.
            own: See :meth:`shares`.
            group: Index of the group.
            direct: Name a direct superclass; otherwise a farther one.
        """
        below = self._own_votes_below(label_id, text, own)
        levels = self._levels(label_id, text)
        for level in levels[:1] if direct else levels[1:]:
            votes = {item: self._votes(item, own, below)[group] for item in level}
            item = max(level, key=votes.__getitem__)
            if votes[item]:
                return self._describe(item, own, group)
        raise ValueError(f"no such superclass of {label_id} points to the group {group}")

    def _describe(self, item: str, own: frozenset[int], group: int) -> str:
        name = self._labels.get(item, item)
        numbers = [n for n in self._named.get(item, ()) if n not in own]
        decided = [
            n
            for n in numbers
            if self._examples.rows[n].source == "decision" and self._examples.rows[n].group == group
        ]
        if decided:
            return f"subclass of {self._examples.quote(decided[0])}"
        if self._examples.linked_groups.get(item) == group or any(
            self._examples.rows[n].group == group for n in numbers
        ):
            return f"subclass of {name}"
        return f"subclass of {name}, as others of the group"

"""Evidence from the superclasses ("subclass of", P279) of a label: a post mill is a windmill."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from hgld.arrays import Floats
from hgld.labels.class_tree import levels_above
from hgld.labels.group_examples import Examples
from hgld.labels.wording import normalised_words
from hgld.taxonomy.label_identity import normalise_label

#: Weight of the groups that are known for a class itself, compared with the groups of one subclass.
_OWN_WEIGHT = 3.0
#: Weight of a decision on a class, compared with a term or link for the class.
_DECISION_WEIGHT = 3.0
#: Number of votes up to which a class counts more than another class at the same distance.
_MAX_VOTES = 4.0
#: Weight of all farther classes together, in votes.
_FARTHER_WEIGHT = 0.3
#: Factor for each step up to a farther superclass.
_DECAY_PER_STEP = 0.8
#: Steps up to which the names of superclasses are compared with the names of groups.
_NAMED_STEPS = 2


class SuperclassVotes:
    """Groups of labels by the superclasses of their class.

    A superclass points to the groups that are known for it, and to the groups known for its other
    subclasses. The nearest superclasses count most; farther superclasses fill in what these leave
    open. A class above many groups, such as "building", is divided among them and so says little.

    Args:
        examples: The examples of each group.
        classes: ``classes`` tables; for a class in several tables the first table counts.
    """

    def __init__(self, examples: Examples, classes: Sequence[pa.Table]) -> None:
        self._examples = examples
        self._parents: dict[str, list[str]] = {}
        self._labels: dict[str, str] = {}
        for table in reversed(classes):
            for row in table.to_pylist():
                self._parents[row["item"]] = list(dict.fromkeys(row["subclass_of"]))
                self._labels[row["item"]] = row["label"]
        self._examples_by_class = self._find_examples()
        self._classes_by_example: defaultdict[int, list[str]] = defaultdict(list)
        for item, numbers in self._examples_by_class.items():
            for number in numbers:
                self._classes_by_example[number].append(item)
        self._items_by_text: defaultdict[str, list[str]] = defaultdict(list)
        for item, label in self._labels.items():
            self._items_by_text[normalise_label(label)].append(item)
        self._votes_below: dict[str, Floats] = {}
        for item, parents in self._parents.items():
            share = self._known_share(item, frozenset())
            if share is None:
                continue
            for parent in parents:
                self._votes_below[parent] = self._votes_below.get(parent, 0.0) + share

    def _find_examples(self) -> dict[str, list[int]]:
        """Return the indices of the examples that name each class: by id first, then by words."""
        by_item: defaultdict[str, list[int]] = defaultdict(list)
        for number, example in enumerate(self._examples.rows):
            for item in example.items:
                by_item[item].append(number)
        items = set(self._parents)
        for parents in self._parents.values():
            items.update(parents)
        examples_by_class = {}
        for item in sorted(items):
            numbers = list(by_item.get(item, ()))
            if item in self._labels:
                same_words = self._examples.by_words.get(normalised_words(self._labels[item]), ())
                numbers += [number for number in same_words if number not in numbers]
            if numbers:
                examples_by_class[item] = numbers
        return examples_by_class

    def _known_share(self, item: str, own_decisions: frozenset[int]) -> Floats | None:
        """Return the share of each group among the links and examples of a class itself.

        Returns:
            float64, shape (n_groups + 1,); None if the class has neither a link nor an example.
        """
        votes = np.zeros(self._examples.n_columns)
        linked = self._examples.linked_groups.get(item)
        if linked is not None:
            votes[linked] += 1
        for number in self._examples_by_class.get(item, ()):
            example = self._examples.rows[number]
            if number not in own_decisions:
                votes[example.group] += _DECISION_WEIGHT if example.source == "decision" else 1
        total = votes.sum()
        if total == 0:
            return None
        return np.asarray(votes / total)

    def shares(self, label_id: str, text: str, own_decisions: frozenset[int]) -> Floats:
        """Return the smoothed share of each group in the superclasses of a label's class.

        The class is found by its id, or by its label if only one class has this label.

        Args:
            label_id: Id of the label: the item of its class, or an id made from the text.
            text: The label.
            own_decisions: Indices of the examples that are ignored: decisions on the label itself.

        Returns:
            float64, shape (2, n_groups + 1): from the direct superclasses, and from farther
            superclasses; the sum of both is less than 1.
        """
        own_votes = self._own_votes_below(label_id, text, own_decisions)
        direct = np.zeros(self._examples.n_columns)
        farther = np.zeros(self._examples.n_columns)
        # From the farthest classes to the nearest: each step adds nearer votes and weakens farther
        # votes.
        for level in reversed(self._levels(label_id, text)):
            votes = np.sum(
                [self._class_votes(item, own_decisions, own_votes) for item in level], axis=0
            )
            total = votes.sum() + _FARTHER_WEIGHT
            farther = _DECAY_PER_STEP * (direct + farther) * _FARTHER_WEIGHT / total
            direct = votes / total
        return np.stack([direct, farther])

    def _levels(self, label_id: str, text: str) -> list[list[str]]:
        """Return the superclasses of a label's class by distance; empty if no single class is known."""
        if label_id not in self._parents:
            items = self._items_by_text.get(normalise_label(text), [])
            if len(items) != 1:
                return []
            label_id = items[0]
        return levels_above([label_id], self._parents)

    def superclass_weights(self, label_id: str, text: str) -> dict[str, float]:
        """Return the names of the superclasses of a label's class with their weights.

        A direct superclass has the weight 1; the weight falls by the factor ``_DECAY_PER_STEP``
        with each further step. Superclasses more than ``_NAMED_STEPS`` above, or without a name in
        the tables, are left out.
        """
        weights: dict[str, float] = {}
        for step, items in enumerate(self._levels(label_id, text)[:_NAMED_STEPS]):
            for item in items:
                if item in self._labels:
                    weights.setdefault(self._labels[item], _DECAY_PER_STEP**step)
        return weights

    def _own_votes_below(
        self, label_id: str, text: str, own_decisions: frozenset[int]
    ) -> dict[str, Floats]:
        """Return the votes of the label itself and of its decisions, by superclass.

        These votes are subtracted from ``_votes_below``: a label is no evidence for its own group.
        """
        own_items = {label_id, *self._items_by_text.get(normalise_label(text), ())}
        items = set(own_items)
        for number in own_decisions:
            items.update(self._classes_by_example[number])
        own_votes: dict[str, Floats] = {}
        for item in sorted(items):
            share = self._known_share(item, frozenset())
            if share is None:
                continue
            if item not in own_items:
                remaining_share = self._known_share(item, own_decisions)
                if remaining_share is not None:
                    share = share - remaining_share
            for parent in self._parents.get(item, ()):
                own_votes[parent] = own_votes.get(parent, 0.0) + share
        return own_votes

    def _class_votes(
        self, item: str, own_decisions: frozenset[int], own_votes: Mapping[str, Floats]
    ) -> Floats:
        """Return the votes of a class for each group, fewer the more groups the class is divided among."""
        votes = np.zeros(self._examples.n_columns)
        if item in self._votes_below:
            votes += self._votes_below[item]
        if item in own_votes:
            votes = np.maximum(np.round(votes - own_votes[item], 9), 0.0)
        share = self._known_share(item, own_decisions)
        if share is not None:
            votes += _OWN_WEIGHT * share
        total = votes.sum()
        if total == 0:
            return votes
        purity = votes.max() / total
        return np.asarray(votes / total * min(total, _MAX_VOTES) * purity)

    def explain_direct(
        self, label_id: str, text: str, own_decisions: frozenset[int], group: int
    ) -> str:
        """Name a direct superclass that points to a group with a share above 0."""
        levels = self._levels(label_id, text)
        return self._explain(levels[:1], label_id, text, own_decisions, group)

    def explain_farther(
        self, label_id: str, text: str, own_decisions: frozenset[int], group: int
    ) -> str:
        """Name the nearest farther superclass that points to a group with a share above 0."""
        levels = self._levels(label_id, text)
        return self._explain(levels[1:], label_id, text, own_decisions, group)

    def _explain(
        self,
        levels: Iterable[Sequence[str]],
        label_id: str,
        text: str,
        own_decisions: frozenset[int],
        group: int,
    ) -> str:
        own_votes = self._own_votes_below(label_id, text, own_decisions)
        for level in levels:
            votes = {}
            for item in level:
                votes[item] = self._class_votes(item, own_decisions, own_votes)[group]
            item = max(level, key=votes.__getitem__)
            if votes[item]:
                return self._describe(item, own_decisions, group)
        raise ValueError(f"no such superclass of {label_id} points to the group {group}")

    def _describe(self, item: str, own_decisions: frozenset[int], group: int) -> str:
        """Return why a superclass points to a group, in words."""
        name = self._labels.get(item, item)
        has_term = False
        for number in self._examples_by_class.get(item, ()):
            example = self._examples.rows[number]
            if number in own_decisions or example.group != group:
                continue
            if example.source == "decision":
                return f"subclass of {self._examples.quote(number)}"
            has_term = True
        if has_term or self._examples.linked_groups.get(item) == group:
            return f"subclass of {name}"
        return f"subclass of {name}, as others of the group"

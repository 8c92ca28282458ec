"""Evidence from the last words of labels: a "stave church" is a church."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from hgld.arrays import Floats
from hgld.labels.group_examples import Examples
from hgld.labels.wording import head_words

#: Weight of an example that consists of the ending alone, compared with an example that has words
#: before the ending.
_WHOLE_WEIGHT = 3.0
#: Weight of all shorter endings together, as a number of examples.
_SHORTER_WEIGHT = 1.0

Ending = tuple[str, ...]


class EndingVotes:
    """Groups of labels by the whole words that they end in.

    The longest ending that a label shares with examples counts most; shorter endings, down to the
    last word, fill in what the longer ending leaves open. A word such as "tower", which ends the
    names of several groups, is divided among them.
    """

    def __init__(self, examples: Examples) -> None:
        self._examples = examples
        self._examples_by_ending: defaultdict[Ending, list[int]] = defaultdict(list)
        for number, example in enumerate(examples.rows):
            for ending, _ in _weighted_endings(example.text):
                self._examples_by_ending[ending].append(number)
        self._votes = self._count_votes(range(len(examples.rows)))

    def shares(self, text: str, own_decisions: Iterable[int]) -> Floats:
        """Return the smoothed share of each group among the examples that end like a label.

        The shares at an ending are the votes of its examples and, with the weight
        ``_SHORTER_WEIGHT``, the shares at the next shorter ending (Dirichlet smoothing as in
        language models).

        Args:
            text: The label.
            own_decisions: Indices of the examples that are ignored: decisions on the label itself.

        Returns:
            float64, shape (n_groups + 1,); sums to less than 1.
        """
        own_votes = self._count_votes(own_decisions)
        shares = np.zeros(self._examples.n_columns)
        for ending, _ in reversed(_weighted_endings(text)):
            if ending not in self._votes:
                break
            votes = self._votes[ending] - own_votes.get(ending, 0)
            shares = (votes + _SHORTER_WEIGHT * shares) / (votes.sum() + _SHORTER_WEIGHT)
        return shares

    def _count_votes(self, numbers: Iterable[int]) -> Mapping[Ending, Floats]:
        """Return the weighted number of examples of each group by ending: float64, shape (n_groups + 1,).

        Args:
            numbers: Indices of the examples that are counted.
        """
        votes: dict[Ending, Floats] = {}
        for number in numbers:
            example = self._examples.rows[number]
            for ending, weight in _weighted_endings(example.text):
                if ending not in votes:
                    votes[ending] = np.zeros(self._examples.n_columns)
                votes[ending][example.group] += weight
        return votes

    def explain(self, text: str, own_decisions: frozenset[int], group: int) -> str:
        """Name an example of a group with the longest ending in common with a label.

        Raises:
            ValueError: No example of the group shares an ending with the label.
        """
        rows = self._examples.rows
        for ending, _ in _weighted_endings(text):
            shortest = None
            for number in self._examples_by_ending.get(ending, ()):
                if number in own_decisions or rows[number].group != group:
                    continue
                # The shortest text shows best which words are shared.
                n_words = len(head_words(rows[number].text))
                if shortest is None or n_words < len(head_words(rows[shortest].text)):
                    shortest = number
            if shortest is None:
                continue
            example = rows[shortest]
            shared_words = tuple(word for word in ending if word)
            if example.source != "decision" and head_words(example.text) == shared_words:
                return f"named after “{example.text}”"
            return f"named like {self._examples.quote(shortest)}"
        raise ValueError(f"no example of the group {group} ends like “{text}”")


def _weighted_endings(text: str) -> list[tuple[Ending, float]]:
    """Return the last words of a head noun phrase with their weights, the longest sequence first.

    The first sequence is the whole phrase once more, marked by an empty word in front.
    """
    words = head_words(text)
    if not words:
        return []
    endings: list[tuple[Ending, float]] = [(("", *words), _WHOLE_WEIGHT), (words, _WHOLE_WEIGHT)]
    for start in range(1, len(words)):
        endings.append((words[start:], 1.0))
    return endings

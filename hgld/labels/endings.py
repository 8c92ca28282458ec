"""Groups of labels by the whole words that they end in: a "stave church" is a church.

The longest ending that a label shares with examples counts most; shorter ones, down to the last word, fill in what
the longer one leaves open. A word such as "tower", which ends the names of several groups, is divided among them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from hgld.labels.examples import Examples
from hgld.labels.wording import head_words

#: Weight of an example that consists of the ending alone, compared with one that has other words in front.
_WHOLE_WEIGHT = 3.0
#: Weight of all shorter endings together, as a number of examples.
_SHORTER_WEIGHT = 1.0


class Endings:
    """The examples by ending.

    Args:
        examples: Terms and decided labels.
    """

    def __init__(self, examples: Examples) -> None:
        self._examples = examples
        self._numbers: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        self._votes: defaultdict[tuple[str, ...], NDArray[np.float64]] = defaultdict(
            lambda: np.zeros(examples.n_columns)
        )
        for number, example in enumerate(examples.rows):
            for ending, weight in _weighted_endings(example.text):
                self._numbers[ending].append(number)
                self._votes[ending][example.group] += weight

    def shares(self, text: str, own: Iterable[int]) -> NDArray[np.float64]:
        """Return the smoothed share of each group among the examples that end as a label does.

        The shares at an ending are the votes of its examples and, with the weight ``_SHORTER_WEIGHT``, the shares at
        the next shorter ending (Dirichlet smoothing as in language models).

        Args:
            text: Text of the label.
            own: Indices of examples to ignore.

        Returns:
            float64, shape (n_groups + 1,); sums to less than 1.
        """
        own_votes = self._own_votes(own)
        shares = np.zeros(self._examples.n_columns)
        for ending, _ in reversed(_weighted_endings(text)):
            if ending not in self._votes:
                break
            votes = self._votes[ending] - own_votes.get(ending, 0)
            shares = (votes + _SHORTER_WEIGHT * shares) / (votes.sum() + _SHORTER_WEIGHT)
        return shares

    def _own_votes(self, own: Iterable[int]) -> dict[tuple[str, ...], NDArray[np.float64]]:
        votes: dict[tuple[str, ...], NDArray[np.float64]] = {}
        for number in own:
            example = self._examples.rows[number]
            for ending, weight in _weighted_endings(example.text):
                votes.setdefault(ending, np.zeros(self._examples.n_columns))[example.group] += weight
        return votes

    def explain(self, text: str, own: frozenset[int], group: int) -> str:
        """Name an example of a group with the longest ending in common with a label.

        Args:
            text: Text of the label.
            own: Indices of examples to ignore.
            group: Group with a share above 0.
        """
        rows = self._examples.rows
        ending, numbers = next(
            (ending, numbers)
            for ending, _ in _weighted_endings(text)
            if (numbers := [n for n in self._numbers.get(ending, ()) if n not in own and rows[n].group == group])
        )
        # The shortest text shows best which words are shared.
        number = min(numbers, key=lambda n: len(head_words(rows[n].text)))
        is_whole = rows[number].source != "decision" and head_words(rows[number].text) == tuple(filter(None, ending))
        return f"named after “{rows[number].text}”" if is_whole else f"named like {self._examples.quote(number)}"


def _weighted_endings(text: str) -> list[tuple[tuple[str, ...], float]]:
    """Return the last words of a head noun phrase with their weights, the longest sequence first.

    The first sequence is the whole phrase once more, marked by an empty word in front.
    """
    words = head_words(text)
    if not words:
        return []
    shorter = [(words[start:], 1.0) for start in range(1, len(words))]
    return [(("", *words), _WHOLE_WEIGHT), (words, _WHOLE_WEIGHT), *shorter]

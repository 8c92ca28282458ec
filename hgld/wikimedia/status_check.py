"""Stop a scrape in which implausibly many landmarks end in the same status.

A wrong address, a server that refuses requests in an unusual way, or a changed template can look
like thousands of missing pages. The authors of H-GLDv2 found values for 129.1k of 203k landmarks in
train and 68.1k of 101k in index ("Optimization of Rank Losses for Image Retrieval", section VI-A):
about a third of the landmarks have another status.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from hgld.errors import SourceError
from hgld.io.journal import Journal
from hgld.wikimedia.settings import UNLIKELY_SHARES
from hgld.wikimedia.source import FactStore, MissingFactsError, Source

#: Number of consecutive landmarks that are judged together: a server that fails late is noticed as
#: early.
_BLOCK = 1_000
#: Number of started landmarks of a block before it is judged, unless the list is shorter.
_MIN_LANDMARKS = 100
#: Smallest number of landmarks with a status that is judged.
_MIN_UNLIKELY = 20
_MAX_EXAMPLES = 3
#: Possible causes and their remedy.
_ADVICE = (
    "The server may not be the one that `commons_url` should name (or `wikidata_url`, of items), may refuse "
    "requests, or may have changed its pages: open one of them in a browser. No table was written. When the cause is "
    "removed, run the same command again: it asks again about rows without a value, and keeps the others"
)


class UnlikelyStatusError(SourceError):
    """Implausibly many landmarks ended in the same status."""

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message)
        self.status = status


class StatusCheck:
    """Counts the statuses of landmarks while they are resolved.

    Landmarks that wait for facts count as plausible, as landmarks without a value are often
    resolved first.

    Args:
        titles: Titles of all landmarks.
        allowed: Statuses that may be frequent.
        noun: Plural noun for the landmarks, for messages.
    """

    def __init__(
        self, titles: Sequence[str], allowed: Collection[str] = (), noun: str = "landmarks"
    ) -> None:
        self._titles = titles
        self._noun = noun
        self._allowed = allowed
        self._n_started: Counter[int] = Counter()
        #: Positions of landmarks by block and status.
        self._positions: dict[tuple[int, str], list[int]] = {}

    def start(self, position: int) -> None:
        """Count a landmark whose facts are being fetched."""
        self._n_started[self._block(position)] += 1

    def end(self, position: int, status: str) -> None:
        """Count the status of a started landmark.

        Raises:
            UnlikelyStatusError: The status became too frequent.
        """
        if status in UNLIKELY_SHARES and status not in self._allowed:
            block = self._block(position)
            self._positions.setdefault((block, status), []).append(position)
            if self._n_started[block] >= _MIN_LANDMARKS:
                self._check(block, status)

    def finish(self) -> None:
        """Judge all blocks, including small ones.

        Raises:
            UnlikelyStatusError: A status is too frequent.
        """
        for block, status in self._positions:
            self._check(block, status)

    def _block(self, position: int) -> int:
        """Return the number of a landmark's block; the last block also has the remainder."""
        return min(position, max(0, len(self._titles) - _BLOCK)) // _BLOCK

    def _check(self, block: int, status: str) -> None:
        positions = self._positions[block, status]
        n_landmarks = self._n_started[block]
        share = len(positions) / n_landmarks
        largest_share = UNLIKELY_SHARES[status]
        if len(positions) < _MIN_UNLIKELY or share <= largest_share:
            return
        examples = [f'"{self._titles[position]}"' for position in positions[:_MAX_EXAMPLES]]
        raise UnlikelyStatusError(
            f"{len(positions)} of {n_landmarks} {self._noun} ended as {status} ({share:.0%}; at most "
            f"{largest_share:.0%} is likely), such as {', '.join(examples)}. {_ADVICE}. If the result is right, "
            f"allow it with `allow_frequent` {status}",
            status,
        )


def forget_landmarks_without_value(
    titles: Iterable[str], source: Source, facts: FactStore, journal: Journal
) -> None:
    """Remove facts of landmarks without a value, and classes without a label, from the journal.

    They are fetched again by the next run. All landmarks without a value are concerned, whatever
    their status, because a failing server fails in several ways.
    """
    keys: dict[str, set[str]] = {}
    for title in titles:
        facts.read = []
        try:
            resolution = source.resolve(title, facts)
        except MissingFactsError:
            continue
        has_value = resolution.status not in UNLIKELY_SHARES
        unlabelled = {value.item for value in resolution.instance_of if value.label == value.item}
        for kind, key in facts.read:
            is_unlabelled_class = kind == source.class_kind and key in unlabelled
            if is_unlabelled_class or not has_value:
                keys.setdefault(kind, set()).add(key)
    for kind in sorted(keys):
        journal.forget(kind, sorted(keys[kind]))

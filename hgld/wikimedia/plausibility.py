"""Stop a scrape in which unlikely many landmarks end in the same status.

A wrong address, a server that refuses requests in its own way, or a template that has changed can look like thousands
of missing pages. The authors of H-GLDv2 found values for 129.1k of 203k landmarks in train and 68.1k of 101k in index
("Optimization of Rank Losses for Image Retrieval", section VI-A): about a third has any of the other statuses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from hgld.errors import ConfigurationError, SourceError
from hgld.io.journal import Journal
from hgld.wikimedia.source import FactStore, MissingFactsError, Source

#: Share of the landmarks of a block above which a status is unlikely; far above what GLDv2 has, far below one.
UNLIKELY_SHARES: Mapping[str, float] = {
    "invalid_title": 0.02,  # the titles are those of pages that existed
    "redirect_loop": 0.02,
    "redirect_unresolved": 0.05,
    "item_missing": 0.05,
    "missing": 0.25,
    "no_instance_of": 0.5,
    "no_value": 0.5,
    "no_item": 0.6,
    "no_infobox": 0.6,
}
#: Number of consecutive landmarks that are judged together, so that a server that breaks late is noticed as soon.
_BLOCK = 1_000
#: Number of landmarks of a block that must be under way before it is judged, unless there are no more.
_MIN_LANDMARKS = 100
#: Number of landmarks with the status below which nothing is unlikely.
_MIN_UNLIKELY = 20
_MAX_EXAMPLES = 3


#: What may be wrong where landmarks are looked up on servers, and what to do.
SERVER_ADVICE = (
    "The server may not be the one that `commons_url` should name (or `wikidata_url`, of items), may refuse "
    "requests, or may have changed its pages: open one of them in a browser. No table was written. When the cause is "
    "removed, run the same command again: it asks again about rows without a value, and keeps the others"
)
#: The same for a dump.
DUMP_ADVICE = "The dump may be a part or a sample of Wikidata, or the list one of other pages. No table was written"


class UnlikelyStatusError(SourceError):
    """Too many landmarks ended in the same status to be true."""

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message)
        self.status = status


def check_allowed(statuses: Iterable[str]) -> None:
    """Raise a ConfigurationError if one of the statuses that may be frequent is never unlikely, or no status."""
    if unknown := set(statuses) - set(UNLIKELY_SHARES):
        raise ConfigurationError(
            f'`allow_frequent` is "{min(unknown)}"; expected some of {", ".join(sorted(UNLIKELY_SHARES))}'
        )


class StatusCheck:
    """Counts the statuses of landmarks while they are resolved.

    Landmarks that wait for facts count as likely ones: those without a value are often resolved first.

    Args:
        advice: What may be wrong, and what to do, as sentences of the error.
    """

    def __init__(
        self,
        titles: Sequence[str],
        allowed: Collection[str] = (),
        advice: str = SERVER_ADVICE,
        noun: str = "landmarks",
    ) -> None:
        self._titles, self._advice, self._noun = titles, advice, noun
        self._shares = {status: share for status, share in UNLIKELY_SHARES.items() if status not in allowed}
        self._started: Counter[int] = Counter()
        self._positions: dict[tuple[int, str], list[int]] = {}

    def start(self, position: int) -> None:
        """Count a landmark whose facts are being fetched."""
        self._started[self._block(position)] += 1

    def end(self, position: int, status: str) -> None:
        """Count the status of a landmark that was started; raise UnlikelyStatusError if it became too frequent."""
        if status in self._shares:
            block = self._block(position)
            self._positions.setdefault((block, status), []).append(position)
            if self._started[block] >= _MIN_LANDMARKS:
                self._check(block, status)

    def finish(self) -> None:
        """Judge all blocks, small ones as well; raise UnlikelyStatusError if a status is too frequent."""
        for block, status in self._positions:
            self._check(block, status)

    def _block(self, position: int) -> int:
        """Return the number of a landmark's block; the last one has the landmarks that would not fill another."""
        return min(position, max(0, len(self._titles) - _BLOCK)) // _BLOCK

    def _check(self, block: int, status: str) -> None:
        positions, n_landmarks = self._positions[block, status], self._started[block]
        share = len(positions) / n_landmarks
        if len(positions) < _MIN_UNLIKELY or share <= self._shares[status]:
            return
        examples = ", ".join(f'"{self._titles[position]}"' for position in positions[:_MAX_EXAMPLES])
        raise UnlikelyStatusError(
            f"{len(positions)} of {n_landmarks} {self._noun} ended as {status} ({share:.0%}; at most "
            f"{self._shares[status]:.0%} is likely), such as {examples}. {self._advice}. If the result is right, "
            f"allow it with `allow_frequent` {status}",
            status,
        )


def forget_landmarks_without_value(titles: Iterable[str], source: Source, facts: FactStore, journal: Journal) -> None:
    """Forget the facts behind landmarks without a value, and classes without a label; they are fetched again.

    Not only those with the status that stopped the run: a server that fails does so in several ways.
    """
    keys: dict[str, set[str]] = {}
    for title in titles:
        facts.read = []
        try:
            resolution = source.resolve(title, facts)
        except MissingFactsError:
            continue
        unlabelled = {value.item for value in resolution.instance_of if value.label == value.item}
        for kind, key in facts.read:
            if resolution.status in UNLIKELY_SHARES or (kind == source.class_kind and key in unlabelled):
                keys.setdefault(kind, set()).add(key)
    for kind in sorted(keys):
        journal.forget(kind, sorted(keys[kind]))

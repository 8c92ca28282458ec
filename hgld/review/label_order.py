"""Orders of labels: which label to decide next.

Labels are in the order of the table, or ordered by their landmarks, by the certainty of their suggestions, or by how
much their decision would settle: a decision is evidence for labels with the same superclass or the same last words.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple, get_args

from hgld.labels.wording import head_words
from hgld.review.decided_labels import certainty
from hgld.review.labels import ReviewLabel
from hgld.review.session import ReviewSession

#: ``table``: by cluster and sub-cluster; ``landmarks``: most landmarks first; ``uncertain``: least certain suggestion
#: first; ``settling``: the decision that settles most landmarks first.
Order = Literal["table", "landmarks", "uncertain", "settling"]
ORDERS: tuple[Order, ...] = get_args(Order)

#: Numbers of landmarks that differ by less are equal.
_EQUAL = 1e-9


class _Kind(NamedTuple):
    """A kind of relation between labels: its name, and the probability that related labels are in the same group.

    The probabilities were measured on all pairs of labels in the half "fit" of ``annotations/development``. Labels of
    the same sub-cluster are in the same group in one of ten pairs only, which is too little to count.
    """

    name: str
    same_group: float


_PARENT, _TWO_WORDS, _LAST_WORD = _Kind("parent", 0.8), _Kind("two words", 0.95), _Kind("last word", 0.6)


class LabelOrders:
    """The orders of a session's labels.

    The order by settled landmarks is computed on first use, and kept: it does not jump about while one decides.
    """

    def __init__(self, session: ReviewSession) -> None:
        self._session = session
        self._table = {label_id: rank for rank, label_id in enumerate(session.labels)}
        self._settling: dict[str, int] = {}

    def sort(self, label_ids: Iterable[str], order: Order) -> list[str]:
        """Return labels in an order; labels that are equal in it are in the order of the table."""
        labels = self._session.labels
        in_table = sorted(label_ids, key=self._table.__getitem__)
        if order == "table":
            return in_table
        if order == "landmarks":
            return sorted(in_table, key=lambda label_id: -labels[label_id].landmarks)
        if order == "uncertain":
            return sorted(in_table, key=lambda key: (certainty(labels[key]), -labels[key].landmarks))
        if not self._settling:
            decided = {label_id for label_id in labels if self._session.is_decided(label_id)}
            ranked = settling_order(list(labels.values()), decided)
            self._settling = {label_id: rank for rank, label_id in enumerate(ranked)}
        return sorted(in_table, key=self._settling.__getitem__)


def settling_order(labels: Sequence[ReviewLabel], decided: Collection[str] = ()) -> list[str]:
    """Return the ids of labels in the order in which decisions settle most.

    A decision settles all landmarks of the label itself. Of an undecided label whose suggestion has the score p,
    ``landmarks * (1 - p)`` landmarks are open, in expectation; a decision on a related label settles the share of
    them that is the probability that both are in the same group. What one decision has settled the next one cannot,
    so after one church the other churches come later. The largest gain is always taken next.

    Args:
        labels: Labels in the order of the table, which decides on ties.
        decided: Ids of labels that are decided already; they come first.
    """
    keys: dict[tuple[_Kind, str], int] = {}
    relations = [[keys.setdefault(relation, len(keys)) for relation in relations_of(label)] for label in labels]
    same_group = [kind.same_group for kind, _ in keys]
    open_own = [label.landmarks * (1 - certainty(label)) for label in labels]
    open_related, unsettled = [0.0] * len(keys), [1.0] * len(keys)
    for numbers, landmarks in zip(relations, open_own, strict=True):
        for key in numbers:
            open_related[key] += landmarks

    def gain(number: int) -> float:
        result: float = labels[number].landmarks
        for key in relations[number]:
            result += same_group[key] * unsettled[key] * (open_related[key] - open_own[number])
        return result

    def settle(number: int) -> None:
        for key in relations[number]:
            open_related[key] -= open_own[number]
            unsettled[key] *= 1 - same_group[key]

    order = [number for number, label in enumerate(labels) if label.label_id in decided]
    for number in order:
        settle(number)
    # Gains only decrease, so the first one that is still what it was is the largest.
    heap = [(-gain(number), number) for number, label in enumerate(labels) if label.label_id not in decided]
    heapq.heapify(heap)
    while heap:
        before, number = heap[0]
        now = -gain(number)
        if now > before + _EQUAL:
            heapq.heapreplace(heap, (now, number))
            continue
        heapq.heappop(heap)
        settle(number)
        order.append(number)
    return [labels[number].label_id for number in order]


def relations_of(label: ReviewLabel) -> list[tuple[_Kind, str]]:
    """Return what relates a label to others: its superclasses, and its last words."""
    words = head_words(label.label)
    relations = [(_PARENT, parent) for parent in label.parents.split(", ") if parent]
    if len(words) > 1:
        relations.append((_TWO_WORDS, " ".join(words[-2:])))
    if words:
        relations.append((_LAST_WORD, words[-1]))
    return relations

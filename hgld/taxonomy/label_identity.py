"""When two labels are the same label: comparison, one spelling for each, and the id that stands for it."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache

#: A Wikidata item id. As a label it means that the item has none.
ITEM_ID = re.compile("Q[1-9][0-9]*")


@lru_cache(maxsize=100_000)
def normalise_label(label: str) -> str:
    """The form in which labels are compared: NFKC, case folded, runs of white space as one space.

    >>> normalise_label("Ｃhurch  Building ")
    'church building'
    """
    # Folding can undo the composition and composing can bring back something to fold: twice settles both.
    for _ in range(2):
        label = unicodedata.normalize("NFKC", label).casefold()
    return " ".join(unicodedata.normalize("NFKC", label).split())


def label_id(label: str, class_item: str | None) -> str:
    """The stable id of a label: the class's item where it is known, else one made from the normalised label.

    >>> label_id("lake", "Q23397"), label_id("Lake", None), label_id("lake ", None)
    ('Q23397', 'label-6f021f0268', 'label-6f021f0268')
    """
    if class_item is not None:
        return class_item
    return f"label-{hashlib.sha256(normalise_label(label).encode()).hexdigest()[:10]}"


def unify_labels(labels: Sequence[str], items: Sequence[str | None]) -> tuple[list[str], list[str | None]]:
    """One spelling and one class item for all values that mean the same class.

    A value without an item (pages do not show it) takes the item that other values of the same normalised
    label have, if that is exactly one; with several the label is ambiguous and the value stays without. Two
    items with the same label stay two classes. Among the labels of one item (from several languages or
    times) the most frequent stands for all, and so among the spellings of one normalised label; of equally
    frequent ones the first.

    Args:
        labels: as scraped, one per landmark.
        items: the class's item, or None, in the same order.

    Returns:
        Labels and items, in the same order.
    """
    items_of = defaultdict(set)
    for label, item in zip(labels, items, strict=True):
        if item is not None:
            items_of[normalise_label(label)].add(item)
    unified: list[str | None] = []
    for label, item in zip(labels, items, strict=True):
        candidates = items_of[normalise_label(label)]
        unified.append(item if item is not None or len(candidates) != 1 else next(iter(candidates)))

    ids = [label_id(label, item) for label, item in zip(labels, unified, strict=True)]

    names: defaultdict[str, Counter[str]] = defaultdict(Counter)
    spellings: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for identity, label in zip(ids, labels, strict=True):
        names[identity][normalise_label(label)] += 1
        spellings[normalise_label(label)][label] += 1
    shown = {identity: _first(spellings[_first(counts)]) for identity, counts in names.items()}
    return [shown[identity] for identity in ids], unified


def _first(counts: Counter[str]) -> str:
    """The most frequent one; a Counter keeps the order of first sight among equals."""
    return counts.most_common(1)[0][0]

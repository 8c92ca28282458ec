"""Identity of labels: normalised comparison, a stable id, and one spelling for each class."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache

from hgld.names import stored_name, without_invisible

#: Id of a Wikidata item. A label of this form means that the item has no label.
ITEM_ID = re.compile("Q[1-9][0-9]*")
#: Largest valid item number on Wikidata, which refuses a whole request with a larger number.
_LAST_ITEM = 2**31 - 1
_ITEM_ADDRESS = re.compile(
    r"(?:(?:https?:)?//)?(?:www\.|m\.|www\.m\.)?wikidata\.org/(?:wiki|entity)/(?:Special:Entity(?:Page|Data)/)?(?=Q)"
    r"|wd:(?=Q)",
    re.IGNORECASE,
)
#: Text between raised digits and signs.
_NOT_RAISED = re.compile("[^²³¹⁰⁴-⁻]+")


@lru_cache(maxsize=100_000)
def normalise_label(label: str) -> str:
    """Return the form in which labels are compared.

    It is NFKC, case-folded, without invisible characters and with single spaces for white space. Raised digits keep
    their height, since 10² is another number than 102.

    >>> normalise_label("Ｃhurch  Building "), normalise_label("10² M")
    ('church building', '10² m')
    """
    label = without_invisible(label)
    # Case folding can undo the composition, which can create something to fold again; two rounds are enough.
    for _ in range(2):
        label = _compose(label).casefold()
    return " ".join(_compose(label).split())


def _compose(label: str) -> str:
    """Return a label in NFKC, but with raised digits and signs as they are."""
    return _NOT_RAISED.sub(lambda match: unicodedata.normalize("NFKC", match[0]), label)


def parse_item(text: str) -> str:
    """Return the id of an item, given the id or an address of its page on Wikidata.

    Raises:
        ValueError: The text is neither, or the number is larger than Wikidata can have.

    >>> parse_item("Q144"), parse_item("https://m.wikidata.org/wiki/Q144"), parse_item("wikidata.org/entity/Q144#top")
    ('Q144', 'Q144', 'Q144')
    """
    item = text.strip()
    address = _ITEM_ADDRESS.match(item)
    if address is not None:
        item = re.split("[?#]", item[address.end() :])[0].rstrip("/")
    if not ITEM_ID.fullmatch(item) or int(item[1:]) > _LAST_ITEM:
        raise ValueError(
            f'"{text}" is no item; expected one such as Q42 or https://www.wikidata.org/wiki/Q42'
        )
    return item


def label_id(label: str, class_item: str | None) -> str:
    """Return the stable id of a label: the class's item where known, else an id made from the normalised label.

    >>> label_id("lake", "Q23397"), label_id("Lake", None), label_id("lake ", None)
    ('Q23397', 'label-6f021f0268', 'label-6f021f0268')
    """
    if class_item is not None:
        return class_item
    return f"label-{hashlib.sha256(normalise_label(label).encode()).hexdigest()[:10]}"


def unify_labels(
    labels: Sequence[str], items: Sequence[str | None]
) -> tuple[list[str], list[str | None]]:
    """Give all values of a class the same label and the same item.

    A value without an item takes the item of other values with the same normalised label, if these values have
    exactly one item. Two items with the same label stay two classes. The label of an item is its most frequent
    normalised label in the most frequent spelling; ties are decided by the first occurrence.

    >>> unify_labels(["lake", "Lake", "lake"], ["Q23397", None, None])
    (['lake', 'lake', 'lake'], ['Q23397', 'Q23397', 'Q23397'])
    """
    items_by_label = defaultdict(set)
    for label, item in zip(labels, items, strict=True):
        if item is not None:
            items_by_label[normalise_label(label)].add(item)
    unified: list[str | None] = []
    for label, item in zip(labels, items, strict=True):
        candidates = items_by_label[normalise_label(label)]
        if item is None and len(candidates) == 1:
            (item,) = candidates
        unified.append(item)

    ids = [label_id(label, item) for label, item in zip(labels, unified, strict=True)]

    normalised: defaultdict[str, Counter[str]] = defaultdict(Counter)
    spellings: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for identity, label in zip(ids, labels, strict=True):
        normalised[identity][normalise_label(label)] += 1
        spellings[normalise_label(label)][label] += 1
    chosen = {}
    for identity, counts in normalised.items():
        chosen[identity] = stored_name(_most_frequent(spellings[_most_frequent(counts)]))
    return [chosen[identity] for identity in ids], unified


def _most_frequent(counts: Counter[str]) -> str:
    """Return the most frequent key; ties are decided by the first occurrence."""
    return counts.most_common(1)[0][0]

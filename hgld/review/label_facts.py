"""What an annotator may want to know about a label: its class on Wikidata, superclasses, and landmarks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from hgld.review.sheets.rows import example_link
from hgld.taxonomy.label_identity import ITEM_ID, label_id
from hgld.wikimedia.titles import title_of_url


@dataclass(frozen=True, slots=True)
class ClassLink:
    """A class, with the address of its item on Wikidata; the address is empty if ``item`` is no item.

    Args:
        item: Id of the class.
        label: Label of the class, or its id if it has none.
    """

    item: str
    label: str

    @property
    def url(self) -> str:
        """Address of the item on Wikidata."""
        return f"https://www.wikidata.org/wiki/{self.item}" if ITEM_ID.fullmatch(self.item) else ""

    @property
    def commons_url(self) -> str:
        """Address that leads to the page on Commons that is linked to the item."""
        special = "https://www.wikidata.org/wiki/Special:GoToLinkedPage/commonswiki"
        return f"{special}/{self.item}" if self.url else ""


@dataclass(frozen=True, slots=True)
class LabelFacts:
    """Facts about the class of a label.

    Args:
        link: The class.
        description: Description of the class on Wikidata, or empty.
        superclasses: Its superclasses (P279).
    """

    link: ClassLink
    description: str = ""
    superclasses: tuple[ClassLink, ...] = ()


@dataclass(frozen=True, slots=True)
class Landmark:
    """A landmark.

    Args:
        name: Title of its category on Commons without the namespace.
        url: Address of the category; empty if the landmark has none.
    """

    name: str
    url: str


class FactBook:
    """Facts about labels.

    Args:
        clean: ``clean`` table, with the landmarks of each label.
        classes: ``classes`` tables; a class is looked up in the first table that has it.
    """

    def __init__(self, clean: pa.Table, classes: Sequence[pa.Table] = ()) -> None:
        self._facts = _facts_of_classes(classes)
        self._landmarks = clean.select(["landmark_id", "category"])
        self._rows: defaultdict[str, list[int]] = defaultdict(list)
        columns = (clean[name].to_pylist() for name in ("supercategory", "class_item"))
        for row, pair in enumerate(zip(*columns, strict=True)):
            self._rows[label_id(*pair)].append(row)

    def facts(self, label_id: str) -> LabelFacts:
        """Return what is known about the class of a label; of a label without an item, nothing is."""
        return self._facts.get(label_id) or LabelFacts(ClassLink(label_id, label_id))

    def landmarks(self, label_id: str) -> list[Landmark]:
        """Return all landmarks of a label by name."""
        rows = self._landmarks.take(pa.array(self._rows.get(label_id, []), pa.int64()))
        return sorted((_landmark(**row) for row in rows.to_pylist()), key=lambda found: found.name.casefold())


def _facts_of_classes(classes: Sequence[pa.Table]) -> Mapping[str, LabelFacts]:
    known = {row["item"]: row for table in reversed(classes) for row in table.to_pylist()}
    return {
        item: LabelFacts(
            ClassLink(item, row["label"]),
            row["description"] or "",
            tuple(
                ClassLink(parent, known[parent]["label"] if parent in known else parent)
                for parent in row["subclass_of"]
            ),
        )
        for item, row in known.items()
    }


def _landmark(landmark_id: int, category: str) -> Landmark:
    try:
        return Landmark(*example_link(title_of_url(category)))
    except ValueError:  # not a category on Commons
        return Landmark(f"landmark {landmark_id}", "")

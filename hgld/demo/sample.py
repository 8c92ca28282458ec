"""The bundled sample: its category pages and Wikidata items (``data/sample/README.md``)."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from hgld.resources import sample_file
from hgld.wikimedia.titles import CATEGORY_PREFIX


@dataclass(frozen=True, slots=True)
class SamplePage:
    """A category page of Commons; at most one of the fields is set.

    Args:
        redirect: Title of the target of a hard redirect, with ``Category:``.
        soft_redirect: Title of the target of a soft redirect, with ``Category:``.
    """

    item: str | None = None
    redirect: str | None = None
    soft_redirect: str | None = None


@dataclass(frozen=True, slots=True)
class SampleItem:
    """A Wikidata item of a landmark (with ``instance_of``) or of a class (with ``label``).

    Args:
        instance_of: Ids of the values of P31.
        preferred: Those of them with the preferred rank.
        main_topic: Id of the value of P301.
        subclass_of: Ids of the values of P279.
    """

    label: str | None = None
    category: str | None = None
    instance_of: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    main_topic: str | None = None
    subclass_of: tuple[str, ...] = ()

    @property
    def best_instance_of(self) -> tuple[str, ...]:
        """Values of P31 with the best rank: the preferred ones, or all if none is preferred."""
        return self.preferred or self.instance_of


@dataclass(frozen=True)
class Sample:
    """Pages by title (with ``Category:``), and items by id."""

    pages: Mapping[str, SamplePage]
    items: Mapping[str, SampleItem]

    @cached_property
    def item_of_category(self) -> dict[str, str]:
        """Item ids by the title of the linked category."""
        return {item.category: item_id for item_id, item in self.items.items() if item.category}


def read_sample() -> Sample:
    """Read ``pages.csv`` and ``classes.csv`` of the bundled sample."""
    classes = list(_rows("classes.csv"))
    id_of = {row["label"]: row["item"] for row in classes}

    def ids(labels: str) -> tuple[str, ...]:
        return tuple(id_of[label] for label in labels.split("; ") if label)

    items = {row["item"]: SampleItem(label=row["label"], subclass_of=ids(row["subclass_of"])) for row in classes}
    pages = {}
    for row in _rows("pages.csv"):
        title = _title(row["title"])
        if title:
            pages[title] = SamplePage(row["item"] or None, _title(row["redirect"]), _title(row["soft_redirect"]))
        if row["item"]:
            items[row["item"]] = SampleItem(
                category=title,
                instance_of=ids(row["instance_of"]),
                preferred=ids(row["preferred"]),
                main_topic=row["main_topic"] or None,
            )
    return Sample(pages, items)


def _rows(name: str) -> Iterator[dict[str, str]]:
    with sample_file(name).open(encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream)


def _title(name: str) -> str | None:
    return CATEGORY_PREFIX + name if name else None

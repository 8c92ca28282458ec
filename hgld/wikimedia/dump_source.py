"""The extract of a dump as a source: what Wikidata knew about the landmarks on the day of the dump.

Wikidata names the item of a category by its sitelink, and so do the APIs. Only Commons knows which categories exist
and where they redirect to, so a category that was renamed has no sitelink any more. If one item names the title as
its Commons category (P373), which people often leave as it was, that item is taken, and the route is
``commons_category``. Otherwise the landmark ends as ``no_item``. In both cases its page may have been deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from sys import intern
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hgld.tables.column_values import RouteStep
from hgld.wikimedia.api_facts import WIKIMEDIA_CATEGORY, ClassFact, ItemFact, Query
from hgld.wikimedia.api_source import CLASS, ITEM, SITELINK, resolve_item
from hgld.wikimedia.dump_extract import items_path
from hgld.wikimedia.source import FactStore, Resolution
from hgld.wikimedia.titles import is_sendable

#: title -> ItemFact of the only item with this value of P373, or None
COMMONS_CATEGORY = "commons_category"

_ITEM_COLUMNS = ("item", "redirect", "revision", "instance_of", "main_topic")
_CLASS_COLUMNS = ("item", "redirect", "revision", "subclass_of", "label", "language", "description")


class DumpSource:
    """The folder of a complete extract as a :class:`hgld.wikimedia.source.Source`, without any request."""

    kinds: tuple[str, ...] = (CLASS, ITEM, COMMONS_CATEGORY, SITELINK)
    class_kind = CLASS

    def __init__(self, extract: Path, query: Query | None = None) -> None:
        self._query = query or Query()
        self._path = items_path(extract)
        with pq.ParquetFile(self._path) as file:
            groups = [file.metadata.row_group(number).column(0).statistics for number in range(file.num_row_groups)]
        #: Highest number of an item in each row group; the table is sorted by it.
        self._last_items = np.array([group.max for group in groups], np.int64)

    def batch_size(self, kind: str) -> int:
        """Return a size for everything at once, as each batch is a pass over the table."""
        return 2**31

    def fetch(self, kind: str, keys: Sequence[str]) -> dict[str, Any]:
        """See :class:`Source`."""
        if kind == SITELINK:
            return dict.fromkeys(keys) | {
                row["category"]: _item_fact(row) for row in self._by_title("category", keys)
            }
        if kind == COMMONS_CATEGORY:
            return self._fetch_commons_categories(keys)
        columns = _ITEM_COLUMNS if kind == ITEM else _CLASS_COLUMNS
        rows = self._by_number([int(key[1:]) for key in keys], columns)
        targets = [row["redirect"] for row in rows.values() if row["redirect"] is not None]
        # As in the API, what redirects to a redirect is missing.
        reached = {
            number: row for number, row in self._by_number(targets, columns).items() if row["redirect"] is None
        }
        facts: dict[str, Any] = {}
        for key in keys:
            row = rows.get(int(key[1:]))
            if row is not None and row["redirect"] is not None:
                row = reached.get(row["redirect"])
            if kind == ITEM:
                facts[key] = None if row is None else _item_fact(row)
            else:
                facts[key] = ClassFact(key, key, None, None, (), None) if row is None else _class_fact(row)
        return facts

    def resolve(self, title: str, facts: FactStore) -> Resolution:
        """See :class:`Source`."""
        if not is_sendable(title):
            return Resolution("invalid_title" if title else "no_item")
        redirects: list[RouteStep] = []
        item: ItemFact | None = facts.get(SITELINK, title)
        if item is None:
            item = facts.get(COMMONS_CATEGORY, title)
            redirects.append("commons_category")
        return (
            Resolution("no_item", title)
            if item is None
            else resolve_item(title, item, redirects, facts, self._query.no_value)
        )

    def _fetch_commons_categories(self, titles: Sequence[str]) -> dict[str, ItemFact | None]:
        """Look up P373; a category's own item is passed over in favour of the item that it is about."""
        items: dict[str, list[ItemFact]] = {title: [] for title in titles}
        for row in self._by_title("commons_categories", titles):
            for title in items.keys() & row["commons_categories"]:
                items[title].append(_item_fact(row))
        facts: dict[str, ItemFact | None] = {}
        for title, found in items.items():
            topics = [item for item in found if WIKIMEDIA_CATEGORY not in item.instance_of] or found
            facts[title] = topics[0] if len(topics) == 1 else None
        return facts

    def _by_title(self, column: str, titles: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the items in which a column has one of the titles."""
        wanted = pa.array(titles, pa.string())
        with pq.ParquetFile(self._path) as file:
            for number in range(file.num_row_groups):
                values = file.read_row_group(number, [column])[column].combine_chunks()
                if pa.types.is_list(values.type):
                    matches = pc.filter(
                        pc.list_parent_indices(values), pc.is_in(pc.list_flatten(values), value_set=wanted)
                    )
                    positions = pc.unique(matches)
                else:
                    positions = pc.indices_nonzero(pc.is_in(values, value_set=wanted))
                if len(positions):
                    yield from file.read_row_group(number, [*_ITEM_COLUMNS, column]).take(positions).to_pylist()

    def _by_number(self, numbers: Sequence[int], columns: Sequence[str]) -> dict[int, dict[str, Any]]:
        """Return the items with these numbers."""
        wanted: NDArray[np.int64] = np.unique(np.array(numbers, np.int64))
        groups = np.unique(np.searchsorted(self._last_items, wanted))
        rows: dict[int, dict[str, Any]] = {}
        with pq.ParquetFile(self._path) as file:
            for group in groups[groups < file.num_row_groups].tolist():
                table = file.read_row_group(group, list(columns))
                found = table.filter(pa.array(np.isin(table["item"].to_numpy(), wanted)))
                rows |= {row["item"]: row for row in found.to_pylist()}
        return rows


def _item_fact(row: dict[str, Any]) -> ItemFact:
    classes, topic = _ids(row["instance_of"]), row["main_topic"]
    is_category = topic is not None and WIKIMEDIA_CATEGORY in classes
    return ItemFact(_id(row["item"]), row["revision"], classes, _id(topic) if is_category else None)


def _class_fact(row: dict[str, Any]) -> ClassFact:
    item = _id(row["item"])
    label = row["label"] or item
    return ClassFact(item, label, row["language"], row["description"], _ids(row["subclass_of"]), row["revision"])


def _id(number: int) -> str:
    return f"Q{number}"


def _ids(numbers: Sequence[int]) -> tuple[str, ...]:
    return tuple(intern(_id(number)) for number in numbers)

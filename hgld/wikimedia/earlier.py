"""The tables of an earlier scrape, whose rows and classes a new one can use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import Any

from hgld.tables import CLASSES, SCRAPED, classes_path, read_table
from hgld.wikimedia.source import ClassFact, InstanceOfValue, Resolution

_ROWS_PER_BATCH = 5_000


@dataclass(frozen=True)
class EarlierScrape:
    """Contents of the tables ``scraped`` and ``classes``, without the landmarks that failed.

    Args:
        rows: By title of the category, the result and when it was fetched (milliseconds since 1970).
        classes: Classes by item; empty if there is no such table.
        redirects: By id of an item that statements name, the class to which it redirects.
        titles: Title of every row in the table, failed ones included.
    """

    rows: dict[str, tuple[Resolution, int]]
    classes: dict[str, ClassFact]
    redirects: dict[str, str]
    titles: tuple[str, ...]


#: A scrape of nothing.
NO_SCRAPE = EarlierScrape({}, {}, {}, ())


def read_earlier(scraped: Path) -> EarlierScrape:
    """Read the table ``scraped`` and the table ``classes`` beside it.

    Raises:
        InputError: See :func:`hgld.tables.read_table`.
    """
    table = read_table(scraped, SCRAPED)
    times = table["fetched_at"].cast("int64").to_pylist()
    rows: dict[str, tuple[Resolution, int]] = {}
    values: dict[InstanceOfValue, InstanceOfValue] = {}  # many landmarks have the same few
    titles = table["title"].to_pylist()
    columns = table.select(Resolution._fields)
    for start in range(0, len(table), _ROWS_PER_BATCH):
        for number, row in enumerate(columns.slice(start, _ROWS_PER_BATCH).to_pylist(), start):
            if row["status"] != "error":
                title = titles[number]
                if row["resolved_title"] == title:
                    row["resolved_title"] = title  # the same text, in memory once
                rows[title] = _resolution(row, values), times[number]
    classes, redirects = _read_classes(classes_path(scraped))
    return EarlierScrape(rows, classes, redirects, tuple(titles))


def _read_classes(path: Path) -> tuple[dict[str, ClassFact], dict[str, str]]:
    classes: dict[str, ClassFact] = {}
    redirects: dict[str, str] = {}
    for row in read_table(path, CLASSES).to_pylist() if path.exists() else ():
        redirects |= dict.fromkeys(row.pop("redirected_from") or (), row["item"])
        classes[row["item"]] = ClassFact(**row | {"subclass_of": tuple(map(intern, row["subclass_of"]))})
    return classes, redirects


def _resolution(row: dict[str, Any], values: dict[InstanceOfValue, InstanceOfValue]) -> Resolution:
    unique = (InstanceOfValue(**value) for value in row["instance_of"])
    for name in ("status", "route"):
        row[name] = row[name] and intern(row[name])
    return Resolution(**row | {"instance_of": tuple(values.setdefault(value, value) for value in unique)})

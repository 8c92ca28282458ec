"""The files of a scrape: the lists of landmarks that are its input, and the tables ``scraped`` and ``classes``.

GLDv2's lists ``train_label_to_category.csv`` and ``index_label_to_category.csv`` name each landmark by the URL of a
category of Wikimedia Commons (columns ``landmark_id`` and ``category``). A scrape can use rows and classes of an
earlier one.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from sys import intern
from typing import Any

import pyarrow as pa

from hgld.io.columns import parse_whole_number, read_table_rows
from hgld.names import stored_id
from hgld.tables import CLASSES, SCRAPED, Provenance, classes_path, read_table, write_table
from hgld.taxonomy.label_identity import parse_item
from hgld.wikimedia.api_facts import ClassFact
from hgld.wikimedia.source import InstanceOfValue, Resolution
from hgld.wikimedia.titles import CATEGORY_PREFIX, normalise_title, title_of_url, title_path

log = logging.getLogger(__name__)

_BOM = b"\xef\xbb\xbf"
_ROWS_PER_BATCH = 5_000
#: Without leading zeros, which a number would lose.
_WHOLE_NUMBER = re.compile("0|-?[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class LandmarkCategory:
    """One row of a list: ``*_label_to_category.csv``, or one of other entities.

    Args:
        category: Address of its category on Commons, or of its item on Wikidata; None without one.
        title: Normalised title of the category, or id of the item; empty without one.
        split: Its split; None for that of the whole list.
    """

    landmark_id: int | str
    category: str | None
    title: str
    split: str | None = None


def read_categories(path: Path) -> list[LandmarkCategory]:
    """Read and validate ``*_label_to_category.csv``, where ids are whole numbers and categories are addresses.

    A row that repeats an earlier one exactly counts once, and a UTF-8 byte order mark is skipped; both are logged as
    warnings.
    """

    def parse(row: Mapping[str, str]) -> tuple[LandmarkCategory, str]:
        number, url = parse_whole_number("landmark_id", row["landmark_id"]), row["category"]
        return LandmarkCategory(number, url, title_of_url(url)), url

    rows = _read_once(path, "landmark_id", "category", None, parse)
    with path.open("rb") as stream:
        if stream.read(len(_BOM)) == _BOM:
            log.warning(
                "%s: line 1 begins with a byte order mark, which GLDv2's files do not have; skipped",
                path,
            )
    return rows


def read_list(
    path: Path,
    id: str,
    *,
    item: str | None = None,
    category: str | None = None,
    split: str | None = None,
) -> list[LandmarkCategory]:
    """Read and validate a CSV or Parquet file with a row per entity, of which these are columns.

    Ids are numbers if all are whole ones that fit into 64 bits and have no leading zeros, else the texts as they are.
    A row that repeats an earlier one counts once, with a warning. A row may lack its item or category.
    """
    link = item or category
    assert link is not None

    def parse(row: Mapping[str, str]) -> tuple[LandmarkCategory, str]:
        name = stored_id(row[id].strip())
        text = row[link].strip()
        part = stored_id(row[split].strip()) if split else None
        if not name or part == "":
            raise ValueError(f"the {split if name else id} is empty")
        title = "" if not text else _item_id(text) if item else _category_title(text)
        if item:
            address = f"https://www.wikidata.org/wiki/{title}" if title else ""
        else:
            address = (
                f"https://commons.wikimedia.org/wiki/{title_path(title)}" if title == text else text
            )
        return LandmarkCategory(name, address or None, title, part), title

    rows = _read_once(path, id, link, split, parse)
    if all(
        _WHOLE_NUMBER.fullmatch(str(row.landmark_id)) and -(2**63) <= int(row.landmark_id) < 2**63
        for row in rows
    ):
        return [replace(row, landmark_id=int(row.landmark_id)) for row in rows]
    return rows


def _read_once(
    path: Path,
    id: str,
    link: str,
    split: str | None,
    parse: Callable[[Mapping[str, str]], tuple[LandmarkCategory, str]],
) -> list[LandmarkCategory]:
    """Read a list in which an id may be repeated within a split, but only with the same link.

    Args:
        link: Column of items or categories.
        parse: Returns the entity of a row, and its link in a form to compare with that of other rows.
    """
    first_rows: dict[tuple[str | None, int | str], tuple[int, str]] = {}
    place = "row" if path.suffix == ".parquet" else "line"

    def parse_row(number: int, row: Mapping[str, str]) -> LandmarkCategory:
        entity, text = parse(row)
        earlier, first = first_rows.setdefault((entity.split, entity.landmark_id), (number, text))
        if first != text:
            raise ValueError(
                f'the {id} "{entity.landmark_id}" has the {link} {text or "(none)"}, but {place} {earlier} says '
                f"{first or '(none)'}; expected one per id"
            )
        return entity

    rows = read_table_rows(path, list(dict.fromkeys(filter(None, (id, link, split)))), parse_row)
    unique: dict[tuple[str | None, int | str], LandmarkCategory] = {}
    for row in rows:
        unique.setdefault((row.split, row.landmark_id), row)
    if len(unique) < len(rows):
        log.warning(
            "%s: %d rows repeat an earlier row and count once", path, len(rows) - len(unique)
        )
    return list(unique.values())


def _item_id(text: str) -> str:
    return parse_item(text)


def _category_title(text: str) -> str:
    title = normalise_title(text)
    if "://" not in text and title.startswith(CATEGORY_PREFIX) and title != CATEGORY_PREFIX:
        return title
    return title_of_url(text)


@dataclass(frozen=True)
class EarlierScrape:
    """Contents of the tables ``scraped`` and ``classes``, without the landmarks that failed.

    Args:
        rows: By title of the category, the result and when it was fetched (milliseconds since 1970).
        redirects: By id of an item that statements name, the class to which it redirects.
    """

    rows: dict[str, tuple[Resolution, int]]
    classes: dict[str, ClassFact]
    redirects: dict[str, str]


#: A scrape of nothing.
NO_SCRAPE = EarlierScrape({}, {}, {})


def read_earlier(scraped: Path) -> EarlierScrape:
    """Read the table ``scraped`` and the table ``classes`` beside it."""
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
    return EarlierScrape(rows, classes, redirects)


def _read_classes(path: Path) -> tuple[dict[str, ClassFact], dict[str, str]]:
    classes: dict[str, ClassFact] = {}
    redirects: dict[str, str] = {}
    for row in read_table(path, CLASSES).to_pylist() if path.exists() else ():
        redirects |= dict.fromkeys(row.pop("redirected_from") or (), row["item"])
        classes[row["item"]] = ClassFact(
            **row | {"subclass_of": tuple(map(intern, row["subclass_of"]))}
        )
    return classes, redirects


def _resolution(row: dict[str, Any], values: dict[InstanceOfValue, InstanceOfValue]) -> Resolution:
    unique = (InstanceOfValue(**value) for value in row["instance_of"])
    for name in ("status", "route"):
        row[name] = row[name] and intern(row[name])
    return Resolution(
        **row | {"instance_of": tuple(values.setdefault(value, value) for value in unique)}
    )


def write_classes(
    classes: Mapping[str, ClassFact],
    redirects: Mapping[str, str],
    path: Path,
    provenance: Provenance,
    ranks: Mapping[str, str] | None = None,
) -> None:
    """Write the table ``classes``; with the labels of ranks by item, if it has ranks."""
    redirected_from: dict[str, list[str]] = {}
    for item in sorted(redirects):
        redirected_from.setdefault(redirects[item], []).append(item)
    rows = [
        {**classes[item]._asdict(), "redirected_from": redirected_from.get(item)}
        for item in sorted(classes)
    ]
    table = pa.Table.from_pylist(rows, CLASSES.schema)
    if ranks is not None:
        labels = [row["rank"] and ranks.get(row["rank"], row["rank"]) for row in rows]
        table = table.append_column("rank", pa.array(labels, pa.string()))
    write_table(path, CLASSES, table, provenance)


def write_scraped(
    landmarks: Sequence[LandmarkCategory],
    resolve: Callable[[str], tuple[Resolution, int]],
    path: Path,
    provenance: Provenance,
    *,
    neutral: bool = False,
) -> tuple[dict[str, int], dict[str, int]]:
    """Write the table ``scraped``, with a row for each landmark.

    ``resolve`` returns the result for a title, and its time (milliseconds since 1970); the parameters of the
    provenance have ``split`` and ``source``. Returns the numbers of landmarks by status and by route.
    """
    statuses: Counter[str] = Counter()
    routes: Counter[str] = Counter()
    origin = {name: provenance.parameters[name] for name in ("split", "source")}

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(landmarks), _ROWS_PER_BATCH):
            rows = []
            for landmark in landmarks[start : start + _ROWS_PER_BATCH]:
                resolution, at = resolve(landmark.title)
                statuses[resolution.status] += 1
                routes[resolution.route or "none"] += 1
                row = {
                    "landmark_id": landmark.landmark_id,
                    "category": landmark.category,
                    "title": landmark.title,
                    **resolution._asdict(),
                    "instance_of": [value._asdict() for value in resolution.instance_of],
                    "fetched_at": at,
                }
                if landmark.split is not None:
                    row["split"] = landmark.split
                rows.append({**origin, **row})
            yield pa.RecordBatch.from_pylist(rows, schema)

    schema = SCRAPED.schema
    if isinstance(landmarks[0].landmark_id, str):
        schema = schema.set(
            schema.get_field_index("landmark_id"),
            pa.field("landmark_id", pa.string(), nullable=False),
        )
    write_table(path, SCRAPED, batches(), provenance, neutral=neutral)
    return dict(statuses), dict(routes)

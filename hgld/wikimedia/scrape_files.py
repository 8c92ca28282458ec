"""Files of a scrape: lists of landmarks as input, the tables ``scraped`` and ``classes`` as output.

GLDv2's lists ``train_label_to_category.csv`` and ``index_label_to_category.csv`` name each landmark
by the URL of a category of Wikimedia Commons (columns ``landmark_id`` and ``category``). A scrape
can use rows and classes of an earlier scrape.
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

from hgld.io.table_rows import parse_whole_number, read_table_rows
from hgld.names import stored_id
from hgld.tables import CLASSES, SCRAPED, Provenance, classes_path, read_table, write_table
from hgld.taxonomy.label_identity import parse_item
from hgld.wikimedia.api_facts import ClassFact
from hgld.wikimedia.source import InstanceOfValue, Resolution
from hgld.wikimedia.titles import CATEGORY_PREFIX, normalise_title, title_of_url, title_path

log = logging.getLogger(__name__)

_BOM = b"\xef\xbb\xbf"
_ROWS_PER_BATCH = 5_000
#: A whole number without leading zeros, which a conversion to int would lose.
_WHOLE_NUMBER = re.compile("0|-?[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class LandmarkCategory:
    """A row of a list of landmarks or other entities.

    Args:
        landmark_id: Id of the entity.
        category: Address of the category on Commons, or of the item on Wikidata; None if missing.
        title: Normalised title of the category, or id of the item; empty if missing.
        split: Split of the entity; None if the whole list has one split.
    """

    landmark_id: int | str
    category: str | None
    title: str
    split: str | None = None


def read_categories(path: Path) -> list[LandmarkCategory]:
    """Read and validate ``*_label_to_category.csv``: ids are numbers, categories are addresses.

    A row that repeats an earlier row counts once, and a UTF-8 byte order mark is skipped; both are
    logged as warnings.
    """

    def parse(row: Mapping[str, str]) -> tuple[LandmarkCategory, str]:
        landmark_id = parse_whole_number("landmark_id", row["landmark_id"])
        url = row["category"]
        return LandmarkCategory(landmark_id, url, title_of_url(url)), url

    rows = _read_unique(path, "landmark_id", "category", None, parse)
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
    """Read and validate a CSV or Parquet file with a row per entity.

    Ids become numbers if all ids are whole numbers of 64 bits without leading zeros. A row that
    repeats an earlier row counts once, with a warning. The item or category of a row may be empty.

    Args:
        path: CSV or Parquet file.
        id: Column of ids.
        item: Column of items on Wikidata.
        category: Column of categories on Commons, without ``item``.
        split: Column of splits.
    """
    link = item or category
    assert link is not None

    def parse(row: Mapping[str, str]) -> tuple[LandmarkCategory, str]:
        entity_id = stored_id(row[id].strip())
        if not entity_id:
            raise ValueError(f"the {id} is empty")
        entity_split = None
        if split:
            entity_split = stored_id(row[split].strip())
            if not entity_split:
                raise ValueError(f"the {split} is empty")
        text = row[link].strip()
        address = None
        title = ""
        if text and item:
            title = parse_item(text)
            address = f"https://www.wikidata.org/wiki/{title}"
        elif text:
            title = _category_title(text)
            address = text
            if title == text:
                address = f"https://commons.wikimedia.org/wiki/{title_path(title)}"
        return LandmarkCategory(entity_id, address, title, entity_split), title

    rows = _read_unique(path, id, link, split, parse)
    if all(_is_int64(str(row.landmark_id)) for row in rows):
        return [replace(row, landmark_id=int(row.landmark_id)) for row in rows]
    return rows


def _is_int64(text: str) -> bool:
    return _WHOLE_NUMBER.fullmatch(text) is not None and -(2**63) <= int(text) < 2**63


def _read_unique(
    path: Path,
    id: str,
    link: str,
    split: str | None,
    parse: Callable[[Mapping[str, str]], tuple[LandmarkCategory, str]],
) -> list[LandmarkCategory]:
    """Read a list in which an id may be repeated within a split, but only with the same link.

    Args:
        path: CSV or Parquet file.
        id: Column of ids.
        link: Column of items or categories.
        split: Column of splits; None without one.
        parse: Returns the entity of a row, and its link in a form for comparison with other rows.
    """
    first_links: dict[tuple[str | None, int | str], tuple[int, str]] = {}
    unique: dict[tuple[str | None, int | str], LandmarkCategory] = {}
    place = "row" if path.suffix == ".parquet" else "line"

    def parse_row(number: int, row: Mapping[str, str]) -> LandmarkCategory:
        entity, text = parse(row)
        key = entity.split, entity.landmark_id
        first_number, first_text = first_links.setdefault(key, (number, text))
        if first_text != text:
            raise ValueError(
                f'the {id} "{entity.landmark_id}" has the {link} {text or "(none)"}, but {place} {first_number} says '
                f"{first_text or '(none)'}; expected one per id"
            )
        return unique.setdefault(key, entity)

    columns = [id, link]
    if split is not None:
        columns.append(split)
    rows = read_table_rows(path, list(dict.fromkeys(columns)), parse_row)
    n_repeated = len(rows) - len(unique)
    if n_repeated:
        log.warning("%s: %d rows repeat an earlier row and count once", path, n_repeated)
    return list(unique.values())


def _category_title(text: str) -> str:
    """Return the normalised title of a category, from its title or address."""
    title = normalise_title(text)
    if "://" not in text and title.startswith(CATEGORY_PREFIX) and title != CATEGORY_PREFIX:
        return title
    return title_of_url(text)


@dataclass(frozen=True)
class EarlierScrape:
    """Contents of the tables ``scraped`` and ``classes`` without failed landmarks.

    Args:
        rows: By title of the category, the result and the time of the fetch (milliseconds since
            1970).
        classes: Classes by item.
        redirects: For items of redirected classes, the class to which they redirect.
    """

    rows: dict[str, tuple[Resolution, int]]
    classes: dict[str, ClassFact]
    redirects: dict[str, str]


#: An empty scrape.
NO_SCRAPE = EarlierScrape({}, {}, {})


def read_earlier(scraped: Path) -> EarlierScrape:
    """Read the table ``scraped`` and the table ``classes`` beside it."""
    table = read_table(scraped, SCRAPED)
    times = table["fetched_at"].cast("int64").to_pylist()
    rows: dict[str, tuple[Resolution, int]] = {}
    shared_values: dict[InstanceOfValue, InstanceOfValue] = {}
    titles = table["title"].to_pylist()
    columns = table.select(Resolution._fields)
    for start in range(0, len(table), _ROWS_PER_BATCH):
        for number, row in enumerate(columns.slice(start, _ROWS_PER_BATCH).to_pylist(), start):
            if row["status"] != "error":
                title = titles[number]
                if row["resolved_title"] == title:
                    row["resolved_title"] = title  # share the text to save memory
                rows[title] = _resolution(row, shared_values), times[number]
    classes, redirects = _read_classes(classes_path(scraped))
    return EarlierScrape(rows, classes, redirects)


def _read_classes(path: Path) -> tuple[dict[str, ClassFact], dict[str, str]]:
    """Return classes and redirects of a table ``classes``; both are empty without the table."""
    classes: dict[str, ClassFact] = {}
    redirects: dict[str, str] = {}
    if not path.exists():
        return classes, redirects
    for row in read_table(path, CLASSES).to_pylist():
        for item in row.pop("redirected_from") or ():
            redirects[item] = row["item"]
        row["subclass_of"] = tuple(map(intern, row["subclass_of"]))
        classes[row["item"]] = ClassFact(**row)
    return classes, redirects


def _resolution(
    row: dict[str, Any], shared_values: dict[InstanceOfValue, InstanceOfValue]
) -> Resolution:
    """Return the resolution of a row; equal values and texts are shared to save memory."""
    values = []
    for fields in row["instance_of"]:
        value = InstanceOfValue(**fields)
        values.append(shared_values.setdefault(value, value))
    row["instance_of"] = tuple(values)
    row["status"] = intern(row["status"])
    if row["route"] is not None:
        row["route"] = intern(row["route"])
    return Resolution(**row)


def write_classes(
    classes: Mapping[str, ClassFact],
    redirects: Mapping[str, str],
    path: Path,
    provenance: Provenance,
    ranks: Mapping[str, str] | None = None,
) -> None:
    """Write the table ``classes``.

    Args:
        classes: Classes by item.
        redirects: For items of redirected classes, the class to which they redirect.
        path: Table to write.
        provenance: Provenance of the table.
        ranks: Labels of ranks by item; None for a table without ranks.
    """
    redirected_from: dict[str, list[str]] = {}
    for item in sorted(redirects):
        redirected_from.setdefault(redirects[item], []).append(item)
    rows = []
    rank_labels = []
    for item in sorted(classes):
        fact = classes[item]
        rows.append({**fact._asdict(), "redirected_from": redirected_from.get(item)})
        rank = fact.rank
        if ranks and rank is not None:
            rank = ranks.get(rank, rank)
        rank_labels.append(rank)
    table = pa.Table.from_pylist(rows, CLASSES.schema)
    if ranks is not None:
        table = table.append_column("rank", pa.array(rank_labels, pa.string()))
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

    Args:
        landmarks: Landmarks in the order of the table.
        resolve: Returns the result for a title, and its time (milliseconds since 1970).
        path: Table to write.
        provenance: Provenance of the table, with the parameters ``split`` and ``source``.
        neutral: Whether the list is not GLDv2's, which changes the names of columns.

    Returns:
        Numbers of landmarks by status and by route.
    """
    statuses: Counter[str] = Counter()
    routes: Counter[str] = Counter()
    parameters = provenance.parameters
    schema = SCRAPED.schema
    if isinstance(landmarks[0].landmark_id, str):
        position = schema.get_field_index("landmark_id")
        schema = schema.set(position, pa.field("landmark_id", pa.string(), nullable=False))

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(landmarks), _ROWS_PER_BATCH):
            rows = []
            for landmark in landmarks[start : start + _ROWS_PER_BATCH]:
                resolution, at = resolve(landmark.title)
                statuses[resolution.status] += 1
                routes[resolution.route or "none"] += 1
                row = resolution._asdict()
                row["split"] = parameters["split"] if landmark.split is None else landmark.split
                row["landmark_id"] = landmark.landmark_id
                row["category"] = landmark.category
                row["title"] = landmark.title
                row["instance_of"] = [value._asdict() for value in resolution.instance_of]
                row["source"] = parameters["source"]
                row["fetched_at"] = at
                rows.append(row)
            yield pa.RecordBatch.from_pylist(rows, schema)

    write_table(path, SCRAPED, batches(), provenance, neutral=neutral)
    return dict(statuses), dict(routes)

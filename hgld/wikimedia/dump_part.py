"""Read one range of a dump into a part of the extract.

A part is a Parquet file of the items that are linked (to a category, a superclass, or another item by a redirect),
one of all other items, and a JSON file that says what was read and is written last: without it there is no part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hgld.errors import InputError
from hgld.io.files import atomic_write
from hgld.tables.schemas import TEXTS, column
from hgld.wikimedia.dump_entities import DumpItem, read_line
from hgld.wikimedia.dump_files import DAMAGED, DumpRange, RangeLines

_NUMBERS = pa.list_(pa.field("element", pa.int64(), nullable=False))
#: The fields of :class:`DumpItem`.
ITEM_SCHEMA = pa.schema(
    [
        column("item", pa.int64(), "Number of the item, 42 for Q42."),
        column("redirect", pa.int64(), "Item that it redirects to.", nullable=True),
        column("revision", pa.int64(), "Last revision.", nullable=True),
        column("category", pa.string(), "Category of Commons that the sitelink names.", nullable=True),
        column("commons_categories", TEXTS, "Commons categories (P373)."),
        column("instance_of", _NUMBERS, "Classes of the item (P31), those of the best rank."),
        column("subclass_of", _NUMBERS, "Superclasses (P279), those of the best rank."),
        column("main_topic", pa.int64(), "What a category is about (P301).", nullable=True),
        column("label", pa.string(), "Label in the first language that has one.", nullable=True),
        column("language", pa.string(), "Language of the label.", nullable=True),
        column("description", pa.string(), "Description, likewise.", nullable=True),
    ]
)
#: Number of rows of a row group, which are in memory together.
ROWS_PER_GROUP = 20_000


@dataclass
class PartRecord:
    """What was read in a range of a file, from byte ``start`` to the byte before ``end``.

    Args:
        modified: When the entity that changed last did so, in ISO 8601; empty if there is none.
    """

    file: str
    size: int
    start: int
    end: int
    languages: tuple[str, ...]
    lines: int = 0
    items: int = 0
    opened: int = 0
    closed: int = 0
    began: int | None = None
    reached: int | None = None
    modified: str = ""


@dataclass(frozen=True)
class DumpPart:
    """A range of a dump by its number, and the folder where what is kept of it is written."""

    number: int
    range: DumpRange
    languages: tuple[str, ...]
    folder: Path

    @property
    def linked(self) -> Path:
        """Items with a category or superclasses, and redirects."""
        return self.folder / f"{self.number:06}.linked.parquet"

    @property
    def unlinked(self) -> Path:
        """All other items."""
        return self.folder / f"{self.number:06}.unlinked.parquet"

    @property
    def record(self) -> Path:
        """The :class:`PartRecord`."""
        return self.folder / f"{self.number:06}.json"

    def read_record(self) -> PartRecord | None:
        """Return what was read; None if this part is not there, or of another dump."""
        try:
            values = json.loads(self.record.read_text(encoding="utf-8"))
            record = PartRecord(**values | {"languages": tuple(values["languages"])})
            return record if asdict(record).items() >= self._identity.items() else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def make(self) -> None:
        """Read the range, and write the files; raise InputError if it is damaged or not of a dump of Wikidata."""
        record = PartRecord(**self._identity)
        with _item_writer(self.linked) as write_linked, _item_writer(self.unlinked) as write_unlinked:
            blocks = RangeLines(self.range)
            for block in blocks:
                for raw in block:
                    line = raw.strip(b", \t\r")
                    if not line.startswith(b"{"):
                        record.opened += line == b"["
                        record.closed += line == b"]"
                        if line not in (b"", b"[", b"]"):
                            raise self._invalid(record.lines, line, "it does not begin with {")
                        continue
                    record.lines += 1
                    if not line.endswith(b"}"):
                        raise self._invalid(record.lines, line, "it does not end with }")
                    try:
                        entity = read_line(line, self.languages)
                    except ValueError as error:
                        raise self._invalid(record.lines, line, str(error)) from None
                    record.modified = max(record.modified, entity.modified)
                    if entity.item is not None:
                        record.items += 1
                        (write_linked if entity.is_linked else write_unlinked)(entity.item)
        record.began, record.reached = blocks.began, blocks.reached
        with atomic_write(self.record) as draft:
            draft.write_text(json.dumps(asdict(record)), encoding="utf-8")

    @property
    def _identity(self) -> dict[str, Any]:
        """The fields of the record that are known before anything is read."""
        file = {"file": self.range.path.name, "size": self.range.size}
        return {**file, "start": self.range.start, "end": self.range.end, "languages": self.languages}

    def _invalid(self, lines: int, line: bytes, reason: str) -> InputError:
        text = line[:40].decode(errors="replace")
        return InputError(
            f'{self.range.path}: entity {lines:,} after byte {self.range.start:,} is "{text}…" ({reason}); expected '
            f"a JSON dump of Wikidata, with one entity per line; {DAMAGED}"
        )


@contextmanager
def _item_writer(path: Path) -> Iterator[Callable[[DumpItem], None]]:
    """Yield a function that writes an item to a Parquet file, a row group at a time."""
    rows: list[DumpItem] = []

    def flush() -> None:
        writer.write_table(items_table(rows))
        rows.clear()

    def write(item: DumpItem) -> None:
        rows.append(item)
        if len(rows) == ROWS_PER_GROUP:
            flush()

    with atomic_write(path) as draft, pq.ParquetWriter(draft, ITEM_SCHEMA, compression="zstd") as writer:
        yield write
        flush()


def items_table(items: Sequence[DumpItem]) -> pa.Table:
    """Return items as a table, in order of their numbers."""
    columns = zip(*sorted(items, key=lambda item: item.item), strict=True) if items else [()] * len(ITEM_SCHEMA)
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, ITEM_SCHEMA, strict=True)], schema=ITEM_SCHEMA
    )

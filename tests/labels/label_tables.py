"""Small tables to test with."""

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from hgld import tables
from hgld.taxonomy.decisions import Decision

#: Item and label, as in ("Q16970", "church building").
Values = Sequence[tuple[str | None, str]]

PROVENANCE = tables.Provenance("test")


def scraped_row(number: int, values: Values, *, name: str = "", **changes: object) -> dict[str, object]:
    """A row of the table ``scraped``; ``name`` is that of the category after ``Category:``."""
    title = f"Category:{name or f'L{number}'}"
    return {
        "split": "train",
        "landmark_id": number,
        "category": f"http://commons.wikimedia.org/wiki/{title}",
        "title": title,
        "instance_of": [{"item": item, "label": label, "language": None} for item, label in values],
        "status": "ok" if values else "no_instance_of",
        "source": "api",
        "fetched_at": datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.timezone.utc),
        **changes,
    }


def scraped_table(landmarks: Sequence[Values], *, split: str = "train", status: str = "ok") -> pa.Table:
    rows = [scraped_row(number, values, split=split, status=status) for number, values in enumerate(landmarks)]
    return pa.Table.from_pylist(rows, schema=tables.SCRAPED.schema)


def classes_table(classes: Mapping[str, tuple[str, Sequence[str]]]) -> pa.Table:
    """The table ``classes`` of labels and superclasses by item."""
    rows = [{"item": item, "label": label, "subclass_of": above} for item, (label, above) in classes.items()]
    return pa.Table.from_pylist(rows, schema=tables.CLASSES.schema)


def write_classes(path: Path, classes: Mapping[str, tuple[str, Sequence[str]]]) -> None:
    tables.write_table(path, tables.CLASSES, classes_table(classes), PROVENANCE)


def decision(label_id: str, label: str, group: str | None) -> Decision:
    """A decision for a group, or to drop."""
    time = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    return Decision(label_id, label, "group" if group else "drop", group, "ada", time)

"""Small tables to test with."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from hgld import tables
from hgld.taxonomy.decisions import Decision

#: Item and label, as in ("Q16970", "church building").
Values = Sequence[tuple[str | None, str]]

PROVENANCE = tables.Provenance("test")


def scraped_rows(landmarks: Sequence[Values], *, split: str = "train", status: str = "ok") -> list[dict[str, Any]]:
    return [
        {
            "split": split,
            "landmark_id": number,
            "category": f"http://commons.wikimedia.org/wiki/Category:L{number}",
            "title": f"Category:L{number}",
            "resolved_title": None,
            "item": None,
            "route": None,
            "revision": None,
            "instance_of": [{"item": item, "label": label, "language": None} for item, label in values],
            "status": status,
            "source": "api",
            "fetched_at": datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc),
        }
        for number, values in enumerate(landmarks)
    ]


def scraped_table(landmarks: Sequence[Values], *, split: str = "train", status: str = "ok") -> pa.Table:
    rows = scraped_rows(landmarks, split=split, status=status)
    return pa.Table.from_pylist(rows, schema=tables.SCRAPED.schema)


def decision(label_id: str, label: str, group: str | None) -> Decision:
    """A decision for a group, or to drop."""
    time = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    return Decision(label_id, label, "group" if group else "drop", group, "ada", time)

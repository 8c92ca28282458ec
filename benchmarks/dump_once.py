"""One measurement of ``dump.py`` in a process of its own; prints its cost as JSON.

``python dump_once.py JOB DUMP OUT DEVICE`` writes the numbers of the items that have a category on Commons,
superclasses or a main topic.
"""

from __future__ import annotations

import bz2
import gzip
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow.compute as pc
import pyarrow.parquet as pq
from measuring import print_cost

from hgld.wikimedia.dump_extract import ExtractConfig, extract_dump, items_path

OPEN: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".json": open}
PROPERTIES = ("P279", "P301", "P373")


def main() -> None:
    """Run one job."""
    job, dump, out, device = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    items: list[int] = []
    warm_up()
    with tempfile.TemporaryDirectory() as folder:
        jobs: dict[str, Callable[[], None]] = {
            "lines": lambda: [None for _ in lines(dump)].clear(),
            "hgld": lambda: items.extend(extracted_items(dump, Path(folder) / "extract")),
            "orjson": lambda: items.extend(parsed_items(dump, orjson.loads)),
            "json": lambda: items.extend(parsed_items(dump, json.loads)),
        }
        print_cost(jobs[job], device)
    np.save(out, np.sort(np.array(items, np.int64)))


def warm_up() -> None:
    """Make the extract of one item, since the first one imports what it needs, which takes a second."""
    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder) / "dump.json"
        dump.write_text('[\n{"type":"item","id":"Q1","claims":{},"modified":"2024-01-01T00:00:00Z"}\n]\n')
        extract_dump(dump, Path(folder) / "extract", ExtractConfig(workers=1))


def lines(dump: Path) -> Iterator[bytes]:
    """Yield the lines of entities, by Python's own readers."""
    with OPEN[dump.suffix](dump, "rb") as stream:
        for line in stream:
            if len(line) > 2:
                yield line.rstrip(b",\n")


def parsed_items(dump: Path, loads: Callable[[bytes], Any]) -> Iterator[int]:
    """Parse every line."""
    for line in lines(dump):
        entity = loads(line)
        links, claims = entity.get("sitelinks") or {}, entity["claims"]
        has_category = links.get("commonswiki", {}).get("title", "").startswith("Category:")
        if entity["id"][0] == "Q" and (has_category or any(name in claims for name in PROPERTIES)):
            yield int(entity["id"][1:])


def extracted_items(dump: Path, folder: Path) -> Iterator[int]:
    """Make the extract in this process."""
    extract_dump(dump, folder, ExtractConfig(workers=1))
    table = pq.read_table(items_path(folder))
    is_linked = pc.or_(pc.is_valid(table["category"]), pc.is_valid(table["main_topic"]))
    for column in ("subclass_of", "commons_categories"):
        is_linked = pc.or_(is_linked, pc.greater(pc.list_value_length(table[column]), 0))
    yield from table["item"].filter(is_linked).to_pylist()


if __name__ == "__main__":
    main()

"""Time and memory of completing the extract of a dump of Wikidata, from made-up parts of any size.

Parts hold random items: those with a category on Commons or superclasses, and others, of which only those that are
named as a value are kept. Memory is the peak of the whole process, imports included::

    python benchmarks/dump_completion.py --linked 9.5 --others 20
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from report import table

from hgld.wikimedia.dump_extract import ExtractConfig, extract_dump, items_path
from hgld.wikimedia.dump_part import ITEM_SCHEMA, ROWS_PER_GROUP, DumpPart, PartRecord, divide, find_dump_files

N_PARTS = 100
BYTES_PER_PART = 2**20
#: Number of items that others name.
N_CLASSES = 100_000
#: Numbers of items are below this one.
N_NUMBERS = 130_000_000


def main() -> None:
    """Write parts, complete them in a process of its own, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--linked", type=float, default=9.5, help="millions of items that are kept")
    parser.add_argument("--others", type=float, default=20, help="millions of other items")
    parser.add_argument("--complete", type=Path, nargs=2, metavar=("DUMP", "EXTRACT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.complete:
        complete(*options.complete)
        return
    with tempfile.TemporaryDirectory() as name:
        dump, extract = Path(name, "dump.json"), Path(name, "extract")
        write_parts(dump, extract, int(options.linked * 1e6), int(options.others * 1e6))
        command = [sys.executable, __file__, "--complete", str(dump), str(extract)]
        cost = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
        size = items_path(extract).stat().st_size
    row = [f"{options.linked:g} M", f"{options.others:g} M", f"{cost['processor_s']:.0f}", f"{cost['mb']:.0f}"]
    print(table(["kept items", "others", "processor s", "peak MB", "extract, GB"], [[*row, f"{size / 1e9:.2f}"]]))


def complete(dump: Path, extract: Path) -> None:
    """Complete an extract, and print the cost as JSON."""
    start = time.process_time()
    extract_dump(dump, extract, ExtractConfig(workers=1, bytes_per_part=BYTES_PER_PART))
    # Not ru_maxrss, which a child inherits from the process that started it.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak = int(status["VmHWM"].split()[0]) * 1024 / 1e6
    print(json.dumps({"processor_s": time.process_time() - start, "mb": peak}))


def write_parts(dump: Path, extract: Path, n_linked: int, n_others: int) -> None:
    """Write the parts of a dump that is an empty file of their size."""
    with dump.open("wb") as stream:
        stream.truncate(N_PARTS * BYTES_PER_PART)
    rng = np.random.default_rng(0)
    classes = rng.choice(N_NUMBERS, N_CLASSES, replace=False)
    numbers = rng.choice(N_NUMBERS, n_linked + n_others, replace=False, shuffle=True)
    linked, others = np.split(numbers, [n_linked])
    config = ExtractConfig()
    (extract / "parts").mkdir(parents=True)
    for number, one in enumerate(divide(find_dump_files(dump), BYTES_PER_PART)):
        part = DumpPart(number, one, config.languages, extract / "parts")
        write_items(part.linked, linked[number::N_PARTS], classes, rng, is_linked=True)
        write_items(part.unlinked, others[number::N_PARTS], classes, rng, is_linked=False)
        is_last = number == N_PARTS - 1
        record = PartRecord(
            dump.name,
            one.size,
            one.start,
            one.end,
            config.languages,
            lines=1,
            items=1,
            opened=int(number == 0),
            closed=int(is_last),
            began=one.start,
            reached=None if is_last else one.end,
            modified="2024-01-01T00:00:00Z",
        )
        part.record.write_text(json.dumps(asdict(record)))


def write_items(
    path: Path, numbers: np.ndarray, classes: np.ndarray, rng: np.random.Generator, *, is_linked: bool
) -> None:
    """Write items of which half have a category and half have two superclasses."""
    numbers = np.sort(numbers)
    n = len(numbers)
    texts = pa.array([f"item of the number {number}" for number in numbers.tolist()])
    has_category = rng.random(n) < 0.5
    is_class = ~has_category & is_linked
    offsets = np.concatenate([[0], np.cumsum(np.where(is_class, 2, 0))]).astype(np.int32)
    columns = {
        "item": pa.array(numbers),
        "redirect": pa.nulls(n, pa.int64()),
        "revision": pa.array(rng.integers(1, 2**31, n)),
        "category": pa.array(np.where(has_category & is_linked, texts.to_numpy(zero_copy_only=False), None)),
        "commons_categories": pa.ListArray.from_arrays(np.zeros(n + 1, np.int32), pa.array([], pa.string())),
        "instance_of": pa.ListArray.from_arrays(np.arange(n + 1, dtype=np.int32), rng.choice(classes, n)),
        "subclass_of": pa.ListArray.from_arrays(offsets, rng.choice(classes, offsets[-1])),
        "main_topic": pa.nulls(n, pa.int64()),
        "label": texts,
        "language": pa.array(["en"] * n),
        "description": texts,
    }
    rows = pa.Table.from_arrays(
        [pa.array(columns[field.name]).cast(field.type) for field in ITEM_SCHEMA], schema=ITEM_SCHEMA
    )
    pq.write_table(rows, path, compression="zstd", row_group_size=ROWS_PER_GROUP)


if __name__ == "__main__":
    main()

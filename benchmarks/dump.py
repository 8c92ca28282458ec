"""Speed and memory of the pass over a dump of Wikidata, beside parsing every line with json or orjson.

The dump is made up: entities in Wikidata's shape and mix (``tests/wikimedia/wikidata_mix.py``), written plain, by
gzip in many members as the published file, and by bzip2. All is read from the system's cache by one process, and the
processor time counts. The alternatives only note which items have a category on Commons, superclasses or a main
topic; hgld also keeps what a scrape needs to know of these and of any other item. The script fails if they disagree
on those items::

    python benchmarks/dump.py --gigabytes 1
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path

import numpy as np
from measuring import BenchmarkProcess, Cost, MeasurementConfig, measure
from report import table, write_section

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.wikimedia.dumps import as_line, write_dump
from tests.wikimedia.wikidata_mix import entities

SUFFIXES = (".json", ".json.gz", ".json.bz2")
JOBS = {"lines": "lines only", "hgld": "hgld", "orjson": "orjson, every line", "json": "json, every line"}
#: Size of Wikidata's dump in MB, and the cores for which hours are given.
FULL_MB, CORES = 1.6e6, 16


def main() -> None:
    """Measure everything and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0, help="size of the dump before compression")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions, of which the median counts")
    parser.add_argument("--wait", type=float, default=60, help="longest wait for idle cores in seconds")
    parser.add_argument("--quick", action="store_true", help="measure a small dump, and print the table only")
    options = parser.parse_args()
    suffixes = SUFFIXES
    if options.quick:
        options.gigabytes, options.wait, suffixes = 0.01, 0, (".json.gz",)
    with tempfile.TemporaryDirectory() as folder:
        dumps, megabytes = write_dumps(Path(folder), options.gigabytes, suffixes)
        config = MeasurementConfig("cpu", options.repeats, options.wait)
        costs = measure(
            {
                (suffix, job): BenchmarkProcess("dump_once.py", (job, str(path), f"{path}.{job}.npy"))
                for suffix, path in dumps.items()
                for job in JOBS
            },
            config,
        )
        check_agreement(dumps)
        ratios = {suffix: megabytes / (path.stat().st_size / 1e6) for suffix, path in dumps.items()}
    header = ["dump", "ratio", "", "MB/s a core", "peak MB", f"hours for 1.6 TB on {CORES} cores"]
    rows = [row(suffix, ratios[suffix], job, costs[suffix, job], megabytes) for suffix in dumps for job in JOBS]
    text = table(header, rows)
    if options.quick:
        print(text)
    else:
        write_section("dump", text)


def write_dumps(folder: Path, gigabytes: float, suffixes: Sequence[str]) -> tuple[dict[str, Path], float]:
    """Write a dump in each form; return the files by suffix, and the size before compression in MB."""
    paths = {suffix: folder / f"dump{suffix}" for suffix in suffixes}
    size = 0
    batches: list[list[bytes]] = []
    for start in count(0, 1000):
        batches.append([as_line(entity) for entity in entities(1000, start=start)])
        size += sum(map(len, batches[-1]))
        if size >= gigabytes * 1e9:
            break
    for path in paths.values():
        write_dump(path, chain.from_iterable(batches))
    return paths, size / 1e6


def check_agreement(dumps: dict[str, Path]) -> None:
    """Fail unless all found the same items."""
    found = [np.load(f"{path}.{job}.npy") for path in dumps.values() for job in JOBS if job != "lines"]
    if not found[0].size or any(not np.array_equal(found[0], other) for other in found):
        raise SystemExit(f"the methods disagree on the items: {[items.size for items in found]}")


def row(suffix: str, ratio: float, job: str, cost: Cost, megabytes: float) -> list[str]:
    """Return a row of the table; the hours are extrapolated."""
    speed = megabytes / cost.processor_s
    hours = FULL_MB / speed / CORES / 3600
    return [suffix, f"{ratio:.1f}", JOBS[job], f"{speed:.0f}", f"{1000 * cost.gb:.0f}", f"{hours:.1f}"]


if __name__ == "__main__":
    main()

"""Cost of a scrape of the full dataset, and of its update: requests and bytes per landmark, time, peak memory.

The server is the replica of Commons and Wikidata in ``shared`` (``HGLD_SHARED``, else beside the checkout) with a
world of 304,000 landmarks, without rate limit or latency, on the same machine. The API source reads all of them; then
1 % of the items change, and ``--update`` brings the table up to date. The script fails unless the result is that of a
full scrape of the changed world. The HTML source, which sends one request per landmark, reads the first
``--html-landmarks``. All run alternately, ``--repeats`` times each; times are medians, memory is the maximum::

    python benchmarks/scrape.py
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from report import table, write_section

from hgld.tables import CLASSES, SCRAPED, classes_path, read_table

SHARED = Path(os.environ.get("HGLD_SHARED", Path(__file__).parents[2] / "shared"))
HGLD = Path(sys.executable).with_name("hgld")
#: One of so many items changes.
ONE_IN = 100
FULL, UPDATE, HTML = "`--source api`", "the same, `--update`, 1 % changed", "`--source html`"


class Cost(NamedTuple):
    """Cost of one run."""

    requests: int
    megabytes: float
    seconds: float
    peak_mib: float


def main() -> None:
    """Measure both sources and the update, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--landmarks", type=int, default=304_000)
    parser.add_argument("--html-landmarks", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="measure few landmarks, and print the table only")
    options = parser.parse_args()
    if options.quick:
        options.landmarks, options.html_landmarks = 8_000, 200
    sys.path.insert(0, str(SHARED))
    with tempfile.TemporaryDirectory() as folder:
        costs = measure(Path(folder), options.landmarks, options.html_landmarks, options.repeats)
    landmarks = {FULL: options.landmarks, UPDATE: options.landmarks, HTML: options.html_landmarks}
    rows = [row_of(name, landmarks[name], costs[name]) for name in landmarks]
    header = ["", "landmarks", "requests", "a landmark", "bytes a landmark", "s", "peak MiB", "at 150 requests/min"]
    text = table(header, rows)
    if options.quick:
        print(text)
    else:
        write_section("scrape", text)


def measure(folder: Path, n_landmarks: int, n_html: int, repeats: int) -> dict[str, list[Cost]]:
    """Run everything in turns, and check the update."""
    from wikimedia_replica.make_stress_world import main as make_stress_world  # type: ignore[import-not-found]

    categories, first = folder / "train_label_to_category.csv", folder / "first.csv"
    with redirect_stdout(StringIO()):
        make_stress_world(["--landmarks", str(n_landmarks), "--csv", str(categories)])
    with categories.open() as lines:
        first.write_text("".join(islice(lines, n_html + 1)))
    old, new, checked = folder / "old.parquet", folder / "new.parquet", folder / "checked.parquet"
    costs: dict[str, list[Cost]] = {FULL: [], UPDATE: [], HTML: []}
    with serve(n_landmarks, changed=False) as server:
        port = server.port
    for repeat in range(repeats):
        with serve(n_landmarks, changed=False, port=port) as server:
            costs[FULL].append(scrape(server, categories, old))
            costs[HTML].append(scrape(server, first, folder / "html.parquet", "--source", "html"))
        with serve(n_landmarks, changed=True, port=port) as server:
            costs[UPDATE].append(scrape(server, categories, new, "--update", str(old)))
            if not repeat:
                scrape(server, categories, checked)
        print({name: runs[-1] for name, runs in costs.items()}, flush=True)
    if not same_tables(new, checked):
        raise SystemExit("the update differs from a full scrape")
    return costs


def same_tables(one: Path, other: Path) -> bool:
    """Return whether two scrapes have the same rows, but for the time, and the same classes."""
    rows = [read_table(path, SCRAPED).drop_columns(["fetched_at"]) for path in (one, other)]
    classes = [read_table(classes_path(path), CLASSES) for path in (one, other)]
    return bool(rows[0].equals(rows[1]) and classes[0].equals(classes[1]))


@contextmanager
def serve(n_landmarks: int, *, changed: bool, port: int = 0) -> Iterator[Any]:
    """Serve the stress world; ``changed`` gives 1 % of its items a later revision with another class or label."""
    from wikimedia_replica import ReplicaServer, wikidata_api  # type: ignore[import-not-found]
    from wikimedia_replica.stress import StressWorld  # type: ignore[import-not-found]
    from wikimedia_replica.world import Item  # type: ignore[import-not-found]

    page_info = wikidata_api._page_info

    def changes(item_id: str) -> bool:
        return changed and int(item_id[1:]) % ONE_IN == 0

    class World(StressWorld):  # type: ignore[misc]
        def item(self, item_id: str) -> Item | None:
            item = super().item(item_id)
            if item is None or item.redirect or not changes(item_id):
                return item
            claims = dict(item.claims)
            if item_id in self._class_items:
                return Item(item_id, {"en": f"{item.labels['en']} (new)"}, claims=claims)
            if "P31" in claims and "P301" not in claims:
                claims["P31"] = (*claims["P31"], *super().item(self._class_id(7)).claims["P279"])
            return Item(item_id, item.labels, item.descriptions, claims, item.sitelink)

    def later_page_info(item: Item) -> dict[str, Any]:
        info: dict[str, Any] = page_info(item)
        return info | {"lastrevid": info["lastrevid"] + 10_000_000_000 * changes(item.id)}

    with (
        patch.object(wikidata_api, "_page_info", later_page_info),
        ReplicaServer(World(n_landmarks), port=port) as server,
    ):
        yield server


def scrape(server: Any, categories: Path, out: Path, *options: str) -> Cost:
    """Run the command in its own process and return its cost."""
    server.stats.reset()
    command = [str(HGLD), "scrape", str(categories), "--split", "train", "--rate", "0", "-o", str(out), "--force"]
    servers = ["--commons-url", f"{server.base_url}/commons", "--wikidata-url", f"{server.base_url}/wikidata"]
    start = time.monotonic()
    with subprocess.Popen(
        [*command, *servers, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        output = run.stdout.read() + run.stderr.read()
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - start
    match = re.search(r"([\d,]+) requests", output)
    if run.returncode or match is None:
        raise SystemExit(f"{' '.join(command)} failed:\n{output}")
    requests = int(match[1].replace(",", ""))
    return Cost(requests, server.stats.snapshot()["bytes_sent"] / 1e6, seconds, usage.ru_maxrss / 1024)


def row_of(name: str, landmarks: int, costs: Sequence[Cost]) -> list[str]:
    """Return the row of the table for the runs of one command."""
    requests = costs[0].requests
    return [
        name,
        f"{landmarks:,}",
        f"{requests:,}",
        f"{requests / landmarks:.4f}",
        f"{1e6 * costs[0].megabytes / landmarks:,.0f}",
        f"{statistics.median(cost.seconds for cost in costs):.1f}",
        f"{max(cost.peak_mib for cost in costs):.0f}",
        duration(requests / 150),
    ]


def duration(minutes: float) -> str:
    """Format minutes as minutes, hours or days."""
    if minutes < 90:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h" if minutes < 48 * 60 else f"{minutes / 60 / 24:.1f} days"


if __name__ == "__main__":
    main()

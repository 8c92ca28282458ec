"""Cost of a scrape of the full dataset: requests and bytes per landmark, time, peak memory.

The server is the replica of Commons and Wikidata in ``shared`` (``HGLD_SHARED``, else beside the checkout) with a
world of 304,000 landmarks, without rate limit or latency, on the same machine. The API source reads all of them. The
HTML source, which sends one request per landmark, reads the first ``--html-landmarks``. Both run alternately,
``--repeats`` times each; times are medians, memory is the maximum::

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
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from report import table, write_section

SHARED = Path(os.environ.get("HGLD_SHARED", Path(__file__).parents[2] / "shared"))
HGLD = Path(sys.executable).with_name("hgld")
API, HTML = "`--source api`", "`--source html`"


class Cost(NamedTuple):
    """Cost of one run."""

    requests: int
    megabytes: float
    seconds: float
    peak_mib: float


def main() -> None:
    """Measure both sources, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--landmarks", type=int, default=304_000)
    parser.add_argument("--html-landmarks", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--quick", action="store_true", help="measure few landmarks, and print the table only"
    )
    options = parser.parse_args()
    if options.quick:
        options.landmarks, options.html_landmarks = 8_000, 200
    sys.path.insert(0, str(SHARED))
    with tempfile.TemporaryDirectory() as folder:
        costs = measure(Path(folder), options.landmarks, options.html_landmarks, options.repeats)
    landmarks = {API: options.landmarks, HTML: options.html_landmarks}
    rows = [row_of(name, landmarks[name], costs[name]) for name in landmarks]
    header = [
        "",
        "landmarks",
        "requests",
        "a landmark",
        "bytes a landmark",
        "s",
        "peak MiB",
        "at 150 requests/min",
    ]
    text = table(header, rows)
    if options.quick:
        print(text)
    else:
        write_section("scrape", text)


def measure(folder: Path, n_landmarks: int, n_html: int, repeats: int) -> dict[str, list[Cost]]:
    """Run both sources in turns."""
    from wikimedia_replica import ReplicaServer  # type: ignore[import-not-found]
    from wikimedia_replica.make_stress_world import main as make_stress_world  # type: ignore[import-not-found]
    from wikimedia_replica.stress import StressWorld  # type: ignore[import-not-found]

    categories, first = folder / "train_label_to_category.csv", folder / "first.csv"
    with redirect_stdout(StringIO()):
        make_stress_world(["--landmarks", str(n_landmarks), "--csv", str(categories)])
    with categories.open() as lines:
        first.write_text("".join(islice(lines, n_html + 1)))
    costs: dict[str, list[Cost]] = {API: [], HTML: []}
    for _ in range(repeats):
        with ReplicaServer(StressWorld(n_landmarks)) as server:
            costs[API].append(scrape(server, categories, folder / "api.parquet"))
            costs[HTML].append(scrape(server, first, folder / "html.parquet", "--source", "html"))
        print({name: runs[-1] for name, runs in costs.items()}, flush=True)
    return costs


def scrape(server: Any, categories: Path, out: Path, *options: str) -> Cost:
    """Run the command in its own process and return its cost."""
    server.stats.reset()
    command = [
        str(HGLD),
        "scrape",
        str(categories),
        "--split",
        "train",
        "--rate",
        "0",
        "-o",
        str(out),
        "--force",
    ]
    servers = [
        "--commons-url",
        f"{server.base_url}/commons",
        "--wikidata-url",
        f"{server.base_url}/wikidata",
    ]
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
    return Cost(
        requests, server.stats.snapshot()["bytes_sent"] / 1e6, seconds, usage.ru_maxrss / 1024
    )


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

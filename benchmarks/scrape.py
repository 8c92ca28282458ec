"""Cost of a scrape of the full dataset: requests per landmark, landmarks per second, peak memory.

The server is the replica of Commons and Wikidata in ``shared`` (``HGLD_SHARED``, else beside the checkout) with a
world of 304,000 landmarks, without rate limit or latency, on the same machine. The API source reads all of them; the
HTML source, which sends one request per landmark, the first ``--html-landmarks``. The two commands run alternately,
``--repeats`` times each; times are medians, memory is the maximum::

    python benchmarks/scrape.py
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from report import table, write_section

SHARED = Path(os.environ.get("HGLD_SHARED", Path(__file__).parents[2] / "shared"))
HGLD = Path(sys.executable).with_name("hgld")


class Cost(NamedTuple):
    """Cost of one run."""

    requests: int
    seconds: float
    peak_mib: float


def main() -> None:
    """Measure both sources and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--landmarks", type=int, default=304_000)
    parser.add_argument("--html-landmarks", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, replica(options.landmarks) as url:
        categories = Path(folder) / "train_label_to_category.csv"
        make_world = [sys.executable, "-m", "wikimedia_replica.make_stress_world", "--csv", str(categories)]
        subprocess.run(
            [*make_world, "--landmarks", str(options.landmarks)], cwd=SHARED, check=True, stdout=subprocess.DEVNULL
        )
        first_categories = categories.with_name("first.csv")
        with categories.open() as lines:
            first_categories.write_text("".join(islice(lines, options.html_landmarks + 1)))
        inputs = {"api": (categories, options.landmarks), "html": (first_categories, options.html_landmarks)}
        costs: dict[str, list[Cost]] = {source: [] for source in inputs}
        for _ in range(options.repeats):
            for source, (path, _) in inputs.items():
                costs[source].append(scrape(path, source, url))
                print(source, costs[source][-1], flush=True)
    rows = []
    for source, (_, landmarks) in inputs.items():
        requests = costs[source][0].requests
        seconds = statistics.median(cost.seconds for cost in costs[source])
        peak = max(cost.peak_mib for cost in costs[source])
        rows.append(
            [
                f"`--source {source}`",
                f"{landmarks:,}",
                f"{requests:,}",
                f"{requests / landmarks:.4f}",
                f"{seconds:.1f}",
                f"{landmarks / seconds:,.0f}",
                f"{peak:.0f}",
                duration(requests / 150),
            ]
        )
    header = ["source", "landmarks", "requests", "a landmark", "s", "landmarks/s", "peak MiB", "at 150 requests/min"]
    write_section("scrape", table(header, rows))


@contextmanager
def replica(landmarks: int) -> Iterator[str]:
    """Run a replica and yield its root URL."""
    command = [sys.executable, "-m", "wikimedia_replica", "--port", "0"]
    world = f"stress:landmarks={landmarks},seed=0"
    with subprocess.Popen([*command, "--world", world], cwd=SHARED, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["base_url"]
        finally:
            server.terminate()


def scrape(categories: Path, source: str, url: str) -> Cost:
    """Run the command in its own process and return its cost."""
    out = categories.with_name(f"{source}.parquet")
    command = [str(HGLD), "scrape", str(categories), "--split", "train", "--source", source, "--rate", "0"]
    servers = ["--commons-url", f"{url}/commons", "--wikidata-url", f"{url}/wikidata"]
    start = time.monotonic()
    with subprocess.Popen(
        [*command, *servers, "-o", str(out), "--force"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as run:
        assert run.stdout is not None
        output = run.stdout.read()
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - start
    match = re.search(r"([\d,]+) requests", output)
    if run.returncode or match is None:
        raise SystemExit(f"{' '.join(command)} failed:\n{output}")
    return Cost(int(match[1].replace(",", "")), seconds, usage.ru_maxrss / 1024)


def duration(minutes: float) -> str:
    """Format minutes as minutes, hours or days."""
    if minutes < 90:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h" if minutes < 48 * 60 else f"{minutes / 60 / 24:.1f} days"


if __name__ == "__main__":
    main()

"""What a scrape of the full dataset costs: requests per landmark, landmarks per second, peak memory.

The server is the replica of Commons and Wikidata in ``shared`` (``HGLD_SHARED``, else beside the checkout), playing
a world of 304,000 landmarks, without rate limit or latency, on the same machine. The API source reads all of
them; the HTML source, which takes one request a landmark, the first ``--html-landmarks``. Each command runs
``--repeats`` times, in turns; medians are reported::

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
    """One run."""

    requests: int
    seconds: float
    peak_mib: float


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--landmarks", type=int, default=304_000)
    parser.add_argument("--html-landmarks", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, replica(options.landmarks) as url:
        categories = Path(folder) / "train_label_to_category.csv"
        make = [sys.executable, "-m", "wikimedia_replica.make_stress_world", "--csv", str(categories)]
        subprocess.run(
            [*make, "--landmarks", str(options.landmarks)], cwd=SHARED, check=True, stdout=subprocess.DEVNULL
        )
        some = categories.with_name("some.csv")
        with categories.open() as lines:
            some.write_text("".join(islice(lines, options.html_landmarks + 1)))
        inputs = {"api": (categories, options.landmarks), "html": (some, options.html_landmarks)}
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
    """The root of a running replica."""
    command = [sys.executable, "-m", "wikimedia_replica", "--port", "0"]
    world = f"stress:landmarks={landmarks},seed=0"
    with subprocess.Popen([*command, "--world", world], cwd=SHARED, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["base_url"]
        finally:
            server.terminate()


def scrape(categories: Path, source: str, url: str) -> Cost:
    """One run of the command in a process of its own."""
    out = categories.with_name(f"{source}.parquet")
    command = [str(HGLD), "scrape", str(categories), "--split", "train", "--source", source, "--rate", "0"]
    servers = ["--commons-url", f"{url}/commons", "--wikidata-url", f"{url}/wikidata"]
    began = time.monotonic()
    with subprocess.Popen(
        [*command, *servers, "-o", str(out), "--force"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as run:
        assert run.stdout is not None
        told = run.stdout.read()
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - began
    found = re.search(r"([\d,]+) requests", told)
    if run.returncode or found is None:
        raise SystemExit(f"{' '.join(command)} failed:\n{told}")
    return Cost(int(found[1].replace(",", "")), seconds, usage.ru_maxrss / 1024)


def duration(minutes: float) -> str:
    """Minutes, hours or days."""
    if minutes < 90:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h" if minutes < 48 * 60 else f"{minutes / 60 / 24:.1f} days"


if __name__ == "__main__":
    main()

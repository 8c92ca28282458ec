"""Processor time of the commands for review sheets, for two annotators, 5,685 labels and 200,000 landmarks.

Another checkout of hgld can be measured in the same run, in turns with this one::

    python benchmarks/sheets.py --before ../hgld-of-last-week
"""

from __future__ import annotations

import argparse
import csv
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from report import table, write_section
from review import make_tables

CHECKOUT = Path(__file__).resolve().parents[1]
ANNOTATORS = ("ada", "ben")


def main() -> None:
    """Run the benchmark and write its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", type=Path, help="Another checkout to compare with.")
    options = parser.parse_args()
    checkouts = {"now": CHECKOUT} | ({"before": options.before.resolve()} if options.before else {})
    seconds: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for name in checkouts:
            (Path(folder) / name).mkdir()
            make_tables(Path(folder) / name)
        for _ in range(options.rounds):
            for name, checkout in checkouts.items():
                for command, used in measure(Path(folder) / name, checkout).items():
                    seconds[command, name].append(used)
    commands = dict.fromkeys(command for command, _ in seconds)
    rows = [
        [f"`{command}`", *(f"{statistics.median(seconds[command, name]):.1f}" for name in reversed(checkouts))]
        for command in commands
    ]
    header = ["command", *(f"processor time {name}, s" for name in reversed(checkouts))]
    write_section("sheets", f"{table(header, rows)}\n\nMedians; number of rounds: {options.rounds}.")


def measure(folder: Path, checkout: Path) -> Mapping[str, float]:
    """Return the processor time of each command in seconds, in one round of work on the tables in a folder."""
    clusters, review = folder / "clusters.parquet", folder / "review"
    export = ["export", str(clusters), "-o", str(review), "--annotators", ",".join(ANNOTATORS)]
    times = {"export --force": run(checkout, *export, "--force")}
    for shift, name in enumerate(ANNOTATORS):
        fill_in(review / f"{name}.csv", shift)
    times["export --merge"] = run(checkout, *export, "--merge")
    decisions = [folder / f"{name}.csv" for name in ANNOTATORS]
    for name, out in zip(ANNOTATORS, decisions, strict=True):
        out.unlink(missing_ok=True)
        sheet = str(review / f"{name}.xlsx")
        times["import-sheet"] = run(checkout, "import-sheet", sheet, "--annotator", name, "-o", str(out))
    times["agreement"] = run(checkout, "agreement", *map(str, decisions), "--clusters", str(clusters))
    return times


def run(checkout: Path, *arguments: str) -> float:
    """Run a command of hgld and return the processor time that it took, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    # With -m, Python looks for hgld in the current folder first.
    command = [sys.executable, "-m", "hgld", *arguments]
    subprocess.run(command, cwd=checkout, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{checkout.name}: {arguments[0]} {used:.1f} s, {time.monotonic() - began:.1f} s elapsed", file=sys.stderr)
    return used


def fill_in(path: Path, shift: int) -> None:
    """Fill in most rows of a CSV sheet, with the suggestions or otherwise; ``shift`` makes annotators differ."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream))
    for number, row in enumerate(rows, shift):
        if number % 9 == 0:
            row["decision"] = "drop"
        elif number % 7 == 0:
            row |= {"decision": "unsure", "comment": "both could be meant"}
        elif number % 5:
            row["group"] = row["suggested group"]
    with path.open("w", encoding="utf-8-sig", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()

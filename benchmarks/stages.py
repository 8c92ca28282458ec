"""Processor time and memory of the label stages, beside those of another version of hgld.

The labels are made up: 5,685, as many as the full dataset has. Each command is a process of its own; the versions
take turns, each with its own files and its own cache, and the tables that they write must have the same bytes::

    python benchmarks/stages.py --before ../hgld-before
"""

from __future__ import annotations

# Only modules that take little memory: the peak of a process counts from that of its parent.
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_EMBED = "embed clean.parquet -o label_embeddings.parquet --encoder minilm"
_CLUSTER = "cluster label_embeddings.parquet -o clusters.parquet"
_SUGGEST = "suggest clusters.parquet -o clusters.parquet"


class Step(NamedTuple):
    """A command, what it does in the words of the table, and how often one round runs it."""

    title: str
    command: str
    times: int = 1


STEPS = (
    Step("`embed`, all labels", _EMBED),
    Step("`embed`, up to date", _EMBED, 5),
    Step("`cluster`", _CLUSTER),
    Step("`cluster`, up to date", _CLUSTER, 5),
    Step("`suggest`, empty cache", _SUGGEST),
    Step("`suggest --force`", f"{_SUGGEST} --force"),
    Step("`suggest`, up to date", _SUGGEST, 5),
    Step("`hgld --help`", "--help", 5),
)


class Cost(NamedTuple):
    """Processor time in seconds and peak memory in MB of one process."""

    seconds: float
    megabytes: float


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", type=Path, help="checkout of another version, to compare with")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write the table into the README")
    options = parser.parse_args()
    versions = [path.resolve() for path in (options.before, Path(__file__).parents[1]) if path is not None]
    costs: dict[tuple[Path, Step], list[Cost]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for round_ in range(options.rounds):
            works = [Path(folder) / f"{round_}-{number}" for number in range(len(versions))]
            for work in works:
                work.mkdir()
                make_labels(work)
            for step in STEPS:
                for version, work in zip(versions, works, strict=True):
                    costs.setdefault((version, step), []).extend(run(version, work, step) for _ in range(step.times))
                check_equal(works)
    rows = []
    for step in STEPS:
        medians = [
            [statistics.median(values) for values in zip(*costs[version, step], strict=True)] for version in versions
        ]
        rows.append([step.title, *(f"{s:.2f}" for s, _ in medians), *(f"{mb:,.0f}" for _, mb in medians)])
    from report import table, write_section

    names = ["before", "now"][-len(versions) :]
    body = table(["", *(f"CPU s, {name}" for name in names), *(f"peak MB, {name}" for name in names)], rows)
    print(body)
    if options.write:
        write_section("stages", body)


def make_labels(folder: Path) -> None:
    """Write the clean table of the benchmark of the review page."""
    script = "import sys; from pathlib import Path; from review import make_tables; make_tables(Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", script, folder], cwd=Path(__file__).parent, check=True)
    (folder / "clusters.parquet").unlink()


def run(version: Path, work: Path, step: Step) -> Cost:
    """Run a command of one version in its folder, and wait for it."""
    variables = {"PYTHONPATH": str(version), "HGLD_CACHE": str(work / "cache"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "hgld", *step.command.split()]
    with (work / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=work, env={**os.environ, **variables}, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{version}: hgld {step.command}\n{(work / 'log').read_text()}")
    cost = Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
    print(version.name, step.title, *cost, file=sys.stderr, flush=True)
    return cost


def check_equal(works: Sequence[Path]) -> None:
    """Raise unless all versions have written the same tables."""
    for name in ("label_embeddings.parquet", "clusters.parquet"):
        contents = {path.read_bytes() for work in works if (path := work / name).exists()}
        if len(contents) > 1:
            raise SystemExit(f"{name} differs between the versions")


if __name__ == "__main__":
    main()

"""Cost of one step of a rank loss, forward and backward.

A batch has 4 images of each landmark, in 78 groups and 2 roots, and d = 512; a set of references has 20 images of
each. Every measurement runs in a process of its own that waits for idle cores; the tables hold medians of processor
time, except for the large sets of references, which are measured once. This command writes the section of the README;
with a clone of https://github.com/elias-ramzi/SupRank, whose requirements are installed, also for the authors' code::

    python benchmarks/losses.py --suprank SupRank
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import measuring
import torch
from measuring import BenchmarkProcess, Cost, MeasurementConfig
from report import table, write_section

#: The job of ``losses_once.py`` for each loss.
LOSSES = {"Sup-H-AP": "sup_h_ap", "Smooth-AP": "smooth_ap"}
BATCHES = (128, 256, 512, 1024, 2048, 4096)
#: The largest batch whose arrays of batch x batch x batch fit into 24 GB: at 1,024 each of them takes 4 GB.
LARGEST_OF_AUTHORS = 512
REFERENCES = ((256, 100_000), (256, 1_000_000))
HEADER = ["loss", "batch", "work", "processor s", "GB"]


def main() -> None:
    """Measure, and write tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--suprank", type=Path, help="clone of the authors' code, to be measured as well"
    )
    parser.add_argument("--quick", action="store_true", help="print small sizes, and write nothing")
    options = parser.parse_args()
    config = MeasurementConfig(options.device, options.repeats, wait_s=0 if options.quick else 60)
    once = config._replace(repeats=1)
    batches, references = ((32,), ((8, 400),)) if options.quick else (BATCHES, REFERENCES)
    tables = [
        table(HEADER, compare(batches, config, options.suprank)),
        table(
            ["loss", "queries x references", "processor s", "GB"], with_references(references, once)
        ),
    ]
    if options.quick:
        print("\n\n".join(tables))
        return
    where = f"On {torch.cuda.get_device_name(config.device)}. " if config.device != "cpu" else ""
    write_section(
        "losses",
        "\n\n".join(
            [
                *tables,
                f"{where}torch {torch.__version__}; medians of {config.repeats}, one run with references.",
            ]
        ),
    )


def compare(
    batches: Sequence[int], config: MeasurementConfig, suprank: Path | None = None
) -> list[list[str]]:
    """Return rows of hgld and, where there is a clone of it, of the authors' code."""
    variables = (
        {"PYTHONPATH": os.pathsep.join([str(suprank), os.environ.get("PYTHONPATH", "")])}
        if suprank
        else {}
    )
    rows = []
    for loss, work in LOSSES.items():
        for size in batches:
            jobs = {"hgld": work}
            if suprank and size <= LARGEST_OF_AUTHORS:
                jobs = {"the authors' code": f"suprank_{work}", **jobs}
            costs = measure(jobs, (size, 0), config, variables)
            rows += [[loss, f"{size:,}", method, *cells(cost)] for method, cost in costs.items()]
    return rows


def with_references(sizes: Sequence[tuple[int, int]], config: MeasurementConfig) -> list[list[str]]:
    """Return rows of hgld for queries ranked against the references of a memory."""
    rows = []
    for size in sizes:
        costs = measure(LOSSES, size, config)
        rows += [[loss, f"{size[0]:,} x {size[1]:,}", *cells(cost)] for loss, cost in costs.items()]
    return rows


def cells(cost: Cost) -> list[str]:
    """Return seconds of processor time and GB as texts."""
    return [f"{cost.processor_s:.3f}", f"{cost.gb:.2f}"]


def measure(
    works: Mapping[str, str],
    size: tuple[int, int],
    config: MeasurementConfig,
    variables: Mapping[str, str] | None = None,
) -> dict[str, Cost]:
    """Run jobs of ``losses_once.py`` in turns, and return the medians of each."""
    processes = {
        name: BenchmarkProcess("losses_once.py", [work, *map(str, size)], variables or {})
        for name, work in works.items()
    }
    return measuring.measure(processes, config)


if __name__ == "__main__":
    main()

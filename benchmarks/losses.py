"""Cost of one step of a rank loss, forward and backward: hgld beside a straightforward dense implementation.

A batch has 4 images of each landmark, in 78 groups and 2 roots, and d = 512; a set of references has 20 images of
each. Every measurement runs in a process of its own that waits for idle cores; the tables hold medians of processor
time, except for the large sets of references, which are measured once. This command writes the section of the README;
with a clone of https://github.com/elias-ramzi/SupRank, whose requirements are installed, also for the authors' code::

    python benchmarks/losses.py --suprank SupRank
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import measuring
import numpy as np
import torch
from measuring import BenchmarkProcess, Cost, MeasurementConfig
from report import table, write_section

#: The job of ``losses_once.py`` for each loss.
LOSSES = {"Sup-H-AP": "sup_h_ap", "Smooth-AP": "smooth_ap"}
BATCHES = (128, 256, 512, 1024, 2048, 4096)
#: The largest batch whose dense arrays fit into 24 GB: at 1,024 each of them takes 4 GB.
LARGEST_DENSE = 512
REFERENCES = ((256, 100_000), (256, 1_000_000))
#: Queries and references for the comparison of pairs and interpolation.
SUM_SIZES = ((64, 256), (64, 512), (64, 1024), (64, 2048), (64, 4096), (64, 8192), (4, 100_000))
HEADER = ["loss", "batch", "work", "processor s", "GB"]


def main() -> None:
    """Measure, and write tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--suprank", type=Path, help="clone of the authors' code, to be measured as well")
    parser.add_argument("--quick", action="store_true", help="print small sizes, and write nothing")
    options = parser.parse_args()
    config = MeasurementConfig(options.device, options.repeats, wait_s=0 if options.quick else 60)
    once = config._replace(repeats=1)
    sizes = ((32,), ((8, 400),), ((8, 300),)) if options.quick else (BATCHES, REFERENCES, SUM_SIZES)
    with tempfile.TemporaryDirectory() as name:
        tables = [
            table(HEADER, compare(Path(name), sizes[0], config, options.suprank)),
            table(["loss", "queries x references", "processor s", "GB"], with_references(Path(name), sizes[1], once)),
            table(
                ["queries x references", "pairs, ms a query on one core", "interpolation"],
                compare_sums(Path(name), sizes[2], config),
            ),
        ]
    if options.quick:
        print("\n\n".join(tables))
        return
    where = f"On {torch.cuda.get_device_name(config.device)}. " if config.device != "cpu" else ""
    write_section(
        "losses",
        "\n\n".join(
            [*tables, f"{where}torch {torch.__version__}; medians of {config.repeats}, one run with references."]
        ),
    )


def compare(
    folder: Path, batches: Sequence[int], config: MeasurementConfig, suprank: Path | None = None
) -> list[list[str]]:
    """Return rows of hgld, of the dense implementation and of the authors' code."""
    variables = {"PYTHONPATH": os.pathsep.join([str(suprank), os.environ.get("PYTHONPATH", "")])} if suprank else {}
    rows = []
    for loss, work in LOSSES.items():
        for size in batches:
            jobs = {"hgld": work}
            if size <= LARGEST_DENSE:
                authors = {"the authors' code": f"suprank_{work}"} if suprank else {}
                jobs = {**authors, "dense": f"dense_{work}", **jobs}
            costs = measure(folder, jobs, (size, 0), config, variables)
            if "dense" in jobs:
                check(folder)
            rows += [[loss, f"{size:,}", method, *cells(cost)] for method, cost in costs.items()]
    return rows


def with_references(folder: Path, sizes: Sequence[tuple[int, int]], config: MeasurementConfig) -> list[list[str]]:
    """Return rows of hgld for queries ranked against the references of a memory."""
    rows = []
    for size in sizes:
        costs = measure(folder, LOSSES, size, config)
        rows += [[loss, f"{size[0]:,} x {size[1]:,}", *cells(cost)] for loss, cost in costs.items()]
    return rows


def compare_sums(folder: Path, sizes: Sequence[tuple[int, int]], config: MeasurementConfig) -> list[list[str]]:
    """Return rows of sums of H^- over the lower levels, by pairs and by interpolation."""
    rows = []
    for size in sizes:
        costs = measure(
            folder, {"pairs": "pairs", "interpolation": "interpolation"}, size, config, {"OMP_NUM_THREADS": "1"}
        )
        rows.append(
            [f"{size[0]:,} x {size[1]:,}", *(f"{1000 * cost.processor_s / size[0]:.2f}" for cost in costs.values())]
        )
    return rows


def cells(cost: Cost) -> list[str]:
    """Return seconds of processor time and GB as texts."""
    return [f"{cost.processor_s:.3f}", f"{cost.gb:.2f}"]


def measure(
    folder: Path,
    works: Mapping[str, str],
    size: tuple[int, int],
    config: MeasurementConfig,
    variables: Mapping[str, str] | None = None,
) -> dict[str, Cost]:
    """Run jobs of ``losses_once.py`` in turns, and return the medians of each."""
    processes = {
        name: BenchmarkProcess("losses_once.py", [str(folder), work, *map(str, size)], variables or {})
        for name, work in works.items()
    }
    return measuring.measure(processes, config)


def check(folder: Path) -> None:
    """Check that hgld and the dense implementation agree.

    A pair whose score difference equals delta up to rounding may get either slope, so gradients may differ slightly.
    """
    ours, dense = np.load(folder / "hgld.npz"), np.load(folder / "dense.npz")
    np.testing.assert_allclose(ours["value"], dense["value"], rtol=0, atol=1e-5)
    largest = np.abs(dense["gradient"]).max()
    np.testing.assert_allclose(ours["gradient"], dense["gradient"], rtol=0, atol=1e-3 * largest)


if __name__ == "__main__":
    main()

"""Processor time of evaluation and losses: this version, another one, peers and lower bounds, in one run.

Every measurement runs in a process of its own with one thread, in turns; the table holds medians of processor time.
Processes measure the checkouts in turns, so a busy machine slows all of them. This command writes the section of the
README; the other checkout may be any version of hgld that has ``hgld.evaluate_retrieval``::

    git worktree add ../before REVISION
    python benchmarks/versions.py --before ../before
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import measuring
import numpy as np
import torch
from evaluate import GLDV2, make_embeddings
from measuring import BenchmarkProcess, Cost, MeasurementConfig
from report import table, write_section

CHECKOUT = Path(__file__).parents[1]
HEADER = ["work", "before", "now", "ratio", "beside it"]


class Row(NamedTuple):
    """A job of hgld in both versions, and what it is compared with."""

    name: str
    script: str
    job: str
    size: tuple[int, int]
    peers: Mapping[str, str] = {}
    #: Unit of the row, and the factor from seconds to it, which may depend on what the job wrote to its folder.
    unit: str = "s"
    factor: Callable[[Path], float] = lambda _: 1.0


def _per_pair(folder: Path) -> float:
    return 1e9 / int((folder / "pairs.txt").read_text())


def rows(scale: int = 1) -> list[Row]:
    """Return the rows of the table, with sizes divided by ``scale``."""
    gldv2 = (GLDV2[0] // scale, GLDV2[1] // scale)
    images = 20_000 // scale
    return [
        Row(
            f"all metrics, {gldv2[0]:,} queries x {gldv2[1]:,}",
            "evaluate_once.py",
            "hgld",
            gldv2,
            {"scores alone": "scores", "one sort alone": "sort"},
        ),
        Row(
            f"mAP@R and R@1, {images:,} images, leave-one-out",
            "evaluate_once.py",
            "first_items",
            (0, images),
            {"faiss and NumPy": "faiss_first_items", "pytorch-metric-learning": "pml_first_items"},
        ),
        Row(
            "Sup-H-AP, a pair of H^-, forward and backward",
            "losses_once.py",
            "pairs",
            (64 // scale, 4_096 // scale),
            unit="ns",
            factor=_per_pair,
        ),
        *(
            Row(f"Sup-H-AP, batch of {size // scale:,}", "losses_once.py", "sup_h_ap", (size // scale, 0))
            for size in (512, 4_096)
        ),
        Row(
            f"Sup-H-AP, {256 // scale} queries x {100_000 // scale:,} references",
            "losses_once.py",
            "sup_h_ap",
            (256 // scale, 100_000 // scale),
        ),
    ]


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", type=Path, required=True, help="checkout of another version of hgld")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="print small sizes, and write nothing")
    options = parser.parse_args()
    config = MeasurementConfig("cpu", options.repeats, wait_s=0 if options.quick else 30)
    with tempfile.TemporaryDirectory() as name:
        body = table(
            HEADER, [measure(Path(name), row, options.before, config) for row in rows(16 if options.quick else 1)]
        )
    if options.quick:
        print(body)
        return
    versions = f"NumPy {np.__version__}, torch {torch.__version__}, one thread; medians of {config.repeats}."
    write_section("versions", f"{body}\n\n{versions}")


def measure(folder: Path, row: Row, before: Path, config: MeasurementConfig) -> list[str]:
    """Return the cells of a row of the table."""
    if row.script == "evaluate_once.py":
        make_embeddings(folder, row.size[1], row.size[0], (max(row.size[1] // 8, 2), 78, 2))
    jobs = {"before": (row.job, before), "now": (row.job, CHECKOUT)}
    jobs |= {peer: (job, CHECKOUT) for peer, job in row.peers.items()}
    costs = measuring.measure(
        {
            name: BenchmarkProcess(
                row.script,
                [str(folder), job, *map(str, row.size)],
                {"PYTHONPATH": str(checkout.resolve()), "OMP_NUM_THREADS": "1"},
            )
            for name, (job, checkout) in jobs.items()
        },
        config,
    )
    check(folder)
    factor = row.factor(folder)
    before_s, now_s = costs.pop("before").processor_s, costs.pop("now").processor_s
    values = [f"{value * factor:.3g} {row.unit}" for value in (before_s, now_s)]
    return [row.name, *values, f"{before_s / now_s:.1f}", peers(costs)]


def peers(costs: Mapping[str, Cost]) -> str:
    """Return what was measured beside hgld, as text."""
    return ", ".join(f"{name} {cost.processor_s:.3g} s" for name, cost in costs.items())


def check(folder: Path) -> None:
    """Check that libraries agree on the means of the metrics where they have computed the same."""
    means: Sequence[Mapping[str, float]] = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    for other in means[1:]:
        for name, value in other.items():
            if not math.isclose(value, means[0][name], abs_tol=1e-4):
                raise SystemExit(f"{name} differs between libraries: {value} and {means[0][name]}")


if __name__ == "__main__":
    main()

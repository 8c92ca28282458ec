"""Cost of an evaluation, beside the scores that every evaluation needs.

Embeddings are synthetic (d = 512, float16, memory-mapped) around the centres of their labels: landmarks with 8 images
each in 78 groups and 2 roots. Every measurement runs in a process of its own, in one thread; the table holds medians
of processor time. This command writes the section of the README::

    python benchmarks/evaluate.py
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from measuring import BenchmarkProcess, MeasurementConfig, measure
from report import table, write_section

DIMENSION = 512
HEADER = ["queries x gallery", "work", "processor s", "GB"]
#: Numbers of queries and gallery items of GLDv2's own retrieval.
GLDV2 = (1_129, 761_757)
#: The job of ``evaluate_once.py`` for each row.
JOBS = {"scores alone": "scores", "all metrics": "metrics"}


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="print small sizes, and write nothing")
    options = parser.parse_args()
    config = MeasurementConfig(options.device, options.repeats, wait_s=0 if options.quick else 60)
    n_queries, n_gallery = (8, 2_000) if options.quick else GLDV2
    with tempfile.TemporaryDirectory() as name:
        make_embeddings(Path(name), n_gallery, n_queries, (n_gallery // 8, 78, 2))
        processes = {}
        for work, job in JOBS.items():
            arguments = [name, job, str(n_queries), str(n_gallery)]
            processes[work] = BenchmarkProcess(
                "evaluate_once.py", arguments, {"OMP_NUM_THREADS": "1"}
            )
        costs = measure(processes, config)
    size = f"{n_queries:,} x {n_gallery:,}"
    rows = [
        [size, work, f"{cost.processor_s:.1f}", f"{cost.gb:.2f}"] for work, cost in costs.items()
    ]
    if options.quick:
        print(table(HEADER, rows))
        return
    where = f"On {torch.cuda.get_device_name(config.device)}. " if config.device != "cpu" else ""
    versions = f"{where}NumPy {np.__version__}, torch {torch.__version__}, one thread; medians of {config.repeats}."
    write_section("evaluate", f"{table(HEADER, rows)}\n\n{versions}")


def make_embeddings(folder: Path, n_gallery: int, n_queries: int, sizes: Sequence[int]) -> None:
    """Write ``embeddings.npy`` and ``labels.npy``: gallery, then queries, around the centres of their labels.

    Args:
        folder: Folder to write to.
        n_gallery: Number of images in the gallery, distributed evenly over the finest labels.
        n_queries: Number of queries, with labels drawn at random.
        sizes: Number of labels of each level, finest first.
    """
    rng = np.random.default_rng(0)
    finest = rng.permutation(np.arange(n_gallery) % sizes[0])
    columns = [np.concatenate([finest, rng.integers(0, sizes[0], n_queries)])]
    for finer, coarser in pairwise(sizes):
        columns.append(rng.integers(0, coarser, finer)[columns[-1]])
    labels = np.stack(columns, axis=1)
    np.save(folder / "labels.npy", labels)
    centres = [0.4 * rng.standard_normal((size, DIMENSION), np.float32) for size in sizes]
    shape = (len(labels), DIMENSION)
    embeddings = np.lib.format.open_memmap(folder / "embeddings.npy", "w+", np.float16, shape)
    for start in range(0, len(labels), 2**13):
        block = slice(start, start + 2**13)
        around = sum(
            centre[column] for centre, column in zip(centres, labels[block].T, strict=True)
        )
        embeddings[block] = around + rng.standard_normal(
            (len(labels[block]), DIMENSION), np.float32
        )
    embeddings.flush()


if __name__ == "__main__":
    main()

"""Cost of an evaluation: hgld, a straightforward dense implementation, the lower bound, and growth with the gallery.

Embeddings are synthetic (d = 512, float16, memory-mapped) around the centres of their labels: for retrieval,
landmarks with 8 images each in 78 groups and 2 roots; for leave-one-out, classes and super-classes as in Stanford
Online Products (5.3 images per class, 12 super-classes), the largest as in iNaturalist's test set (55 and 13). Every
measurement runs in a process of its own that waits for idle cores; the tables hold medians. The first command writes
the first section of the README, the second one the section on growth with its picture::

    python benchmarks/evaluate.py
    python benchmarks/evaluate.py --growth
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import measuring
import numpy as np
import pandas as pd
import torch
from measuring import BenchmarkProcess, Cost, MeasurementConfig
from report import table, write_section

from hgld.figures.style import FAINT, INK, LIGHT, save

T = TypeVar("T")

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "evaluate.png"
DIMENSION = 512
#: Disables NumPy's AVX-512 sort; the names are those of NumPy 2.4, see ``np.show_config()``.
WITHOUT_AVX512 = {"NPY_DISABLE_CPU_FEATURES": "AVX512_ICL X86_V4"}


class Job(NamedTuple):
    """A job of ``evaluate_once.py``, and its environment variables."""

    work: str
    variables: Mapping[str, str] = MappingProxyType({})


#: Cost of the authors' published code on two cores, in seconds and GB, by queries x gallery.
PUBLISHED = {(64, 100_000): Cost(2.0, 1.8), (64, 762_000): Cost(27.7, 8.5)}
HEADER = ["queries x gallery", "work", "s", "GB"]
GLDV2 = (1_129, 761_757)
#: Images of each leave-one-out evaluation, its classes and super-classes.
LEAVE_ONE_OUT = {
    7_500: (1_403, 12),
    15_000: (2_806, 12),
    30_000: (5_611, 12),
    60_502: (11_316, 12),
    136_093: (2_452, 13),
}


def main() -> None:
    """Measure, and write tables and picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--growth", action="store_true", help="measure leave-one-out at several sizes instead")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="print small sizes, and write nothing")
    options = parser.parse_args()
    config = MeasurementConfig(options.device, options.repeats, wait_s=0 if options.quick else 60)
    where = f"On {torch.cuda.get_device_name(config.device)}. " if config.device != "cpu" else ""
    versions = f"{where}NumPy {np.__version__}, torch {torch.__version__}; medians of {config.repeats}."
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.quick:
            print(table(HEADER, compare(folder, [(8, 2_000)], config)))
            print(grow(folder, {1_000: (180, 5)}, config, folder / "growth.png"))
        elif options.growth:
            body = grow(folder, LEAVE_ONE_OUT, config, PICTURE)
            write_section("evaluate-growth", f"{body}\n\n{versions}")
        else:
            rows = compare(folder, list(PUBLISHED), config)
            parts, far = dissect(folder, GLDV2, config)
            write_section("evaluate", f"{table(HEADER, rows + parts)}\n\n{far} {versions}")


def compare(folder: Path, sizes: Sequence[tuple[int, int]], config: MeasurementConfig) -> list[list[str]]:
    """Return rows of hgld and of the dense implementation."""
    rows = []
    for size in sizes:
        make_embeddings(folder, size[1], size[0], (size[1] // 8, 78, 2))
        jobs = {"dense": Job("dense"), "hgld": Job("hgld")}
        if config.device == "cpu":
            jobs["hgld, AVX-512 sort off"] = Job("hgld", WITHOUT_AVX512)
        costs = measure(folder, jobs, size, config)
        check(folder)
        if size in PUBLISHED:
            costs = {"the authors' code, as published": PUBLISHED[size], **costs}
        rows += [row(size, method, cost) for method, cost in costs.items()]
    return rows


def dissect(folder: Path, size: tuple[int, int], config: MeasurementConfig) -> tuple[list[list[str]], str]:
    """Return rows of hgld and of the parts that every evaluation needs, and the ratio of hgld to their sum."""
    make_embeddings(folder, size[1], size[0], (size[1] // 8, 78, 2))
    jobs = {"scores alone": Job("scores")}
    for method, work in (("one sort alone", "sort"), ("scores, keys, one sort", "ranking"), ("hgld", "hgld")):
        jobs[method] = Job(work)
        if config.device == "cpu":
            jobs[f"{method}, AVX-512 sort off"] = Job(work, WITHOUT_AVX512)
    costs = measure(folder, jobs, size, config)
    return [row(size, method, cost) for method, cost in costs.items()], distance(costs)


def distance(costs: Mapping[str, Cost]) -> str:
    """Return a sentence on the time of hgld relative to the lower bound."""
    ratios = [
        f"{costs[f'hgld{off}'].seconds / (costs['scores alone'].seconds + costs[f'one sort alone{off}'].seconds):.1f}"
        for off in ("", ", AVX-512 sort off")
        if f"hgld{off}" in costs
    ]
    return f"Scores alone and one sort alone are a lower bound: hgld takes {' and '.join(ratios)} times as long."


def row(size: tuple[int, int], method: str, cost: Cost) -> list[str]:
    """Return a row of the table."""
    return [f"{size[0]:,} x {size[1]:,}", method, f"{cost.seconds:.2f}", f"{cost.gb:.2f}"]


def grow(folder: Path, sizes: dict[int, tuple[int, int]], config: MeasurementConfig, picture: Path) -> str:
    """Return the table of leave-one-out evaluations, and draw them; those above 50,000 images are measured once."""
    costs = {}
    for n_images, classes in sizes.items():
        make_embeddings(folder, n_images, 0, classes)
        query_config = config if n_images < 50_000 else config._replace(repeats=1)
        costs |= measure(folder, {n_images: Job("leave_one_out")}, (0, n_images), query_config)
    draw_growth(picture, costs)
    rows = [
        [f"{n:,}", f"{cost.seconds:.2f}", f"{cost.gb:.2f}", f"{n * n / cost.seconds / 1e6:.0f}"]
        for n, cost in costs.items()
    ]
    return table(["images", "s", "GB", "million pairs/s"], rows)


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
        around = sum(centre[column] for centre, column in zip(centres, labels[block].T, strict=True))
        embeddings[block] = around + rng.standard_normal((len(labels[block]), DIMENSION), np.float32)
    embeddings.flush()


def measure(folder: Path, jobs: dict[T, Job], size: tuple[int, int], config: MeasurementConfig) -> dict[T, Cost]:
    """Run the jobs in turns, and return the medians of each."""
    processes = {
        name: BenchmarkProcess("evaluate_once.py", [str(folder), job.work, *map(str, size)], job.variables)
        for name, job in jobs.items()
    }
    return measuring.measure(processes, config)


def check(folder: Path) -> None:
    """Check that hgld and the dense implementation agree for every query."""
    ours, dense = pd.read_parquet(folder / "hgld.parquet"), np.load(folder / "dense.npz")
    for name in ours:
        np.testing.assert_allclose(ours[name], dense[name], rtol=0, atol=1e-5, err_msg=name)


def draw_growth(path: Path, costs: dict[int, Cost]) -> None:
    """Draw time and memory of leave-one-out evaluations by the number of images, both axes logarithmic.

    Memory below 1 MB is drawn at 1 MB: a small evaluation may need no more than the process held before, and a
    logarithmic axis has no 0.
    """
    from matplotlib.figure import Figure

    sizes = np.array(list(costs))
    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    time_axes, memory_axes = figure.subplots(1, 2)
    for axes, values, title, colour in (
        (time_axes, np.array([cost.seconds for cost in costs.values()]), "Time, s", LIGHT[0]),
        (
            memory_axes,
            np.array([max(cost.gb, 1e-3) for cost in costs.values()]),
            "Memory above the embeddings, GB",
            LIGHT[2],
        ),
    ):
        axes.loglog(sizes, values, color=colour, marker="o", linewidth=2)
        for size, value in zip(sizes, values, strict=True):
            axes.annotate(
                f"{value:.2g}" if value < 10 else f"{value:.0f}",
                (size, value),
                (-8, 6),
                textcoords="offset points",
                ha="center",
                fontsize=9,
                color=INK,
            )
        first, last = np.floor(np.log10(values.min())), np.ceil(np.log10(values.max()))
        decades = 10.0 ** np.arange(first, max(last, first + 1) + 1)  # two at least: an axis needs a length
        axes.set_yticks(decades, [f"{decade:g}" for decade in decades])
        axes.set_ylim(decades[0], decades[-1])
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8)
        axes.minorticks_off()
        axes.margins(x=0.1)
        axes.grid(color=FAINT, alpha=0.2)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(title, loc="left", fontsize=11, color=INK)
        axes.set_xlabel("images, each ranked against all others", fontsize=9, color=FAINT)
    square = costs[sizes[-1]].seconds * (sizes / sizes[-1]) ** 2
    time_axes.plot(sizes, square, "--", color=FAINT, linewidth=1, label="square of the images", zorder=1)
    time_axes.legend(loc="lower right", frameon=False, fontsize=9, labelcolor=FAINT)
    save(figure, path)


if __name__ == "__main__":
    main()

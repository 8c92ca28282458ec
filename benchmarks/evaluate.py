"""What an evaluation costs: hgld beside a plain dense implementation, the floor, and the growth with the gallery.

Embeddings are made up (d = 512, float16, memory-mapped) around the centres of their labels: for the retrieval of
landmarks 8 images each in 78 groups and 2 roots, for leave-one-out classes and super-classes as in Stanford Online
Products (5.3 images a class, 12 super-classes), at the size of iNaturalist's test set as there (55 and 13). Every
measurement is a process of its own; the table holds medians. The first section is written by the first line, the
picture and the second section by the second::

    python benchmarks/evaluate.py
    python benchmarks/evaluate.py --growth
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from report import table, write_section

from hgld.figures.style import FAINT, INK, LIGHT, save

PICTURE = Path(__file__).parents[1] / "docs" / "evaluate.png"
DIMENSION = 512
#: Switches NumPy's AVX-512 sort off; the names are those of NumPy 2.4, see ``np.show_config()``.
WITHOUT_AVX512 = {"NPY_DISABLE_CPU_FEATURES": "AVX512_ICL X86_V4"}


class Cost(NamedTuple):
    """Of one measurement, or the median of some."""

    seconds: float
    gb: float


#: Queries x gallery: what the authors' published code took on two cores, in seconds and GB.
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
    parser.add_argument("--quick", action="store_true", help="small sizes, printed; writes nothing")
    options = parser.parse_args()
    device, repeats = options.device, options.repeats
    where = f"On {torch.cuda.get_device_name(device)}. " if device != "cpu" else ""
    versions = f"{where}NumPy {np.__version__}, torch {torch.__version__}; medians of {repeats}."
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.quick:
            print(table(HEADER, compare(folder, [(8, 2_000)], device, repeats)))
            print(grow(folder, {500: (90, 5), 1_000: (180, 5)}, device, repeats, folder / "growth.png"))
        elif options.growth:
            body = grow(folder, LEAVE_ONE_OUT, device, repeats, PICTURE)
            write_section("evaluate-growth", f"{body}\n\n{versions}")
        else:
            rows = compare(folder, list(PUBLISHED), device, repeats) + dissect(folder, GLDV2, device, repeats)
            write_section("evaluate", f"{table(HEADER, rows)}\n\n{versions}")


def compare(folder: Path, sizes: Sequence[tuple[int, int]], device: str, repeats: int) -> list[list[str]]:
    """Rows of hgld beside the dense implementation."""
    rows = []
    for size in sizes:
        make_embeddings(folder, size[1], size[0], (size[1] // 8, 78, 2))
        if size in PUBLISHED:
            rows.append(row(size, "the authors' code, as published", PUBLISHED[size]))
        rows.append(row(size, "dense", measure(folder, "dense", size, device, repeats)))
        rows.append(row(size, "hgld", measure(folder, "hgld", size, device, repeats)))
        check(folder)
        if device == "cpu":
            cost = measure(folder, "hgld", size, device, repeats, WITHOUT_AVX512)
            rows.append(row(size, "hgld, AVX-512 sort off", cost))
    return rows


def dissect(folder: Path, size: tuple[int, int], device: str, repeats: int) -> list[list[str]]:
    """Rows of hgld and of what an evaluation cannot do without."""
    make_embeddings(folder, size[1], size[0], (size[1] // 8, 78, 2))
    rows = [row(size, "scores alone", measure(folder, "scores", size, device, repeats))]
    for work, what in (("sort", "one sort alone"), ("ranking", "scores, keys, one sort"), ("hgld", "hgld")):
        rows.append(row(size, what, measure(folder, work, size, device, repeats)))
        if device == "cpu":
            cost = measure(folder, work, size, device, repeats, WITHOUT_AVX512)
            rows.append(row(size, f"{what}, AVX-512 sort off", cost))
    return rows


def row(size: tuple[int, int], what: str, cost: Cost) -> list[str]:
    """A row of the table."""
    return [f"{size[0]:,} x {size[1]:,}", what, f"{cost.seconds:.2f}", f"{cost.gb:.2f}"]


def grow(folder: Path, sizes: dict[int, tuple[int, int]], device: str, repeats: int, picture: Path) -> str:
    """The table of leave-one-out evaluations, and their picture; those above 50,000 images are measured once."""
    costs = {}
    for n_images, classes in sizes.items():
        make_embeddings(folder, n_images, 0, classes)
        times = repeats if n_images < 50_000 else 1
        costs[n_images] = measure(folder, "leave_one_out", (0, n_images), device, times)
    draw_growth(picture, costs)
    rows = [
        [f"{n:,}", f"{cost.seconds:.2f}", f"{cost.gb:.2f}", f"{n * n / cost.seconds / 1e6:.0f}"]
        for n, cost in costs.items()
    ]
    return table(["images", "s", "GB", "million pairs/s"], rows)


def make_embeddings(folder: Path, n_gallery: int, n_queries: int, sizes: Sequence[int]) -> None:
    """Write ``embeddings.npy`` and ``labels.npy``: the gallery, then the queries, around the centres of their labels.

    Args:
        folder: where to.
        n_gallery: images in the gallery, as evenly as possible of the finest labels.
        n_queries: images after them, of labels drawn at random.
        sizes: how many labels each level has, finest first.
    """
    chance = np.random.default_rng(0)
    finest = chance.permutation(np.arange(n_gallery) % sizes[0])
    columns = [np.concatenate([finest, chance.integers(0, sizes[0], n_queries)])]
    for finer, coarser in pairwise(sizes):
        columns.append(chance.integers(0, coarser, finer)[columns[-1]])
    labels = np.stack(columns, axis=1)
    np.save(folder / "labels.npy", labels)
    centres = [0.4 * chance.standard_normal((size, DIMENSION), np.float32) for size in sizes]
    shape = (len(labels), DIMENSION)
    embeddings = np.lib.format.open_memmap(folder / "embeddings.npy", "w+", np.float16, shape)
    for start in range(0, len(labels), 2**13):
        block = slice(start, start + 2**13)
        around = sum(centre[column] for centre, column in zip(centres, labels[block].T, strict=True))
        embeddings[block] = around + chance.standard_normal((len(labels[block]), DIMENSION), np.float32)
    embeddings.flush()


def measure(
    folder: Path, work: str, size: tuple[int, int], device: str, repeats: int, variables: dict[str, str] | None = None
) -> Cost:
    """The medians of some runs, each a process of its own."""
    once = [sys.executable, str(Path(__file__).with_name("evaluate_once.py")), str(folder), work]
    costs = []
    for _ in range(repeats):
        run = subprocess.run(
            [*once, *map(str, size), device],
            env={**os.environ, **(variables or {})},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        costs.append(Cost(**json.loads(run.stdout)))
        print(work, size, variables or "", costs[-1], f"load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    return Cost(*(statistics.median(values) for values in zip(*costs, strict=True)))


def check(folder: Path) -> None:
    """Compare what hgld and the dense implementation have found of each query."""
    ours, dense = pd.read_parquet(folder / "hgld.parquet"), np.load(folder / "dense.npz")
    for name in ours:
        np.testing.assert_allclose(ours[name], dense[name], rtol=0, atol=1e-5, err_msg=name)


def draw_growth(path: Path, costs: dict[int, Cost]) -> None:
    """Draw time and memory of leave-one-out evaluations by the number of images, both axes logarithmic."""
    from matplotlib.figure import Figure

    sizes = np.array(list(costs))
    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    panels = zip(figure.subplots(1, 2), zip(*costs.values(), strict=True), strict=True)
    for (axes, values), title, unit, colour in zip(
        panels, ("Time", "Memory above the embeddings"), ("s", "GB"), LIGHT[:1] + LIGHT[2:3], strict=True
    ):
        axes.loglog(sizes, values, color=colour, marker="o", linewidth=2)
        for size, value in zip(sizes, values, strict=True):
            axes.annotate(f"{value:.3g}", (size, value), (0, 7), textcoords="offset points", ha="right", color=INK)
        axes.set_title(f"{title}, {unit}", loc="left", fontsize=11, color=INK)
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8)
        axes.minorticks_off()
        axes.margins(x=0.08, y=0.15)
        axes.grid(color=FAINT, alpha=0.2)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel("images, each ranked against all others", fontsize=9, color=FAINT)
    save(figure, path)


if __name__ == "__main__":
    main()

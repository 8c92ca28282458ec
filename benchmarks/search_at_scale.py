"""Measure indexes of a gallery in parts: what building them takes, their recall, and the time of a query.

Usage: python benchmarks/search_at_scale.py FOLDER [--parts 10] [--rows 1000000] [--index ivf-pq]

Embeddings of 64 dimensions in float16 lie around 20,000 centres. One index is built of all parts, and if there are
several, one of each. Queries lie around the same centres, and are searched one at a time, after as many that are not
counted; their ten nearest images are compared with those of an exact search. The folder, of 2 GB, is kept and used
again.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hgld.cli.search import format_index
from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.search.faiss_index import FaissIndex, build_index, open_index
from hgld.search.gallery import Gallery, read_gallery
from hgld.search.searcher import Searcher

DIM, CENTRES, N_QUERIES = 64, 20_000, 200


def draw(n: int, *seeds: int) -> NDArray[np.float16]:
    """Draw embeddings around the centres."""
    centres = np.random.default_rng(0).standard_normal((CENTRES, DIM), np.float32)
    rng = np.random.default_rng(seeds)
    vectors = centres[rng.integers(CENTRES, size=n)]
    vectors += 0.7 * rng.standard_normal((n, DIM), np.float32)
    return vectors.astype(np.float16)


def usage() -> str:
    """Return the processor time and the peak of memory so far."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return (
        f"{own.ru_utime + own.ru_stime:,.0f} s of processor time and a peak of {own.ru_maxrss / 2**20:.1f} GB so far"
    )


def query_times(gallery: Gallery, index: FaissIndex, queries: NDArray[np.float16]) -> NDArray[np.float64]:
    """Return the milliseconds of each query, by the clock and of processor time, shape (n, 2)."""
    searcher, times = Searcher(gallery, index=index), []
    for row in range(len(queries)):
        start = np.array([time.perf_counter(), time.process_time()])
        searcher.search(queries[row : row + 1], 10)
        times.append(1000 * (np.array([time.perf_counter(), time.process_time()]) - start))
    return np.array(times)


def main() -> None:
    """Write the embeddings unless they are there, build the indexes, and print what they take and find."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", type=int, default=10)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--index", default="ivf-pq")
    arguments = parser.parse_args()
    embeddings, indexes = arguments.folder / "embeddings", arguments.folder / arguments.index
    embeddings.mkdir(parents=True, exist_ok=True)
    indexes.mkdir(exist_ok=True)
    parts = [embeddings / f"{number:03}.npy" for number in range(arguments.parts)]
    for number, part in enumerate(parts):
        if not part.exists():
            np.save(part, draw(arguments.rows, 1, number))
    gallery, queries = read_gallery(embeddings), draw(2 * N_QUERIES, 2)
    print(f"{len(gallery):,} images read: {usage()}", flush=True)
    exact = nearest_neighbours(queries[N_QUERIES:], gallery.vectors, 10)[1].tolist()
    whole = arguments.folder / f"{arguments.index}.faiss"
    for path, sources in (
        (whole, {whole: embeddings}),
        (indexes, {indexes / f"{part.stem}.faiss": part for part in parts}),
    ):
        if path == indexes and len(parts) == 1:
            continue
        for out, source in sources.items():
            if not out.exists():
                build_index(read_gallery(source), out, arguments.index)
        print(f"{path.name} built: {usage()}", flush=True)
        index = open_index(path, gallery)
        times = query_times(gallery, index, queries)[N_QUERIES:]
        print(format_index(index.record))
        found = index.search(queries[N_QUERIES:].astype(np.float32), 10)[1].tolist()
        hits = sum(len({*own} & {*near}) for own, near in zip(found, exact, strict=True))
        print(f"recall@10 of the queries {hits / (10 * N_QUERIES):.3f}")
        (median, processor), slowest = np.median(times, axis=0), times.max(axis=0)
        print(f"a query takes {median:.1f} ms, at most {slowest[0]:.1f}; {processor:.1f} ms of processor time")
    print(usage())


if __name__ == "__main__":
    main()

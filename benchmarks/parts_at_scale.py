"""Evaluate against galleries in parts: many distractors, of which parts are counted, and labelled images alone.

Usage: python benchmarks/parts_at_scale.py FOLDER [--parts 50] [--rows 1000000] [--labelled 5000000]

500 queries have a thousand positives of three levels each among 25,000 labelled images; distractors are PARTS files
of ROWS random embeddings of 64 dimensions in float16. The processor time of the evaluation stands beside that of the
plain product, which is the same scores without a use of them, and the values of some queries beside those of plain
loops. Then 200 queries rank LABELLED images, in one file and in ten parts. The folder, of 8 GB, is kept and used
again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from measuring import print_cost
from numpy.typing import NDArray

from hgld.compute.executors import Part
from hgld.compute.scoring import Scorer, float32_matmul
from hgld.evaluation import EvaluationConfig, EvaluationFiles, RankingConfig, evaluate_files
from hgld.evaluation.evaluation_files import count_distractors_file, read_distractor_counts
from hgld.tables.embeddings import read_vectors

DIM, N_QUERIES, N_SAMPLED, N_COUNTED = 64, 500, 5, 10
#: Roots, groups of a root, landmarks of a group, images of a landmark; a query has 1,000 positives.
SHAPE = (25, 4, 5, 50)
FILES = ("query_embeddings", "gallery_embeddings", "labels", "query_labels")


def write_data(folder: Path, n_parts: int, n_rows: int, n_labelled: int) -> None:
    """Write embeddings and labels of queries, labelled images and distractors, unless they are there."""
    rng = np.random.default_rng(0)
    landmarks = np.indices(SHAPE[:3]).reshape(3, -1).T
    codes = [landmarks @ np.array(factors) for factors in ([20, 5, 1], [4, 1, 0], [1, 0, 0])]
    centres = sum(
        weight * rng.normal(size=(code.max() + 1, DIM))[code]
        for code, weight in zip(codes, (0.5, 0.45, 0.65), strict=True)
    )

    def write(name: str, rows: NDArray[np.int64]) -> None:
        vectors = np.concatenate(
            [centres[block] + 0.4 * rng.normal(size=(len(block), DIM)) for block in np.array_split(rows, 50)]
        )
        np.save(folder / f"{name}.npy", vectors.astype(np.float16))
        np.save(folder / f"{name}_labels.npy", np.stack([code[rows] for code in codes], axis=1))

    for name, rows in (
        ("queries", np.arange(N_QUERIES)),
        ("gallery", np.repeat(np.arange(len(landmarks)), SHAPE[3])),
        ("labelled", rng.integers(len(landmarks), size=n_labelled)),
    ):
        if not (folder / f"{name}_labels.npy").exists():
            write(name, rows)
    (folder / "labelled").mkdir(exist_ok=True)
    for number, part in enumerate(np.array_split(np.load(folder / "labelled.npy", mmap_mode="r"), 10)):
        if not (folder / "labelled" / f"{number}.npy").exists():
            np.save(folder / "labelled" / f"{number}.npy", part)
    (folder / "distractors").mkdir(exist_ok=True)
    for number in range(n_parts):
        path = folder / "distractors" / f"{number:03}.npy"
        if not path.exists():
            vectors = np.random.default_rng([1, number]).standard_normal((n_rows, DIM), np.float32)
            np.save(path, vectors.astype(np.float16))


class Work:
    """The jobs that are measured, one per method."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = ("queries.npy", "gallery.npy", "gallery_labels.npy", "queries_labels.npy")
        self.paths = {field: folder / name for field, name in zip(FILES, names, strict=True)}
        self.files = EvaluationFiles(**self.paths, distractor_embeddings=folder / "distractors")

    def product(self) -> None:
        """Take the scores of all queries with all distractors, and do nothing with them."""
        queries, distractors = (read_vectors(self.folder / name) for name in ("queries.npy", "distractors"))
        scorer = Scorer(queries, distractors, RankingConfig())
        with float32_matmul("float32"):
            for _ in scorer.scores(slice(0, N_QUERIES)):
                pass

    def distractors(self) -> None:
        """Evaluate in one process."""
        (result,) = evaluate_files(self.files).results
        result.per_query.to_parquet(self.folder / "counted.parquet")
        print(result, result.settings["distractors"], file=sys.stderr)

    def counts(self) -> None:
        """Count all parts, and add them up."""
        config, counts = EvaluationConfig(), self.folder / "counts"
        for number in range(1, N_COUNTED + 1):
            count_distractors_file(self.files, None, config, Part(number, N_COUNTED), counts)
        totals = read_distractor_counts(self.files, None, config, counts)
        (result,) = evaluate_files(self.files, None, EvaluationConfig(distractor_counts=totals)).results
        result.per_query.to_parquet(self.folder / "added.parquet")

    def one_file(self) -> None:
        """Rank the labelled images in one file."""
        self._labelled("labelled.npy", "one_file")

    def ten_parts(self) -> None:
        """Rank the labelled images in ten parts."""
        self._labelled("labelled", "ten_parts")

    def _labelled(self, gallery: str, name: str) -> None:
        for file in ("queries.npy", "queries_labels.npy"):
            np.save(self.folder / f"first_{file}", np.load(self.folder / file)[:200])
        paths = self.paths | {
            "query_embeddings": self.folder / "first_queries.npy",
            "query_labels": self.folder / "first_queries_labels.npy",
            "gallery_embeddings": self.folder / gallery,
            "labels": self.folder / "labelled_labels.npy",
        }
        (result,) = evaluate_files(EvaluationFiles(**paths)).results
        result.per_query.to_parquet(self.folder / f"{name}.parquet")


def check_values(folder: Path) -> None:
    """Compare AP, H-AP and NDCG of some queries with plain loops over float64 scores; raise if they differ."""
    import pandas as pd

    values = pd.read_parquet(folder / "counted.parquet")
    assert values.equals(pd.read_parquet(folder / "added.parquet")), "parts give other values"
    assert pd.read_parquet(folder / "one_file.parquet").equals(pd.read_parquet(folder / "ten_parts.parquet"))
    gallery, labels = unit(np.load(folder / "gallery.npy")), np.load(folder / "gallery_labels.npy")
    own = np.load(folder / "queries_labels.npy")
    for query in np.linspace(0, N_QUERIES - 1, N_SAMPLED).astype(int):
        vector = unit(np.load(folder / "queries.npy")[query : query + 1])[0]
        scores, levels = gallery @ vector, (labels == own[query]).sum(axis=1)
        positives = np.flatnonzero(levels)
        best = positives[np.argsort(-scores[positives])]
        ascending, before = np.sort(scores[best]), np.zeros(len(best), np.int64)
        for path in (None, *sorted((folder / "distractors").glob("*.npy"))):
            others = scores[levels == 0] if path is None else unit(np.load(path)) @ vector
            before += np.bincount(np.searchsorted(ascending, others), minlength=len(best) + 1)[:0:-1].cumsum()
        ranks, level = before + np.arange(1, len(best) + 1), levels[best]
        found = {f"AP_l{n}": (np.arange(1, (level >= n).sum() + 1) / ranks[level >= n]).mean() for n in (1, 2, 3)}
        relevance = np.array([0, *(n / 3 / (level == n).sum() for n in (1, 2, 3))])[level]
        shared = [np.minimum(relevance[: j + 1], relevance[j]).sum() / ranks[j] for j in range(len(best))]
        found["H-AP"] = sum(shared) / relevance.sum()
        gain, ideal = 2.0**level - 1, -np.sort(-(2.0**level - 1))
        found["NDCG"] = (gain / np.log2(1 + ranks)).sum() / (ideal / np.log2(2 + np.arange(len(best)))).sum()
        difference = max(abs(values[name].iloc[query] - value) for name, value in found.items())
        print(f"query {query}: last rank {ranks[-1]:,}, AP_l1 {found['AP_l1']:.4f}, differs by {difference:.1e}")
        assert difference < 1e-5  # scores in float32 swap neighbours now and then


def unit(vectors: NDArray[np.float16]) -> NDArray[np.float64]:
    """Return vectors of length 1."""
    wide = vectors.astype(np.float64)
    return wide / np.linalg.norm(wide, axis=1, keepdims=True)


def main() -> None:
    """Write the data, measure every job in a process of its own, and check the values."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", type=int, default=50)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--labelled", type=int, default=5_000_000)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.job:
        print_cost(getattr(Work(arguments.folder), arguments.job), "cpu")
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    write_data(arguments.folder, arguments.parts, arguments.rows, arguments.labelled)
    for job in ("product", "distractors", "counts", "one_file", "ten_parts"):
        for counts in (arguments.folder / "counts").glob("*"):
            counts.unlink()
        command = [sys.executable, __file__, str(arguments.folder), "--job", job]
        cost = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        print(f"{job}: {cost['processor_s']:.1f} s of processor time, {cost['gb']:.2f} GB")
    check_values(arguments.folder)


if __name__ == "__main__":
    main()

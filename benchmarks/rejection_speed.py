"""Time of rejection scores beside the ranking of a gallery of GLDv2's size.

Scores of neighbours take theirs from the pass that ranks; a density score compares queries with what it was fitted
on. Embeddings are synthetic (d = 512, float32), around the centres of landmarks with 8 images each in 78 groups and 2
roots. All jobs run in turns in one process, and the table has medians over the rounds: seconds, and of each round the
ratio to ranking alone, by the clock and by processor time, which other work on the machine disturbs less. The second
command checks the script on small sizes, and writes nothing::

    python benchmarks/rejection_speed.py
    python benchmarks/rejection_speed.py --quick
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from report import table, write_section

from hgld.evaluation.ranking import rank
from hgld.evaluation.retrieval_task import LabelJudgements, RetrievalTask
from hgld.hierarchy import LabelMatrix
from hgld.rejection import Detector, NeighbourDetector, build_detector

DIMENSION = 512
GLDV2_GALLERY = 761_757
N_NEIGHBOURS = 10
NEIGHBOUR_SCORES = ("top1_cosine", "soft_vote", "level_agreement", "margin")
DENSITY_SCORES = ("class_means", "mahalanobis")
ALONE, WITH_SCORES = "ranking alone", f"ranking with {N_NEIGHBOURS} neighbours and {', '.join(NEIGHBOUR_SCORES)}"


class Images(NamedTuple):
    """Embeddings, float32, shape (n, 512), and labels, int64, shape (n, 3)."""

    embeddings: torch.Tensor
    labels: LabelMatrix


class Times(NamedTuple):
    """Seconds by the clock, and of processor time over all threads."""

    wall: float
    processor: float


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gallery", type=int, default=GLDV2_GALLERY)
    parser.add_argument("--queries", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="print small sizes, and write nothing")
    options = parser.parse_args()
    n_gallery, n_queries = (20_000, 64) if options.quick else (options.gallery, options.queries)
    gallery, queries = make_images(n_gallery, n_queries)
    jobs = rejection_jobs(gallery, queries)
    for job in jobs.values():  # libraries load, threads start
        job()
    rounds = [{name: measure(job) for name, job in jobs.items()} for _ in range(options.repeats)]
    title = f"{n_queries:,} queries, {n_gallery:,} images, {options.repeats} rounds"
    body = f"{title}; torch {torch.__version__}, {torch.get_num_threads()} threads.\n\n{summary(rounds)}"
    print(body)
    if not options.quick:
        write_section("rejection-speed", body)


def make_images(n_gallery: int, n_queries: int) -> tuple[Images, Images]:
    """Return a gallery in random order, and queries of its landmarks."""
    rng = np.random.default_rng(0)
    n_landmarks = -(-n_gallery // 8)
    groups = rng.integers(0, 78, n_landmarks)
    roots = rng.integers(0, 2, 78)
    centres = rng.standard_normal((n_landmarks, DIMENSION), np.float32)

    def images(landmarks: np.ndarray) -> Images:
        embeddings = np.empty((len(landmarks), DIMENSION), np.float32)
        for start in range(0, len(landmarks), 2**14):
            block = landmarks[start : start + 2**14]
            noise = rng.standard_normal((len(block), DIMENSION), np.float32)
            embeddings[start : start + 2**14] = centres[block] + noise
        labels = np.stack([landmarks, groups[landmarks], roots[groups[landmarks]]], axis=1)
        return Images(torch.from_numpy(embeddings), labels)

    finest = rng.permutation(np.arange(n_gallery) % n_landmarks)
    return images(finest), images(rng.integers(0, n_landmarks, n_queries))


def rejection_jobs(gallery: Images, queries: Images) -> Mapping[str, Callable[[], None]]:
    """Return the jobs by name; detectors are fitted before."""
    judgements = LabelJudgements(queries.labels, gallery.labels)
    task = RetrievalTask("all", queries.embeddings, gallery.embeddings, judgements)

    def ranking(detectors: Sequence[Detector]) -> None:
        blocks = rank(task, n_neighbours=N_NEIGHBOURS if detectors else 0)
        parts = [block.neighbours for block in blocks]
        for detector in detectors:
            assert isinstance(detector, NeighbourDetector)
            k = detector.n_neighbours
            cosines, positions = (np.concatenate(arrays)[:, :k] for arrays in zip(*filter(None, parts), strict=True))
            found = detector.complete_neighbours(cosines, positions, queries.embeddings)
            detector.score_neighbours(*found, queries.embeddings)
            detector.answers(*found)

    fitted = [build_detector(name).fit(gallery.embeddings, gallery.labels) for name in NEIGHBOUR_SCORES]
    jobs: dict[str, Callable[[], None]] = {ALONE: lambda: ranking([]), WITH_SCORES: lambda: ranking(fitted)}
    for name in DENSITY_SCORES:
        detector = build_detector(name).fit(gallery.embeddings, gallery.labels)
        jobs[f"{name}, without ranking"] = lambda detector=detector: detector.score(queries.embeddings)
    return jobs


def measure(job: Callable[[], None]) -> Times:
    """Run a job."""
    wall, processor = time.perf_counter(), time.process_time()
    job()
    return Times(time.perf_counter() - wall, time.process_time() - processor)


def summary(rounds: Sequence[Mapping[str, Times]]) -> str:
    """Return the table: medians of seconds and of the ratios to ranking alone in the same round."""
    rows = []
    for name in rounds[0]:
        times = [times[name] for times in rounds]
        ratios = [
            [getattr(own, kind) / getattr(others[ALONE], kind) for own, others in zip(times, rounds, strict=True)]
            for kind in Times._fields
        ]
        rows.append(
            [
                name,
                f"{statistics.median(own.wall for own in times):.2f}",
                f"{statistics.median(own.processor for own in times):.2f}",
                *(f"{statistics.median(values):.3f}" for values in ratios),
            ]
        )
    header = ["work", "s", "processor time, s", "ratio to ranking alone", "ratio of processor times"]
    return table(header, rows)


if __name__ == "__main__":
    main()

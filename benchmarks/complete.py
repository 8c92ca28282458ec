"""Accuracy of ``hgld complete`` on half of the landmarks, and its speed on made-up vectors.

The half that is measured chose nothing: photographs of the other half are the references, scores are calibrated on
it, and the number of neighbours, the temperature and the form of the calibration were chosen by looking at it alone::

    python benchmarks/complete.py hierarchy.parquet embeddings.parquet train.csv
    python benchmarks/complete.py --speed
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from measuring import peak_memory
from numpy.typing import NDArray

from hgld.cli.hierarchy import format_accepted
from hgld.completion.classifier import References, vote
from hgld.completion.complete import calibration_error, hide_and_propose
from hgld.completion.inputs import CompleteConfig, CompletionFiles, Vectors, read_completion_inputs

#: Seed of the split into the half that settings were chosen on and the other.
_SEED = 12345


def main() -> None:
    """Measure accuracy or speed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="*", help="hierarchy, embeddings, and the landmark of each image")
    parser.add_argument("--split", default="train", help="split of the landmarks")
    parser.add_argument("--speed", action="store_true", help="measure speed and memory instead")
    parser.add_argument("--references", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=4096)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if options.speed:
        measure_speed(options.references, options.queries, options.dim, options.device)
    elif len(options.files) != 3:
        parser.error("name the hierarchy, the embeddings and the landmark of each image, or --speed")
    else:
        measure_accuracy(*options.files, split=options.split)


def measure_accuracy(hierarchy: Path, embeddings: Path, images: Path, *, split: str) -> None:
    """Print the accuracy of proposals for the half that chose nothing."""
    files = CompletionFiles(hierarchy, [embeddings], [(split, images)], hierarchy.with_name("removed.parquet"), None)
    config = CompleteConfig()
    inputs = read_completion_inputs(files, config.reasons)
    labelled = inputs.labelled_with_photographs()
    order = np.random.default_rng(_SEED).permutation(len(labelled))
    hidden = labelled[np.sort(order[len(labelled) // 2 :])]
    quality = hide_and_propose(inputs, config, [hidden])
    print(f"{len(hidden)} landmarks hidden, {len(labelled) - len(hidden)} compared with and calibrated on")
    print("\n".join(format_accepted(quality)))
    by_chance = chance_calibration_error(quality.score)
    print(f"the calibration error of perfect scores would be {by_chance:.3f} on average, as there are so few")


def chance_calibration_error(score: NDArray[np.float64], n_repetitions: int = 2000) -> float:
    """Return the mean calibration error if every score were the probability of being right."""
    random = np.random.default_rng(0)
    errors = [calibration_error(score, random.uniform(size=len(score)) < score) for _ in range(n_repetitions)]
    return float(np.mean(errors))


def measure_speed(n_references: int, n_queries: int, dim: int, device: str) -> None:
    """Print the time of comparing photographs, also of all cores together, and peak memory besides the vectors."""
    random = np.random.default_rng(0)
    vectors, queries = (
        torch.from_numpy(random.standard_normal((n, dim), dtype=np.float32)).half() for n in (n_references, n_queries)
    )
    n_landmarks = n_references // 10
    references = References(
        Vectors(vectors, np.arange(n_references), random.integers(0, n_landmarks, n_references)),
        random.integers(0, 78, n_landmarks),
        [f"train/{number}" for number in range(n_landmarks)],
        are_landmarks=True,
    )
    photographs = Vectors(queries, np.arange(n_queries), random.integers(0, n_landmarks, n_queries))
    start, start_of_cores = time.perf_counter(), time.process_time()
    with peak_memory(device) as peak:
        vote(photographs, references, 78, k=5, temperature=0.1, device=device)
    seconds, of_cores = time.perf_counter() - start, time.process_time() - start_of_cores
    print(
        f"{n_queries:,} photographs against {n_references:,} of {dim} dimensions on {device}: {seconds:.1f} s "
        f"({of_cores:.1f} s of one core), {n_queries * n_references / of_cores / 1e6:,.0f} million comparisons per "
        f"second of one core, {peak():.2f} GB besides the vectors"
    )


if __name__ == "__main__":
    main()

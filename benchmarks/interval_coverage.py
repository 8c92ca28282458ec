"""Measure how often intervals of differences cover the truth, in simulated data sets with random splits.

A method's advantage differs from class to class, and the classes that it is trained on change it for all. The truth
is its mean over the population that the classes of a data set are drawn from::

    python benchmarks/interval_coverage.py
"""

from __future__ import annotations

import numpy as np
from report import table, write_section
from scipy import stats

from hgld.benchmark.statistics import difference_over_splits

TRUTH = 0.02
N_DATA_SETS, N_CLASSES, N_SEEDS = 4000, 200, 3
#: Standard deviations: of a class to evaluate on, of a class to train on, and of a seed.
STD_TESTED, STD_TRAINED, STD_SEED = 0.1, 0.02, 0.001
KINDS = ["corrected resampled t", "t, splits as if independent", "t over the seeds of one split"]


def main() -> None:
    """Simulate, and write the table into ``benchmarks/README.md``."""
    rows = []
    for n_splits in (3, 5, 10, 20):
        rng = np.random.default_rng(n_splits)
        covered = np.mean([covers(rng, n_splits) for _ in range(N_DATA_SETS)], axis=0)
        half_width = stats.t.ppf(0.975, n_splits - 1) * np.sqrt(1 / n_splits + 1)
        rows.append(
            [str(n_splits), *(f"{100 * share:.1f}%" for share in covered), f"{half_width:.1f}"]
        )
    write_section("intervals", table(["splits", *KINDS, "half width of the first, in sd"], rows))


def covers(rng: np.random.Generator, n_splits: int) -> list[bool]:
    """Return whether the interval of each kind covers the truth in one data set."""
    when_tested = rng.normal(TRUTH, STD_TESTED, N_CLASSES)
    when_trained = rng.normal(0, STD_TRAINED, N_CLASSES)
    splits = []
    for _ in range(n_splits):
        test, train = np.split(rng.permutation(N_CLASSES), 2)
        difference = when_tested[test].mean() + when_trained[train].mean()
        splits.append(difference + rng.normal(0, STD_SEED, N_SEEDS))
    means = [float(seeds.mean()) for seeds in splits]
    intervals = [
        difference_over_splits(means, test_train_ratio=1),
        difference_over_splits(means, test_train_ratio=0),
        difference_over_splits(splits[0].tolist(), test_train_ratio=0),
    ]
    return [interval.low <= TRUTH <= interval.high for interval in intervals]


if __name__ == "__main__":
    main()

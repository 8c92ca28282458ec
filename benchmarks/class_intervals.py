"""Measure how often intervals over classes hold, and how often equal models are declared different, by simulation.

All models are equal: what differs are effects of the class, of the class on one model, of the query and of the query
on one model. Classes have sizes from a geometric distribution (8 on average, at most 60), unless the size is named.
Beside the intervals of hgld are those of a bootstrap that draws classes with replacement: percentiles for single
models, and the largest deviation divided by one standard error (max-T) for all pairs. The sizes of Washington and of
the groceries are those of the classes of two evaluations, written by ``hgld evaluate --per-query``::

    python benchmarks/class_intervals.py [--trials 2000] [--per-query NAME=FILE.parquet ...]
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
from report import table

from hgld.arrays import Floats, Integers
from hgld.compute.cluster_intervals import mean_intervals, pair_differences

TRUTH = 0.5
#: Standard deviations of the effects: of a class, of a class on one model, of a query, of a query on one model.
STD_CLASS, STD_CLASS_MODEL, STD_QUERY, STD_QUERY_MODEL = 0.12, 0.06, 0.1, 0.1
N_RESAMPLES = 1000
SETTINGS = [(6, 2), (6, 5), (8, 3), (10, 4), (12, 4), (20, 5), (60, 5), (60, 12), (200, 5)]
HEADER = [
    "classes",
    "models",
    "intervals hold",
    "some pair different",
    "bootstrap: hold",
    "bootstrap: different",
]


def main() -> None:
    """Simulate, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--per-query", action="append", default=[], metavar="NAME=FILE")
    options = parser.parse_args()
    rows = []
    for n_classes, n_models in SETTINGS:
        counts = [
            simulate(draw_sizes(n_classes, trial), n_models, trial)
            for trial in range(options.trials)
        ]
        rows.append([str(n_classes), str(n_models), *shares(counts)])
    for named in options.per_query:
        name, _, path = named.partition("=")
        sizes = pd.read_parquet(path)["class"].value_counts().to_numpy()
        counts = [simulate(sizes, 6, trial) for trial in range(options.trials // 4)]
        rows.append([f"{len(sizes)} ({name})", "6", *shares(counts)])
    print(table(HEADER, rows))


def draw_sizes(n_classes: int, trial: int) -> Integers:
    """Return the number of queries of each class."""
    rng = np.random.default_rng((trial, n_classes))
    return np.minimum(1 + rng.geometric(0.12, n_classes), 60)


def simulate(sizes: Integers, n_models: int, trial: int) -> list[float]:
    """Return, for hgld's intervals and for the bootstrap, the share of means held and whether some pair differs."""
    rng = np.random.default_rng((trial, len(sizes), n_models))
    classes = np.repeat(np.arange(len(sizes)), sizes)
    of_class = rng.normal(0, STD_CLASS, (len(sizes), 1)) + rng.normal(
        0, STD_CLASS_MODEL, (len(sizes), n_models)
    )
    of_query = rng.normal(0, STD_QUERY, (len(classes), 1)) + rng.normal(
        0, STD_QUERY_MODEL, (len(classes), n_models)
    )
    values = TRUTH + of_class[classes] + of_query
    low, high = mean_intervals(
        values, classes, confidence=0.95, n_resamples=N_RESAMPLES, seed=trial
    )
    pairs = pair_differences(values, classes, confidence=0.95, n_resamples=N_RESAMPLES, seed=trial)
    held = float(((low <= TRUTH) & (high >= TRUTH)).mean())
    return [held, float((pairs.low > 0).any()), *bootstrap(values, classes, rng)]


def bootstrap(values: Floats, classes: Integers, rng: np.random.Generator) -> list[float]:
    """Return the share of means within percentiles of drawn classes, and whether some pair differs by max-T."""
    draws = drawn_means(values, classes, rng)
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    first, second = np.triu_indices(values.shape[1], 1)
    means = values.mean(axis=0)
    differences = means[first] - means[second]
    drawn = draws[:, first] - draws[:, second]
    errors = drawn.std(axis=0, ddof=1)
    largest = np.abs((drawn - differences) / errors).max(axis=1)
    is_different = np.abs(differences) > np.quantile(largest, 0.95) * errors
    held = float(((low <= TRUTH) & (high >= TRUTH)).mean())
    return [held, float(is_different.any())]


def drawn_means(values: Floats, classes: Integers, rng: np.random.Generator) -> Floats:
    """Draw classes with replacement, and return the means over all queries of each draw, shape (n_resamples, M)."""
    n_classes = int(classes.max()) + 1
    sums = np.zeros((n_classes, values.shape[1]))
    np.add.at(sums, classes, values)
    drawn = rng.integers(n_classes, size=(N_RESAMPLES, n_classes))
    times = np.stack([np.bincount(classes, minlength=n_classes) for classes in drawn])
    n_queries = times @ np.bincount(classes)
    drawn: Floats = (times @ sums) / n_queries[:, None]
    return drawn


def shares(counts: list[list[float]]) -> list[str]:
    """Return the mean of each column in percent."""
    return [f"{100 * share:.1f}%" for share in np.mean(counts, axis=0)]


if __name__ == "__main__":
    main()

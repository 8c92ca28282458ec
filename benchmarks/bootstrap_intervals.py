"""Measure how often bootstrap intervals of agreement and of rejection metrics hold, by simulation.

Agreement: labels are drawn from a population of groups with unequal frequencies; each annotator decides rightly with
a probability that depends on the label, and otherwise for a random group. The truth is the coefficient of a million
such labels. Numbers of landmarks are drawn from a heavy-tailed distribution, as most labels have one landmark and a
few have a hundred.

Rejection: scores are normal, with effects of the landmark and of the image; landmarks have 8 images on average. The
truth follows from the normal distribution::

    python benchmarks/bootstrap_intervals.py [--trials 1000]
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
from report import table
from scipy.stats import norm

from hgld.arrays import Floats, Integers
from hgld.benchmark.rejection.values import LandmarkDraws, ScoredQueries
from hgld.compute.resampling import percentile_interval
from hgld.review.agreement import cohen_kappa, krippendorff_alpha, raw_agreement

N_GROUPS = 20
FREQUENCIES = 1 / np.arange(1, N_GROUPS + 1) / (1 / np.arange(1, N_GROUPS + 1)).sum()
N_LABELS = (30, 60, 230, 1000)
AGREEMENT_HEADER = [
    "labels",
    "raw agreement",
    "Cohen's kappa",
    "Krippendorff's alpha",
    "raw, by landmark",
    "kappa, by landmark",
]
#: Numbers of landmarks of known and of unknown queries.
N_LANDMARKS = ((20, 20), (60, 30), (200, 100))
#: Distance of the mean scores of known and unknown queries; standard deviations of the effects of landmark and image.
DISTANCE, STD_LANDMARK, STD_IMAGE = 1.5, 0.6, 0.8


def main() -> None:
    """Simulate, and print two tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    n_trials = parser.parse_args().trials
    truth = true_coefficients()
    rows = []
    for n_labels in N_LABELS:
        held = [agreement_intervals_hold(n_labels, trial, truth) for trial in range(n_trials)]
        rows.append([str(n_labels), *shares(held)])
    print(table(AGREEMENT_HEADER, rows), end="\n\n")
    rows = []
    for n_known, n_unknown in N_LANDMARKS:
        held = [rejection_intervals_hold(n_known, n_unknown, trial) for trial in range(n_trials)]
        rows.append([str(n_known), str(n_unknown), *shares(held)])
    print(table(["known landmarks", "unknown landmarks", "AUROC", "FPR95 (known)"], rows))


def shares(held: list[list[bool]]) -> list[str]:
    """Return the share of trials in which each interval holds, in percent."""
    return [f"{100 * share:.1f} %" for share in np.mean(held, axis=0)]


def draw_labels(n_labels: int, rng: np.random.Generator) -> tuple[Integers, Floats]:
    """Return the decisions of two annotators, int, shape (n_labels, 2), and the landmarks of each label."""
    groups = rng.choice(N_GROUPS, n_labels, p=FREQUENCIES)
    is_easy = rng.random(n_labels) < 0.7
    p_right = np.where(is_easy, 0.98, 0.7)
    is_right = rng.random((n_labels, 2)) < p_right[:, None]
    guesses = rng.choice(N_GROUPS, (n_labels, 2), p=FREQUENCIES)
    landmarks = np.minimum(rng.zipf(1.8, n_labels), 200).astype(float)
    return np.where(is_right, groups[:, None], guesses), landmarks


def true_coefficients() -> list[float]:
    """Return the coefficients of the population, which weights by landmarks do not change."""
    codes, _ = draw_labels(1_000_000, np.random.default_rng(0))
    once = np.ones(len(codes))
    raw, kappa = (
        float(measure(codes[:, 0], codes[:, 1], once)) for measure in (raw_agreement, cohen_kappa)
    )
    return [raw, kappa, float(krippendorff_alpha(codes, once)), raw, kappa]


def agreement_intervals_hold(n_labels: int, trial: int, truth: list[float]) -> list[bool]:
    """Return whether the interval of each coefficient holds the truth in one data set.

    The intervals by label are those of ``hgld agreement``, which has none by landmark.
    """
    rng = np.random.default_rng((trial, n_labels))
    codes, landmarks = draw_labels(n_labels, rng)
    by_label = rng.multinomial(n_labels, np.full(n_labels, 1 / n_labels), size=1000).astype(float)
    by_landmark = by_label * landmarks
    first, second = codes.T
    drawn = [raw_agreement(first, second, by_label), cohen_kappa(first, second, by_label)]
    drawn += [krippendorff_alpha(codes, by_label)]
    drawn += [raw_agreement(first, second, by_landmark), cohen_kappa(first, second, by_landmark)]
    intervals = [percentile_interval(values, 0.95) for values in drawn]
    return [low <= true <= high for (low, high), true in zip(intervals, truth, strict=True)]


def rejection_intervals_hold(n_known: int, n_unknown: int, trial: int) -> list[bool]:
    """Return whether the intervals of AUROC and FPR95 hold the truth in one data set."""
    rng = np.random.default_rng((trial, n_known))
    known, unknown = draw_scores(n_known, 0, rng), draw_scores(n_unknown, DISTANCE, rng)
    draws = LandmarkDraws(pd.concat([known, unknown.assign(source="unknown")]), 1000, trial)
    counts = draws.counts(known), draws.counts(unknown.assign(source="unknown"))
    queries = ScoredQueries(
        known["score"].to_numpy(), np.full(len(known), True), unknown["score"].to_numpy()
    )
    drawn = queries.resampled_metrics(*counts)
    std = np.hypot(STD_LANDMARK, STD_IMAGE)
    truth = {
        "auroc": norm.cdf(DISTANCE / (std * np.sqrt(2))),
        "fpr95_known": norm.cdf(norm.ppf(0.95) - DISTANCE / std),
    }
    intervals = {name: percentile_interval(drawn[name], 0.95) for name in truth}
    return [low <= truth[name] <= high for name, (low, high) in intervals.items()]


def draw_scores(n_landmarks: int, mean: float, rng: np.random.Generator) -> pd.DataFrame:
    """Return a row of score, source and class for each image of some landmarks."""
    sizes = np.minimum(1 + rng.geometric(0.12, n_landmarks), 60)
    classes = np.repeat(np.arange(n_landmarks), sizes)
    effects = rng.normal(0, STD_LANDMARK, n_landmarks)[classes]
    scores = mean + effects + rng.normal(0, STD_IMAGE, len(classes))
    return pd.DataFrame({"score": scores, "source": "known", "class": classes.astype(str)})


if __name__ == "__main__":
    main()

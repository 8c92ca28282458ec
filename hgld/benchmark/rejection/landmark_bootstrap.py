"""Bootstrap over landmarks: metrics of rejection where every image counts as often as its landmark is drawn.

Photographs of one landmark resemble one another, so that drawing single photographs would give intervals that are too
narrow. A draw gives each landmark, or other class, of a source of images a number; it is the same for all splits,
scores and embeddings, so that differences are paired and images that several splits share are drawn together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from hgld.rejection.detection_metrics import detection_metrics, metrics_of_counts

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

#: Metrics of telling known from unknown queries that have intervals.
DETECTION = ("auroc", "fpr95_known", "fpr95_unknown", "aupr_known", "aupr_unknown")
#: These and global average precision.
METRICS = ("gap", *DETECTION)


@dataclass(frozen=True, eq=False)
class ScoredQueries:
    """Known and unknown queries with their scores.

    Args:
        known: Scores of known queries, float64, shape (n,).
        right: Whether their answers are right, bool, shape (n,).
        unknown: Scores of unknown queries, float64, shape (m,).
    """

    known: Floats
    right: npt.NDArray[np.bool_]
    unknown: Floats

    def metrics(self) -> dict[str, float]:
        """Return the values of :data:`METRICS`."""
        detection = detection_metrics(self.known, self.unknown)
        weights = (np.ones((1, len(self.known)), np.int64), np.ones((1, len(self.unknown)), np.int64))
        return {"gap": float(_gap(self, *weights)[0])} | {name: detection[name] for name in DETECTION}

    def resampled_metrics(self, known_counts: Counts, unknown_counts: Counts) -> dict[str, Floats]:
        """Return the values of :data:`METRICS` in each resample, float64, shape (n_resamples,); NaN without images.

        Args:
            known_counts: How often each known query counts, int64, shape (n_resamples, n).
            unknown_counts: How often each unknown query counts, int64, shape (n_resamples, m).
        """
        values, codes = np.unique(np.concatenate([self.known, self.unknown]), return_inverse=True)
        known = _counts_by_value(known_counts, codes[: len(self.known)], len(values))
        unknown = _counts_by_value(unknown_counts, codes[len(self.known) :], len(values))
        detection = metrics_of_counts(values, known, unknown)
        gap = _gap(self, known_counts, unknown_counts)
        return {"gap": gap} | {name: detection[name] for name in DETECTION}


class LandmarkDraws:
    """Draws with replacement of the classes of each source of images.

    Args:
        classes: Columns ``source`` and ``class`` of all images that occur; repeated rows count once.
        n_resamples: Number of resamples.
        seed: Seed of the draws.
    """

    def __init__(self, classes: pd.DataFrame, n_resamples: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self._codes: dict[tuple[str, str], int] = {}
        draws = []
        distinct = classes[["source", "class"]].drop_duplicates().sort_values(["source", "class"])
        for source, names in distinct.groupby("source")["class"]:
            n_classes = len(names)
            for name in names:
                self._codes[str(source), name] = len(self._codes)
            draws.append(rng.multinomial(n_classes, np.full(n_classes, 1 / n_classes), size=n_resamples))
        self._draws = np.concatenate(draws, axis=1)

    def counts(self, queries: pd.DataFrame) -> Counts:
        """Return how often each query counts, int64, shape (n_resamples, n)."""
        keys = zip(queries["source"], queries["class"], strict=True)
        counts: Counts = self._draws[:, [self._codes[key] for key in keys]]
        return counts


def mean_over_splits(splits: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
    """Return the mean of each metric over splits, resample by resample."""
    return {name: np.mean([split[name] for split in splits], axis=0) for name in splits[0]}


def _counts_by_value(counts: Counts, codes: npt.NDArray[np.intp], n_values: int) -> Counts:
    by_value = np.zeros((len(counts), n_values), np.int64)
    order = np.argsort(codes, kind="stable")
    distinct, first = np.unique(codes[order], return_index=True)
    by_value[:, distinct] = np.add.reduceat(counts[:, order], first, axis=1)
    return by_value


def _gap(queries: ScoredQueries, known_counts: Counts, unknown_counts: Counts) -> Floats:
    """Return GAP where every query is answered; equal scores in a random order, copies at their mean rank."""
    scores = np.concatenate([queries.known, queries.unknown])
    order = np.lexsort((np.random.default_rng(0).permutation(len(scores)), scores))
    counts = np.concatenate([known_counts, unknown_counts], axis=1)[:, order]
    right = np.concatenate([queries.right, np.zeros(len(queries.unknown), bool)])[order]
    hits = counts * right
    middle = (counts + 1) / 2
    precision = (hits.cumsum(1) - hits + middle) / (counts.cumsum(1) - counts + middle)
    with np.errstate(invalid="ignore"):
        gap: Floats = (hits * precision).sum(1) / known_counts.sum(1)
    return gap

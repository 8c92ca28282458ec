"""Find labels that are probably wrong: of single images, and of whole classes.

The nearest images of an image vote on its finest label, as in :mod:`hgld.hierarchy.label_matrix`. At coarser levels,
all images of a class have one label, right or wrong, and would confirm each other in it. There the nearest images of
other classes vote, and the votes on the images of a class are averaged: what is found is a class below the wrong
group.

Labels are ranked by the normalised margin of confident learning (C. G. Northcutt, L. Jiang, I. L. Chuang, *Confident
Learning: Estimating Uncertainty in Dataset Labels*, JAIR 2021): the share of the votes for another label, minus that
for the given one. A high rank is no verdict. Photographs that do not show what they are named after look wrong, and
so do classes that look like others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from hgld.audit.duplicates import centred, mean_direction
from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.compute.resampling import Interval, percentile_interval
from hgld.datasets.manifest import Manifest
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy.label_matrix import TEMPERATURE, softmax_weights
from hgld.ragged import RaggedIndices

#: Smallest share of random labels below a margin that the estimated rate of errors may rest on.
MIN_RANDOM = 0.3

#: Number of random labels that are tried.
_N_RANDOM = 20_000


@dataclass(frozen=True)
class LabelErrorsConfig:
    """Settings of the search for wrong labels.

    Args:
        neighbours: Number of nearest images that vote.
        temperature: Difference of cosines that changes the weight of a vote by the factor e.

    Raises:
        ConfigurationError: A value is out of range.
    """

    neighbours: int = 10
    temperature: float = TEMPERATURE

    def __post_init__(self) -> None:
        if self.neighbours < 1 or self.temperature <= 0:
            raise ConfigurationError(
                f"`neighbours` is {self.neighbours} and `temperature` {self.temperature}; expected at least 1, and a "
                "number above 0"
            )


@dataclass(frozen=True, eq=False)
class LevelErrors:
    """Labels of a level, the most contradicted first; those that no other image could confirm are left out.

    Args:
        level: Column of the level, 0 for the finest.
        rows: int64, shape (n,), rows of images; at coarser levels one image of each class, the one with the smallest
            share of the votes for the label.
        labels: int64, shape (n,), their labels.
        others: int64, shape (n,), the other label with the largest share of the votes; -1 if there is none.
        own_shares: float64, shape (n,), share of the votes for the label; at coarser levels the mean over the class.
        other_shares: float64, shape (n,), share of the votes for the other label, likewise.
        neighbours: int64, shape (n, k), rows of the images that voted, nearest first; -1 where there are fewer.
        cosines: float32, shape (n, k), their cosines.
        random_margins: float64, shape (m,), margins that some of the images or classes would have with the label of
            another one drawn at random, increasing.
    """

    level: int
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    others: NDArray[np.int64]
    own_shares: NDArray[np.float64]
    other_shares: NDArray[np.float64]
    neighbours: NDArray[np.int64]
    cosines: NDArray[np.float32]
    random_margins: NDArray[np.float64]

    @property
    def margins(self) -> NDArray[np.float64]:
        """Shares of the votes for the labels, minus those for the other ones: float64, shape (n,), increasing."""
        return self.own_shares - self.other_shares

    @property
    def n_contradicted(self) -> int:
        """Number of labels with a smaller share of the votes than another label."""
        return int((self.margins < 0).sum())

    def error_rate(self, *, n_resamples: int = 200, seed: int = 0) -> tuple[float, Interval]:
        """Estimate the share of wrong labels, with its 95 % bootstrap interval; NaN if all labels are the same.

        Margins are a mixture of those of right labels, which nobody knows, and of wrong ones, taken to be those of
        random labels. So the share of wrong labels is at most the share of all labels up to any margin, divided by
        that of random ones; the estimate is the smallest ratio (G. Blanchard, G. Lee, C. Scott, *Semi-Supervised
        Novelty Detection*, JMLR 2010) where the divisor is at least :data:`MIN_RANDOM`. It is too high if right
        labels look as wrong as random ones, and too low if wrong labels are more plausible than random ones.
        """
        if not len(self.random_margins):
            return float("nan"), (float("nan"), float("nan"))
        random = np.searchsorted(self.random_margins, self.margins, side="right") / len(self.random_margins)
        # Equal margins are next to each other: the last of them has the count of all.
        usable = (random >= MIN_RANDOM) & np.append(np.diff(self.margins) > 0, True)
        rng, n = np.random.default_rng(seed), len(self.rows)

        def rate(weights: NDArray[np.int64]) -> float:
            ratios = weights.cumsum()[usable] / n / random[usable]
            return float(ratios.min(initial=1.0))

        rates = [rate(np.bincount(rng.integers(n, size=n), minlength=n)) for _ in range(n_resamples)]
        return rate(np.ones(n, np.int64)), percentile_interval(np.array(rates), 0.95)


def find_label_errors(
    manifest: Manifest, embeddings: torch.Tensor, config: LabelErrorsConfig | None = None
) -> list[LevelErrors]:
    """Rank the labels of each level by how much the nearest images contradict them.

    Args:
        manifest: N images with one label each at every level.
        embeddings: float, shape (N, d), of any model that was not trained on these labels; their mean is subtracted.
        config: Settings.

    Returns:
        Images by their finest label, then classes of the finest level by their label at each coarser one.

    Raises:
        InputError: Images have several labels, or there are no two images of a class.
    """
    config, labels = config or LabelErrorsConfig(), manifest.labels
    vectors = centred(embeddings, mean_direction(embeddings))
    rows, classes = np.arange(len(labels)), labels[:, 0]
    itself = RaggedIndices.from_pairs(rows, rows, len(rows))
    members = [np.flatnonzero(classes == number) for number in range(manifest.n_classes[0])]
    of_class = RaggedIndices.from_lists([members[number] for number in classes])
    found = []
    for level in range(labels.shape[1]):
        excluded, judged = (of_class, members) if level else (itself, [*rows[:, None]])
        # Nothing could confirm the label of an image, or of a class, that is the only one with it.
        n_with_label = np.bincount([labels[group[0], level] for group in judged])
        judged = [group for group in judged if n_with_label[labels[group[0], level]] > 1]
        if not judged and not level:
            raise InputError("no class has two images, of which one could confirm the label of the other")
        cosines, neighbours = nearest_neighbours(vectors, vectors, config.neighbours, excluded=excluded)
        votes = _Votes.count(cosines, neighbours, labels[:, level], config.temperature)
        found.append(_ranked(level, judged, votes, labels[:, level], neighbours, cosines))
    return found


@dataclass(frozen=True, eq=False)
class _Votes:
    """Votes on N images: shares for their own label, and for the label of each neighbour, (N, k)."""

    own: NDArray[np.float64]
    shares: NDArray[np.float64]
    labels: NDArray[np.int64]

    @classmethod
    def count(
        cls,
        cosines: NDArray[np.float32],
        neighbours: NDArray[np.int64],
        labels: NDArray[np.int64],
        temperature: float,
    ) -> _Votes:
        voted = np.where(neighbours < 0, -1, labels[neighbours])
        weights = softmax_weights(cosines, neighbours >= 0, temperature)
        own = (weights * (voted == labels[:, None])).sum(axis=1)
        shares = np.stack([(weights * (voted == column[:, None])).sum(axis=1) for column in voted.T], axis=1)
        return cls(own, shares, voted)

    def of(self, rows: NDArray[np.int64], label: int) -> tuple[float, int, float]:
        """Return the mean share of a label over images, and the other label with the largest mean share, with it."""
        totals: dict[int, float] = {}
        for row_labels, row_shares in zip(self.labels[rows].tolist(), self.shares[rows].tolist(), strict=True):
            for voted, share in dict(zip(row_labels, row_shares, strict=True)).items():
                totals[voted] = totals.get(voted, 0.0) + share
        own = totals.pop(label, 0.0) / len(rows)
        totals.pop(-1, None)
        other = max(totals, key=lambda each: (totals[each], -each), default=-1)
        return own, other, totals.get(other, 0.0) / len(rows)


def _ranked(
    level: int,
    judged: list[NDArray[np.int64]],
    votes: _Votes,
    labels: NDArray[np.int64],
    neighbours: NDArray[np.int64],
    cosines: NDArray[Any],
) -> LevelErrors:
    """Rank groups of images that have one label each: single images, or all of a class."""
    given = [int(labels[rows[0]]) for rows in judged]
    counted = [votes.of(rows, label) for rows, label in zip(judged, given, strict=True)]
    own = np.array([each[0] for each in counted], np.float64)
    others = np.array([each[1] for each in counted], np.int64)
    shares = np.array([each[2] for each in counted], np.float64)
    shown = np.array([rows[votes.own[rows].argmin()] for rows in judged], np.int64)
    order = np.argsort(own - shares, kind="stable")
    shown = shown[order]
    drawn = np.random.default_rng(0).integers(len(judged), size=(_N_RANDOM, 2)) if judged else np.empty((0, 2), int)
    random = [votes.of(judged[of], given[by]) for of, by in drawn.tolist() if given[of] != given[by]]
    return LevelErrors(
        level,
        shown,
        labels[shown],
        others[order],
        own[order],
        shares[order],
        neighbours[shown],
        cosines[shown],
        np.sort([own - share for own, _, share in random]),
    )


def label_errors_table(manifest: Manifest, found: list[LevelErrors]) -> pa.Table:
    """Return the contradicted labels of all levels: level, image, class, label, other label, shares of the votes."""
    tables = []
    for errors in found:
        n, names = errors.n_contradicted, np.array(manifest.class_names[errors.level])
        finest = np.array(manifest.class_names[0])[manifest.labels[errors.rows[:n], 0]]
        tables.append(
            pa.table(
                {
                    "level": pa.repeat(manifest.level_names[errors.level], n),
                    "id": manifest.ids[errors.rows[:n]].to_arrow(),
                    "class": finest,
                    "label": names[errors.labels[:n]],
                    "other_label": names[errors.others[:n]],
                    "share": errors.own_shares[:n],
                    "other_share": errors.other_shares[:n],
                }
            )
        )
    return pa.concat_tables(tables)

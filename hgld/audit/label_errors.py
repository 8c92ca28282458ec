"""Find labels that are probably wrong: of single images, and of whole classes.

The nearest images of an image vote on its finest label, as in :mod:`hgld.hierarchy.label_votes`. At coarser levels,
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
from hgld.datasets.manifest import Manifest
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy.label_votes import TEMPERATURE, softmax_weights
from hgld.ragged import RaggedIndices


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
    """

    level: int
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    others: NDArray[np.int64]
    own_shares: NDArray[np.float64]
    other_shares: NDArray[np.float64]
    neighbours: NDArray[np.int64]
    cosines: NDArray[np.float32]

    @property
    def margins(self) -> NDArray[np.float64]:
        """Shares of the votes for the labels, minus those for the other ones: float64, shape (n,), increasing."""
        return self.own_shares - self.other_shares

    @property
    def n_contradicted(self) -> int:
        """Number of labels with a smaller share of the votes than another label."""
        return int((self.margins < 0).sum())


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
        voted, shares = self.labels[rows], self.shares[rows]
        totals: dict[int, float] = {}
        for row_labels, row_shares in zip(voted.tolist(), shares.tolist(), strict=True):
            for other, share in dict(zip(row_labels, row_shares, strict=True)).items():
                if other not in (label, -1):
                    totals[other] = totals.get(other, 0.0) + share
        other = max(totals, key=lambda each: (totals[each], -each), default=-1)
        return float(self.own[rows].mean()), other, totals.get(other, 0.0) / len(rows)


def _ranked(
    level: int,
    judged: list[NDArray[np.int64]],
    votes: _Votes,
    labels: NDArray[np.int64],
    neighbours: NDArray[np.int64],
    cosines: NDArray[Any],
) -> LevelErrors:
    """Rank groups of images that have one label each: single images, or all of a class."""
    counted = [votes.of(rows, int(labels[rows[0]])) for rows in judged]
    own = np.array([each[0] for each in counted], np.float64)
    others = np.array([each[1] for each in counted], np.int64)
    shares = np.array([each[2] for each in counted], np.float64)
    shown = np.array([rows[votes.own[rows].argmin()] for rows in judged], np.int64)
    order = np.argsort(own - shares, kind="stable")
    shown = shown[order]
    return LevelErrors(
        level, shown, labels[shown], others[order], own[order], shares[order], neighbours[shown], cosines[shown]
    )


def label_errors_table(manifest: Manifest, found: list[LevelErrors]) -> pa.Table:
    """Return the contradicted labels of all levels: level, image, class, label, other label, shares of the votes.

    Args:
        manifest: The images.
        found: Result of :func:`find_label_errors`.
    """
    tables = []
    for errors in found:
        n, names = errors.n_contradicted, np.array(manifest.class_names[errors.level])
        finest = np.array(manifest.class_names[0])[manifest.labels[errors.rows[:n], 0]]
        tables.append(
            pa.table(
                {
                    "level": pa.repeat(manifest.level_names[errors.level], n),
                    "id": manifest.ids[errors.rows[:n]].astype(str),
                    "class": finest,
                    "label": names[errors.labels[:n]],
                    "other_label": names[errors.others[:n]],
                    "share": errors.own_shares[:n],
                    "other_share": errors.other_shares[:n],
                }
            )
        )
    return pa.concat_tables(tables)

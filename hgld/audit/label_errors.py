"""Find labels that are probably wrong, of single images and of whole classes.

The nearest images of an image vote on its finest label, as in :func:`hgld.hierarchy.vote`. At coarser
levels, all images of a class have the same label, right or wrong. Therefore only the nearest images of
other classes vote there, and the votes on the images of a class are averaged, which finds classes below
the wrong group.

Labels are ranked by the normalised margin of confident learning (C. G. Northcutt, L. Jiang,
I. L. Chuang, *Confident Learning: Estimating Uncertainty in Dataset Labels*, JAIR 2021): the share of
the votes for another label, minus the share for the given label. A high rank is no verdict.
Photographs that do not show the thing after which they are named look wrong, and so do classes that
look like others.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from hgld.arrays import Floats, Floats32, Integers
from hgld.audit.nearest_images import centred, mean_direction, nearest_images, only_itself
from hgld.audit.settings import LabelErrorsConfig
from hgld.datasets.manifest import Manifest
from hgld.errors import InputError
from hgld.hierarchy.neighbour_vote import softmax_weights
from hgld.ragged import RaggedIndices

#: Smallest share of random labels below a margin that an estimate of the rate of errors may use.
MIN_RANDOM = 0.3

#: Number of random labels that are tried.
_N_RANDOM = 20_000


@dataclass(frozen=True, eq=False)
class LevelErrors:
    """Labels of a level that other images could confirm, the most contradicted first.

    Args:
        level: Column of the level, 0 for the finest.
        rows: int64, shape (n,), rows of images; at coarser levels one image of each class, the image
            with the smallest share of the votes for the label.
        labels: int64, shape (n,), labels of the images.
        others: int64, shape (n,), the other label with the largest share of the votes; -1 if all votes
            are for the label.
        own_shares: float64, shape (n,), share of the votes for the label; at coarser levels the mean
            over the class.
        other_shares: float64, shape (n,), share of the votes for the other label, or the mean over the class.
        neighbours: int64, shape (n, k), rows of the images that voted, nearest first; -1 if there are
            fewer images.
        cosines: float32, shape (n, k), cosines of the images that voted.
        random_margins: float64, shape (m,), margins that images or classes would have with the label of
            another image or class drawn at random, increasing.
    """

    level: int
    rows: Integers
    labels: Integers
    others: Integers
    own_shares: Floats
    other_shares: Floats
    neighbours: Integers
    cosines: Floats32
    random_margins: Floats

    @property
    def margins(self) -> Floats:
        """Shares of the votes for the labels, minus the shares for the other labels, increasing."""
        return self.own_shares - self.other_shares

    @property
    def n_contradicted(self) -> int:
        """Number of labels with a smaller share of the votes than another label."""
        return int((self.margins < 0).sum())

    def highest_error_rate(self, *, confidence: float = 0.95, n_resamples: int = 200) -> float:
        """Return an upper bound of the share of wrong labels; NaN at coarser levels and for one label.

        Margins are a mixture of the unknown margins of right labels and of margins of wrong labels,
        which are assumed to be as low as the margins of random labels. The share of wrong labels is
        therefore at most the share of all labels up to any margin, divided by the share of random
        labels up to it (G. Blanchard, G. Lee, C. Scott, *Semi-Supervised Novelty Detection*, JMLR
        2010). The bound is the smallest of these ratios with a divisor of at least :data:`MIN_RANDOM`.
        It varies with the images: a quantile over resamples of whole classes is returned. At coarser
        levels right labels often look as wrong as random labels, so the bound is uninformative.

        Args:
            confidence: Probability with which the share of wrong labels is at most the bound, between
                0 and 1, if wrong labels look as wrong as random labels.
            n_resamples: Number of times that the finest classes are drawn with replacement.
        """
        if self.level > 0 or not len(self.random_margins):
            return nan
        n_random = np.searchsorted(self.random_margins, self.margins, side="right")
        random_shares = n_random / len(self.random_margins)
        # Equal margins are adjacent: only the last of them has the count of all.
        is_last = np.append(np.diff(self.margins) > 0, True)
        usable = (random_shares >= MIN_RANDOM) & is_last
        classes, numbers = np.unique(self.labels, return_inverse=True)
        n_classes = len(classes)
        rng = np.random.default_rng(0)
        rates = []
        for _ in range(n_resamples):
            drawn = rng.integers(n_classes, size=n_classes)
            weights = np.bincount(drawn, minlength=n_classes)[numbers]
            shares = weights.cumsum()[usable] / weights.sum()
            ratios = shares / random_shares[usable]
            rates.append(float(ratios.min(initial=1.0)))
        return float(np.quantile(rates, confidence))


def find_label_errors(
    manifest: Manifest, embeddings: torch.Tensor, config: LabelErrorsConfig | None = None
) -> list[LevelErrors]:
    """Rank the labels of each level by how strongly the nearest images contradict them.

    Args:
        manifest: N images with one label each at every level.
        embeddings: float, shape (N, d), of any model that was not trained on these labels; their mean
            is subtracted.
        config: Settings.

    Returns:
        Images by their finest label, then classes of the finest level by their label at each coarser level.

    Raises:
        InputError: Images have several labels, or there are no two images of a class.
    """
    config = config or LabelErrorsConfig()
    labels = manifest.labels
    rows_by_class = _rows_by_class(manifest)
    if max(len(rows) for rows in rows_by_class) < 2:
        raise InputError(
            "no class has two images, of which one could confirm the label of the other"
        )
    vectors = centred(embeddings, mean_direction(embeddings))

    def images_of_class(images: Integers) -> RaggedIndices:
        return RaggedIndices.from_lists([rows_by_class[number] for number in labels[images, 0]])

    errors_by_level = []
    for level in range(labels.shape[1]):
        if level == 0:
            groups = list(np.arange(len(labels))[:, None])
            cosines, neighbours = nearest_images(vectors, config.neighbours, only_itself)
        else:
            groups = rows_by_class
            if level == 1:  # the same images vote at all levels above the finest
                cosines, neighbours = nearest_images(vectors, config.neighbours, images_of_class)
        # A label of a single image, or of a single class, cannot be confirmed.
        group_labels = np.array([labels[rows[0], level] for rows in groups])
        is_confirmable = np.bincount(group_labels)[group_labels] > 1
        judged = [groups[number] for number in np.flatnonzero(is_confirmable)]
        ranked = _rank_groups(
            level, judged, labels[:, level], neighbours, cosines, config.temperature
        )
        errors_by_level.append(ranked)
    return errors_by_level


def _rows_by_class(manifest: Manifest) -> list[Integers]:
    """Return the rows of the images of each class of the finest level, ascending."""
    classes = manifest.labels[:, 0]
    ends = np.bincount(classes, minlength=manifest.n_classes[0]).cumsum()
    return np.split(np.argsort(classes, kind="stable"), ends[:-1])


def _rank_groups(
    level: int,
    groups: list[Integers],
    labels: Integers,
    neighbours: Integers,
    cosines: Floats32,
    temperature: float,
) -> LevelErrors:
    """Rank groups of images that have one label each: single images, or all images of a class.

    Args:
        level: Column of the level.
        groups: Rows of the images of each group.
        labels: int64, shape (N,), label of each image at the level.
        neighbours: int64, shape (N, k), rows of the images that vote on each image; -1 for no image.
        cosines: float32, shape (N, k).
        temperature: Difference of cosines that changes the weight of a vote by the factor e.
    """
    voted = np.where(neighbours < 0, -1, labels[neighbours])
    weights = softmax_weights(cosines, neighbours >= 0, temperature)
    own_shares = (weights * (voted == labels[:, None])).sum(axis=1)
    # Share of the votes for the label of each voting image.
    shares_of_voted = np.empty(voted.shape)
    for column in range(voted.shape[1]):
        is_same = voted == voted[:, column, None]
        shares_of_voted[:, column] = (weights * is_same).sum(axis=1)

    def mean_shares(group_numbers: list[int], group_labels: list[int]) -> NDArray[np.void]:
        shares = np.empty(len(group_numbers), _SHARES)
        for place, number in enumerate(group_numbers):
            rows = groups[number]
            shares[place] = _mean_shares(voted[rows], shares_of_voted[rows], group_labels[place])
        return shares

    given_labels = [int(labels[rows[0]]) for rows in groups]
    shares = mean_shares(list(range(len(groups))), given_labels)
    order = np.argsort(shares["own"] - shares["other"], kind="stable")
    shares = shares[order]
    shown = np.array([rows[own_shares[rows].argmin()] for rows in groups], np.int64)[order]

    random_groups = []
    random_labels = []
    if groups:
        pairs = np.random.default_rng(0).integers(len(groups), size=(_N_RANDOM, 2))
        for group, other in pairs.tolist():
            if given_labels[group] != given_labels[other]:
                random_groups.append(group)
                random_labels.append(given_labels[other])
    random_shares = mean_shares(random_groups, random_labels)
    return LevelErrors(
        level=level,
        rows=shown,
        labels=labels[shown],
        others=shares["other_label"],
        own_shares=shares["own"],
        other_shares=shares["other"],
        neighbours=neighbours[shown],
        cosines=cosines[shown],
        random_margins=np.sort(random_shares["own"] - random_shares["other"]),
    )


#: Values of :func:`_mean_shares` by name.
_SHARES = [("own", np.float64), ("other_label", np.int64), ("other", np.float64)]


def _mean_shares(voted: Integers, shares: Floats, label: int) -> tuple[float, int, float]:
    """Return the mean share of a label, the other label with the largest mean share, and this share.

    Args:
        voted: int64, shape (n, k), labels of the images that vote on n images.
        shares: float64, shape (n, k), share of the votes for each of these labels.
        label: The label.
    """
    totals: dict[int, float] = {}
    for row_labels, row_shares in zip(voted.tolist(), shares.tolist(), strict=True):
        share_by_label = dict(zip(row_labels, row_shares, strict=True))
        for voted_label, share in share_by_label.items():
            totals[voted_label] = totals.get(voted_label, 0.0) + share
    own_share = totals.pop(label, 0.0) / len(voted)
    if not totals:
        return own_share, -1, 0.0
    other = max(totals, key=lambda voted_label: (totals[voted_label], -voted_label))
    return own_share, other, totals[other] / len(voted)


def label_errors_table(manifest: Manifest, errors_by_level: list[LevelErrors]) -> pa.Table:
    """Return the contradicted labels of all levels as a table.

    Its columns are level, id of the image, class, label, other label, and the shares of the votes.
    """
    parts = []
    for errors in errors_by_level:
        n = errors.n_contradicted
        rows = errors.rows[:n]
        names = np.array(manifest.class_names[errors.level])
        classes = np.array(manifest.class_names[0])[manifest.labels[rows, 0]]
        part = {
            "level": pa.repeat(manifest.level_names[errors.level], n),
            "id": manifest.ids[rows].to_arrow(),
            "class": classes,
            "label": names[errors.labels[:n]],
            "other_label": names[errors.others[:n]],
            "share": errors.own_shares[:n],
            "other_share": errors.other_shares[:n],
        }
        parts.append(pa.table(part))
    return pa.concat_tables(parts)

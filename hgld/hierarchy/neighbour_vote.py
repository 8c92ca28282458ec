"""The vote of the nearest images on the label of a query."""

from __future__ import annotations

import numpy as np

from hgld.arrays import AnyFloats, Booleans, Floats, Integers
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.hierarchy.settings import TEMPERATURE


def vote(
    cosines: AnyFloats, labels: Integers, temperature: float = TEMPERATURE
) -> tuple[LabelMatrix, Floats]:
    """Return the labels that the neighbours of each query vote for, one per level, and their shares of the votes.

    The weight of a neighbour with cosine s is exp(s / temperature), as in the weighted k-nearest-neighbour classifier
    of Z. Wu, Y. Xiong, S. X. Yu, D. Lin, *Unsupervised Feature Learning via Non-Parametric Instance Discrimination*,
    CVPR 2018. The label is chosen from the coarsest level down; see :func:`elect`.

    A share is the sum of the weights of the neighbours with this label, divided by the sum over all labelled
    neighbours. It is no probability: nothing calibrates it, and it says nothing of labels that the gallery lacks.

    Args:
        cosines: float, shape (n, k), cosines of the neighbours of n queries, best first; NaN for missing neighbours.
            A neighbour with several labels is there once for each.
        labels: int64, shape (n, k, L), their labels, finest first and nested; -1 for unlabelled neighbours.
        temperature: Difference of cosines that changes a weight by the factor e.

    Returns:
        Labels, int64, shape (n, L), and shares, float64, shape (n, L), which do not increase from coarse to fine; -1
        and NaN where no neighbour has a label.

    >>> chosen, shares = vote(np.array([[0.9, 0.83, 0.83]]), np.array([[[5, 1], [6, 1], [7, 2]]]))
    >>> chosen.tolist(), shares.round(2).tolist()
    ([[5, 1]], [[0.58, 0.79]])
    """
    voters = labelled_neighbours(cosines, labels)
    weights = softmax_weights(cosines, voters, temperature)
    winner = elect(weights, labels, voters)
    shares = np.minimum(winning_weights(weights, labels, voters, winner), 1.0)
    return labels_of_winners(labels, winner), np.where(winner[:, None] < 0, np.nan, shares)


def labelled_neighbours(cosines: AnyFloats, labels: Integers) -> Booleans:
    """Return which neighbours have labels, bool, shape (n, k); see :func:`vote` for the arguments."""
    return ~np.isnan(cosines) & (labels >= 0).all(axis=2)


def softmax_weights(cosines: AnyFloats, voters: Booleans, temperature: float) -> Floats:
    """Return exp(cosine / temperature), adding up to 1 over the voters of each query: float64, shape (n, k)."""
    wide = np.where(voters, cosines, -np.inf).astype(np.float64)
    best = np.where(voters.any(axis=1), wide.max(axis=1, initial=-np.inf), 0.0)
    weights: Floats = np.exp((wide - best[:, None]) / temperature)
    total = weights.sum(axis=1, keepdims=True)
    return weights / np.where(total == 0, 1.0, total)


def elect(weights: AnyFloats, labels: Integers, voters: Booleans) -> Integers:
    """Return the nearest neighbour of each query among those with the winning label.

    At the coarsest level, the label with the largest sum of weights is chosen; at every finer level, the one with the
    largest sum among the children of the label above. Of equal sums, that of the nearer neighbour wins.

    Args:
        weights: float, shape (n, k), weights of the neighbours, nearest first.
        labels: int64, shape (n, k, L), their labels, finest first and nested.
        voters: bool, shape (n, k), the neighbours that have a vote.

    Returns:
        int64, shape (n,), index of the neighbour; -1 where none has a vote.
    """
    rows = np.arange(len(labels))
    candidates = voters
    for column in reversed(range(labels.shape[2])):
        names = labels[:, :, column]
        best = _sums_by_label(weights, names, candidates).argmax(axis=1)
        candidates = candidates & (names == names[rows, best][:, None])
    return np.where(voters.any(axis=1), candidates.argmax(axis=1), -1)


def winning_weights(
    weights: AnyFloats, labels: Integers, voters: Booleans, winner: Integers
) -> Floats:
    """Return the sum of the weights that agree with the winner at each level: float64, shape (n, L)."""
    agreeing = voters[..., None] & (labels == labels_of_winners(labels, winner)[:, None])
    sums: Floats = np.where(agreeing, weights[..., None], 0.0).sum(axis=1, dtype=np.float64)
    return sums


def labels_of_winners(labels: Integers, winner: Integers) -> LabelMatrix:
    """Return the labels of the winners, int64, shape (n, L); -1 where there is none."""
    return np.where(winner[:, None] < 0, -1, labels[np.arange(len(labels)), winner])


def _sums_by_label(weights: AnyFloats, names: Integers, voters: Booleans) -> Floats:
    """Return the total weight of the voters with the label of each voter, shape (n, k); -inf without a vote."""
    counted = np.where(voters, weights, 0.0)
    sums = np.zeros(names.shape)
    for neighbour in range(names.shape[1]):
        column = slice(neighbour, neighbour + 1)
        sums += np.where(names == names[:, column], counted[:, column], 0.0)
    return np.where(voters, sums, -np.inf)

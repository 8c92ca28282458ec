"""The vote of the nearest images on the label of a query."""

from __future__ import annotations

import numpy as np

from hgld.arrays import AnyFloats, Booleans, Floats, Integers
from hgld.hierarchy.label_matrix import LabelMatrix
from hgld.hierarchy.settings import TEMPERATURE


def vote(
    cosines: AnyFloats, labels: Integers, temperature: float = TEMPERATURE
) -> tuple[LabelMatrix, Floats]:
    """Return the label that wins the vote of each query's neighbours at each level, and its share.

    The weight of a neighbour with cosine s is exp(s / temperature), as in the weighted
    k-nearest-neighbour classifier of Z. Wu, Y. Xiong, S. X. Yu, D. Lin, *Unsupervised Feature
    Learning via Non-Parametric Instance Discrimination*, CVPR 2018. The label is chosen from the
    coarsest level down; see :func:`elect`.

    A share is the sum of the weights of the neighbours with this label, divided by the sum over all
    labelled neighbours. It is not a calibrated probability, and labels that the gallery lacks
    cannot win.

    Args:
        cosines: float, shape (n, k), cosines of the neighbours of n queries, best first; NaN for
            missing neighbours. A neighbour with several labels occurs once per label.
        labels: int64, shape (n, k, L), labels of the neighbours, finest first and nested; -1 for
            unlabelled neighbours.
        temperature: Difference of cosines that changes a weight by the factor e.

    Returns:
        Labels, int64, shape (n, L), and shares, float64, shape (n, L), which do not increase from
        coarse to fine; -1 and NaN for queries without labelled neighbours.

    >>> chosen, shares = vote(np.array([[0.9, 0.83, 0.83]]), np.array([[[5, 1], [6, 1], [7, 2]]]))
    >>> chosen.tolist(), shares.round(2).tolist()
    ([[5, 1]], [[0.58, 0.79]])
    """
    voters = labelled_neighbours(cosines, labels)
    weights = softmax_weights(cosines, voters, temperature)
    winners = elect(weights, labels, voters)
    shares = np.minimum(winning_weights(weights, labels, voters, winners), 1.0)
    shares[winners < 0] = np.nan
    return labels_of_winners(labels, winners), shares


def labelled_neighbours(cosines: AnyFloats, labels: Integers) -> Booleans:
    """Return which neighbours have labels: bool, shape (n, k). For arguments see :func:`vote`."""
    return ~np.isnan(cosines) & (labels >= 0).all(axis=2)


def softmax_weights(cosines: AnyFloats, voters: Booleans, temperature: float) -> Floats:
    """Return exp(cosine / temperature), normalised to a sum of 1 over the voters of each query.

    Returns:
        float64, shape (n, k); 0 for neighbours that do not vote.
    """
    voter_cosines = np.where(voters, cosines, -np.inf).astype(np.float64)
    best = voter_cosines.max(axis=1, keepdims=True, initial=-np.inf)
    best[~voters.any(axis=1)] = 0.0
    weights: Floats = np.exp((voter_cosines - best) / temperature)
    total = weights.sum(axis=1, keepdims=True)
    return weights / np.where(total == 0, 1.0, total)


def elect(weights: AnyFloats, labels: Integers, voters: Booleans) -> Integers:
    """Return the nearest neighbour with the winning label of each query.

    At the coarsest level, the label with the largest sum of weights wins; at every finer level, the
    label with the largest sum among the children of the label above. Among equal sums, the label of
    the nearest neighbour wins.

    Args:
        weights: float, shape (n, k), weights of the neighbours, nearest first.
        labels: int64, shape (n, k, L), labels of the neighbours, finest first and nested.
        voters: bool, shape (n, k), the neighbours that have a vote.

    Returns:
        int64, shape (n,), index of the neighbour; -1 without voters.
    """
    rows = np.arange(len(labels))
    candidates = voters
    for column in reversed(range(labels.shape[2])):
        level_labels = labels[:, :, column]
        best = _sums_by_label(weights, level_labels, candidates).argmax(axis=1)
        winning_labels = level_labels[rows, best]
        candidates = candidates & (level_labels == winning_labels[:, None])
    return np.where(voters.any(axis=1), candidates.argmax(axis=1), -1)


def winning_weights(
    weights: AnyFloats, labels: Integers, voters: Booleans, winners: Integers
) -> Floats:
    """Return the sum of the weights that agree with the winner at each level: float64, (n, L)."""
    agreeing = voters[..., None] & (labels == labels_of_winners(labels, winners)[:, None])
    sums: Floats = np.where(agreeing, weights[..., None], 0.0).sum(axis=1, dtype=np.float64)
    return sums


def labels_of_winners(labels: Integers, winners: Integers) -> LabelMatrix:
    """Return the labels of the winners: int64, shape (n, L); -1 without a winner."""
    winning_labels = labels[np.arange(len(labels)), winners]
    winning_labels[winners < 0] = -1
    return winning_labels


def _sums_by_label(weights: AnyFloats, level_labels: Integers, voters: Booleans) -> Floats:
    """Return the total weight of the voters with each voter's label; -inf for non-voters.

    Args:
        weights: float, shape (n, k).
        level_labels: int64, shape (n, k), labels at one level.
        voters: bool, shape (n, k).
    """
    votes = np.where(voters, weights, 0.0)
    sums = np.zeros(level_labels.shape)
    for neighbour in range(level_labels.shape[1]):
        has_label = level_labels == level_labels[:, neighbour, None]
        sums += np.where(has_label, votes[:, neighbour, None], 0.0)
    return np.where(voters, sums, -np.inf)

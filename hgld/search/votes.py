"""The vote of the nearest photographs on the labels of a query."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hgld.hierarchy.label_matrix import LabelMatrix

#: Difference of cosines that changes the weight of a vote by the factor e: tau of Wu et al. (2018).
TEMPERATURE = 0.07


def vote(
    scores: npt.NDArray[np.float32], labels: LabelMatrix, temperature: float = TEMPERATURE
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the label that the neighbours of a query vote for at each level, and its share of the votes.

    The weight of a neighbour with cosine s is exp(s / temperature), as in the weighted k-nearest-neighbour classifier
    of Z. Wu, Y. Xiong, S. X. Yu, D. Lin, *Unsupervised Feature Learning via Non-Parametric Instance Discrimination*,
    CVPR 2018. At the coarsest level, the label with the largest sum of weights is chosen; at every finer level, the
    one with the largest sum among the children of the label above. Of equal sums, that of the nearer neighbour wins.

    A share is the sum of the weights of the neighbours with this label, divided by the sum over all labelled
    neighbours. It is no probability: nothing calibrates it, and it says nothing of labels that the gallery lacks.

    Args:
        scores: float32, shape (k,), cosines of the neighbours, best first; NaN for missing neighbours. A neighbour
            with several labels is there once for each.
        labels: int64, shape (k, L), their labels, finest first and nested; -1 for unlabelled neighbours.
        temperature: Difference of cosines that changes a weight by the factor e.

    Returns:
        Labels, int64, shape (L,), and shares, float64, shape (L,), which do not increase from coarse to fine; -1 and
        NaN if no neighbour has a label.

    >>> chosen, shares = vote(np.array([0.9, 0.83, 0.83], np.float32), np.array([[5, 1], [6, 1], [7, 2]]))
    >>> chosen.tolist(), shares.round(2).tolist()
    ([5, 1], [0.58, 0.79])
    """
    chosen, shares = np.full(labels.shape[1], -1), np.full(labels.shape[1], np.nan)
    voters = np.flatnonzero(~np.isnan(scores) & (labels >= 0).all(axis=1))
    if not len(voters):
        return chosen, shares
    weights = np.exp((scores[voters].astype(np.float64) - float(scores[voters[0]])) / temperature)
    weights /= weights.sum()
    for column in reversed(range(labels.shape[1])):
        names, nearest, label_of = np.unique(labels[voters, column], return_index=True, return_inverse=True)
        sums = np.bincount(label_of, weights)
        best = int(np.lexsort((nearest, -sums))[0])
        chosen[column], shares[column] = names[best], min(float(sums[best]), 1.0)
        voters, weights = voters[label_of == best], weights[label_of == best]
    return chosen, shares

"""Scores and decisions at the levels above the groups of a taxonomy.

A name above groups, such as "string instruments" above "lutes" and "harps", is a node of its level.
The scores and the decided labels of the groups below a node add up to the scores and the decided
labels of the node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from hgld.arrays import Booleans, Floats, Integers
from hgld.taxonomy.groups import Group

#: Number of decided labels without similarity that are added to each node (additive smoothing).
_SMOOTHING = 2.0
#: Smallest standard deviation that cosines are divided by.
_MIN_DEVIATION = 0.01


def level_nodes(groups: Sequence[Group]) -> Integers:
    """Return the node of each group at each level: int64, shape (n_levels, n_groups).

    The nodes of each level are numbered from 0.

    >>> levels = ("group", "family", "kind")
    >>> violin = Group("violin", "strings", "", between=("bowed",), levels=levels)
    >>> lyre = Group("lyre", "strings", "", between=("plucked",), levels=levels)
    >>> level_nodes([violin, lyre]).tolist()
    [[0, 1], [0, 1], [0, 0]]
    """
    nodes = []
    for level in range(len(groups[0].path)):
        numbers: dict[str, int] = {}
        for group in groups:
            numbers.setdefault(group.path[level], len(numbers))
        nodes.append([numbers[group.path[level]] for group in groups])
    return np.array(nodes, np.int64)


def named_levels(groups: Sequence[Group]) -> list[int]:
    """Return the finest level that each group names: 0, or more for a group above other groups.

    A taxonomy may have a group for labels that cannot be assigned more exactly. Such a group has
    the name of a node above other groups, and repeats the name at the finer levels.

    >>> levels = ("leaf", "shelf", "aisle")
    >>> rye = Group("Rye", "Food", "", between=("Bread",), levels=levels)
    >>> bread = Group("Bread", "Food", "", between=("Bread",), levels=levels)
    >>> named_levels([rye, bread])
    [0, 1]
    """
    groups_below: Counter[tuple[int, str]] = Counter()
    for group in groups:
        groups_below.update(enumerate(group.path))
    levels = []
    for group in groups:
        named = 0
        for level, name in enumerate(group.path):
            if name == group.name and groups_below[level, name] > 1:
                named = level
        levels.append(named)
    return levels


def pool_scores(scores: Floats, groups: Sequence[Group]) -> list[Floats]:
    """Return the scores of the nodes of each group; a node has the sum of the groups below it.

    Args:
        scores: float64, shape (n_labels, n_groups).

    Returns:
        For each level, float64, shape (n_labels, n_groups).
    """
    pooled = []
    for nodes in level_nodes(groups):
        pooled.append(_sum_by_node(scores, nodes, nodes.max() + 1)[:, nodes])
    return pooled


def _sum_by_node(values: Floats, nodes: Integers, n_nodes: int) -> Floats:
    """Return the sums of the columns of each node: float64, shape (n_labels, n_nodes).

    Args:
        values: float64, shape (n_labels, n_columns).
        nodes: int64, shape (n_columns,); node of each column.
    """
    sums = np.zeros((n_nodes, len(values)))
    np.add.at(sums, nodes, values.T)
    return np.asarray(sums.T)


def rank_groups(pooled: Sequence[Floats], groups: Sequence[Group]) -> Integers:
    """Rank groups by the sum of score - 0.5 over the levels that each group names.

    The sum is half the expected number of right levels minus wrong levels. The groups of the
    likeliest branch come first, and a group above other groups comes before all of them that have a
    score below 0.5.

    Args:
        pooled: Scores by level, as :func:`pool_scores` returns them.
        groups: The groups of the taxonomy.

    Returns:
        int64, shape (n_labels, n_groups); the indices of the groups, the best first.
    """
    named = np.array(named_levels(groups))
    gain = np.zeros_like(pooled[0])
    for level, scores in enumerate(pooled):
        gain += np.where(named <= level, scores - 0.5, 0)
    # Rounded: the order of summation must not decide between equal groups.
    return np.asarray(np.argsort(-np.round(gain, 9), axis=1, kind="stable"), np.int64)


def decided_similarity(
    cosines: Floats, decided_groups: Integers, is_own: Booleans, groups: Sequence[Group]
) -> Floats:
    """Return how similar labels are to the decided labels of each group and of the nodes above it.

    The similarity to a decided label is ``z * |z|``, where ``z`` is the number of standard
    deviations by which the cosine exceeds the mean over all other labels: near neighbours count
    most. The similarity to a node is the smoothed mean over its decided labels, and the similarity
    to a group is the mean over its nodes.

    Args:
        cosines: float64, shape (n_labels, n_decided).
        decided_groups: int64, shape (n_decided,); index of the group, the number of groups for
            dropped labels.
        is_own: bool, shape (n_labels, n_decided); whether the decision is on the label itself; it
            does not count.
        groups: The groups of the taxonomy.

    Returns:
        float64, shape (n_labels, n_groups + 1); the last column is for no group.
    """
    masked = np.ma.masked_array(cosines, is_own)
    standard_deviation = np.maximum(masked.std(axis=0), _MIN_DEVIATION)
    deviations = (masked - masked.mean(axis=0)) / standard_deviation
    similarities = (deviations * np.abs(deviations)).filled(0.0)
    values = np.zeros((len(cosines), len(groups) + 1))
    levels = level_nodes(groups)
    for nodes in levels:
        n_nodes = nodes.max() + 1
        # One node more, for labels without a group.
        nodes_by_column = np.append(nodes, n_nodes)
        decided_nodes = nodes_by_column[decided_groups]
        sums = _sum_by_node(similarities, decided_nodes, n_nodes + 1)
        n_decided = _sum_by_node(np.where(is_own, 0.0, 1.0), decided_nodes, n_nodes + 1)
        smoothed_means = sums / (n_decided + _SMOOTHING)
        values += smoothed_means[:, nodes_by_column]
    return np.asarray(values / len(levels))

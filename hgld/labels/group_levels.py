"""Suggestions in trees of several levels: scores of the names above the groups, and what decisions say of each level.

A name above groups, such as "string instruments" above "lutes" and "harps", is a node of its level. What is known of
the groups below a node adds up to what is known of the node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from hgld.arrays import Booleans, Floats, Integers
from hgld.taxonomy.groups import Group

#: Weight of what is not known about a node, as a number of decided labels.
_SMOOTHING = 2.0
#: Smallest standard deviation that cosines are divided by.
_MIN_DEVIATION = 0.01


def level_nodes(groups: Sequence[Group]) -> Integers:
    """Return the node of each group at each level: int64, shape (n_levels, n_groups); nodes are numbered from 0.

    >>> levels = ("group", "family", "kind")
    >>> violin = Group("violin", "strings", "", between=("bowed",), levels=levels)
    >>> lyre = Group("lyre", "strings", "", between=("plucked",), levels=levels)
    >>> level_nodes([violin, lyre]).tolist()
    [[0, 1], [0, 1], [0, 0]]
    """
    nodes = []
    for names in zip(*(group.path for group in groups), strict=True):
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        nodes.append([numbers[name] for name in names])
    return np.array(nodes, np.int64)


def named_levels(groups: Sequence[Group]) -> list[int]:
    """Return the finest level that each group says anything about: 0, or more for a group above other groups.

    A taxonomy may have a group for what is not known more exactly. Its name is that of a node above other groups, and
    is repeated at the finer levels.

    >>> levels = ("leaf", "shelf", "aisle")
    >>> rye = Group("Rye", "Food", "", between=("Bread",), levels=levels)
    >>> bread = Group("Bread", "Food", "", between=("Bread",), levels=levels)
    >>> named_levels([rye, bread])
    [0, 1]
    """
    groups_below = Counter(
        (level, name) for group in groups for level, name in enumerate(group.path)
    )
    levels = []
    for group in groups:
        named = 0
        for level, name in enumerate(group.path):
            if name == group.name and groups_below[level, name] > 1:
                named = level
        levels.append(named)
    return levels


def pool_scores(scores: Floats, groups: Sequence[Group]) -> list[Floats]:
    """Return the scores of the nodes of each group: the sum of the scores of all groups below the node.

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
    """Rank groups by how many of the levels that they name are expected to be right, above those expected wrong.

    Each level counts by its score minus one half. So the groups of the likeliest branch come first, and a group above
    others comes before these as long as none of them is as likely as not.

    Args:
        pooled: Scores by level, as :func:`pool_scores` returns them.

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

    The similarity to a decided label is the number of standard deviations by which the cosine is above the mean of
    all other labels, multiplied by its absolute value: near neighbours count most, and labels without a neighbour
    lose what others gain. A node has the mean of its decided labels, and a group that of its nodes.

    Args:
        cosines: float64, shape (n_labels, n_decided).
        decided_groups: int64, shape (n_decided,); index of the group, the number of groups for dropped labels.
        is_own: bool, shape (n_labels, n_decided); whether the decision is on the label itself, which does not count.

    Returns:
        float64, shape (n_labels, n_groups + 1); the last column is for no group.
    """
    others = np.ma.masked_array(cosines, is_own)
    deviations = (others - others.mean(axis=0)) / np.maximum(others.std(axis=0), _MIN_DEVIATION)
    similarities = (deviations * np.abs(deviations)).filled(0.0)
    values = np.zeros((len(cosines), len(groups) + 1))
    levels = level_nodes(groups)
    for nodes in levels:
        n_nodes = nodes.max() + 1
        nodes_and_none = np.append(nodes, n_nodes)
        decided_nodes = nodes_and_none[decided_groups]
        sums = _sum_by_node(similarities, decided_nodes, n_nodes + 1)
        n_decided = _sum_by_node(np.where(is_own, 0.0, 1.0), decided_nodes, n_nodes + 1)
        values += (sums / (n_decided + _SMOOTHING))[:, nodes_and_none]
    return np.asarray(values / len(levels))

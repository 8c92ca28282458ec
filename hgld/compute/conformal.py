"""Conformal prediction: sets of classes that hold the true one with a promised probability, whatever the scores.

The promise (V. Vovk, A. Gammerman and G. Shafer, *Algorithmic Learning in a Random World*, 2005) needs no model of
the scores, only that the items which calibrate and those to classify are exchangeable, such as all drawn at random
from the same ones. It holds on average over items, not for each kind of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, inf, isinf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgld.errors import ConfigurationError, InputError

Floats = NDArray[np.float64]


def check_coverage(coverage: float | None) -> None:
    """Check a setting of the probability that sets hold the true class; None for no sets.

    Raises:
        ConfigurationError: It is not between 0 and 1.
    """
    if coverage is not None and not 0 < coverage < 1:
        raise ConfigurationError(f"`coverage` is {coverage}; expected between 0 and 1, such as 0.95")


def conformal_threshold(nonconformity: Floats, coverage: float) -> float:
    """Return the value that the nonconformity of one more item does not exceed with the probability ``coverage``.

    It is the ``ceil((n + 1) coverage)``-th smallest of the n values, and infinite if that is more than n.

    Args:
        nonconformity: float64, shape (n,); of the true classes of the items that calibrate.
        coverage: Probability, over 0 and up to 1.

    >>> conformal_threshold(np.arange(19.0), 0.95), conformal_threshold(np.arange(18.0), 0.95)
    (18.0, inf)
    """
    rank = ceil((len(nonconformity) + 1) * coverage - 1e-9)  # 0.95 * 20 may be a little more than 19
    return float(np.sort(nonconformity)[rank - 1]) if rank <= len(nonconformity) else inf


def scores_above(scores: Floats) -> Floats:
    """Return the nonconformity of every class: the sum of the scores of the classes that come before it.

    This is the score of adaptive prediction sets (Y. Romano, M. Sesia and E. Candès, "Classification with valid and
    adaptive coverage", NeurIPS 2020, section 2), without the class itself and without randomisation: sets always hold
    the class with the highest score, and have more classes where scores are divided.

    Args:
        scores: float64, shape (n, n_classes), not negative. Of equal scores, the first comes first.
    """
    order = np.argsort(-scores, axis=1, kind="stable")
    sums = np.cumsum(np.take_along_axis(scores, order, axis=1), axis=1)
    above = np.zeros_like(sums)
    np.put_along_axis(above, order[:, 1:], sums[:, :-1], axis=1)
    return above


def prediction_sets(scores: Floats, known: Floats, classes: NDArray[np.int64], coverage: float) -> NDArray[np.bool_]:
    """Return the classes in the set of each item.

    Args:
        scores: float64, shape (m, n_classes); scores of the items to classify.
        known: float64, shape (n, n_classes); scores of the items that calibrate, to which nothing may be fitted that
            was not fitted to the others as well.
        classes: int64, shape (n,); true classes of these.
        coverage: Probability that a set holds the true class, over 0 and up to 1.

    Returns:
        bool, shape (m, n_classes).
    """
    threshold = conformal_threshold(scores_above(known)[np.arange(len(classes)), classes], coverage)
    return np.asarray(scores_above(scores) <= threshold)


def sets_by_level(
    scores: Floats,
    known: Floats,
    classes: NDArray[np.int64],
    coverage: float,
    levels: Mapping[str, Sequence[str]],
) -> list[list[dict[str, Any]]]:
    """Return a set of names for each item and level, as in the column ``prediction_sets`` of tables.

    The score of a name is the sum over the classes below it. Each level keeps its own promise.

    Args:
        scores: As for :func:`prediction_sets`, like the next three.
        known: Scores of the items that calibrate.
        classes: True classes of these.
        coverage: Probability that a set holds the true name.
        levels: By level, the name of each class.

    Raises:
        InputError: The items that calibrate are too few for any promise.
    """
    if isinf(conformal_threshold(np.zeros(len(classes)), coverage)):
        needed = ceil(coverage / (1 - coverage) - 1e-9)
        raise InputError(
            f"sets for a `coverage` of {coverage:g} are calibrated on {needed} known groups or more, and there are "
            f"{len(classes)}; decide more of them at random, or lower it"
        )
    rows: list[list[dict[str, Any]]] = [[] for _ in scores]
    for level, names in levels.items():
        members, number = np.unique(np.array(names), return_inverse=True)
        below = np.eye(len(members))[number]
        summed = scores @ below
        inside = prediction_sets(summed, known @ below, number[classes], coverage)
        for row, order in enumerate(np.argsort(-summed, axis=1, kind="stable")):
            best_first = [str(members[member]) for member in order if inside[row, member]]
            rows[row].append({"level": level, "coverage": coverage, "members": best_first})
    return rows

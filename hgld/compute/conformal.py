"""Conformal prediction: sets of classes that hold the true one with a promised probability, whatever the scores.

The promise (V. Vovk, A. Gammerman and G. Shafer, *Algorithmic Learning in a Random World*, 2005) needs no model of
the scores, only that the items which calibrate and those to classify are exchangeable, such as all drawn at random
from the same ones. It holds on average over items, not for each kind of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, isinf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgld.arrays import Booleans, Floats, Integers
from hgld.errors import InputError, require


def check_coverage(coverage: float | None) -> None:
    """Check a setting of the probability that sets hold the true class; None for no sets.

    Raises:
        ConfigurationError: It is not between 0 and 1.
    """
    require(coverage is None or 0 < coverage < 1, "between 0 and 1, such as 0.95", coverage=coverage)


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


class Items(NamedTuple):
    """Classified items.

    Args:
        scores: float64, shape (n, n_classes); not negative.
        classes: int64, shape (n,); true classes.
    """

    scores: Floats
    classes: Integers

    def select(self, rows: NDArray[Any]) -> Items:
        """Return some of the items, by a mask or by their numbers."""
        return Items(self.scores[rows], self.classes[rows])


def prediction_sets(scores: Floats, known: Items, coverage: float) -> Booleans:
    """Return the classes in the set of each item: bool, shape (m, n_classes).

    Args:
        scores: float64, shape (m, n_classes); scores of the items to classify.
        known: Items to calibrate on; nothing may be fitted to their classes that was not fitted to the others', too.
        coverage: Probability that a set holds the true class, over 0 and up to 1.
    """
    true = scores_above(known.scores)[np.arange(len(known.classes)), known.classes]
    return np.asarray(scores_above(scores) <= conformal_threshold(true, coverage))


@dataclass(frozen=True)
class SetQuality:
    """Sets of items whose classes are known: how many hold the true name of a level, and the mean number of names."""

    level: str
    held: float
    size: float


def sets_by_level(
    scores: Floats, known: Items, coverage: float, levels: Mapping[str, Sequence[str]]
) -> list[list[dict[str, Any]]]:
    """Return a set of names for each item and level, as in the column ``prediction_sets`` of tables.

    The score of a name is the sum over the classes below it. Each level keeps its own promise.

    Args:
        scores: float64, shape (m, n_classes); scores of the items to classify.
        known: Items to calibrate on, see :func:`prediction_sets`.

    Raises:
        InputError: The items that calibrate are too few for any promise.
    """
    rows: list[list[dict[str, Any]]] = [[] for _ in scores]
    for level, names in levels.items():
        members, summed, inside, _ = _sets_of_level(scores, known, coverage, names)
        for row, order in enumerate(np.argsort(-summed, axis=1, kind="stable")):
            best_first = [str(members[member]) for member in order if inside[row, member]]
            rows[row].append({"level": level, "coverage": coverage, "members": best_first})
    return rows


def measure_sets(
    folds: Sequence[tuple[Items, Items]], coverage: float, levels: Mapping[str, Sequence[str]]
) -> list[SetQuality]:
    """Measure sets of known items, each fold by sets that are calibrated on others.

    Args:
        folds: Items to measure on, with those to calibrate on.

    Raises:
        InputError: The items that calibrate are too few for any promise.
    """
    result = []
    for level, names in levels.items():
        held, sizes = [], []
        for items, known in folds:
            _, _, inside, number = _sets_of_level(items.scores, known, coverage, names)
            held.append(inside[np.arange(len(items.classes)), number[items.classes]])
            sizes.append(inside.sum(axis=1))
        result.append(SetQuality(level, float(np.concatenate(held).mean()), float(np.concatenate(sizes).mean())))
    return result


def _sets_of_level(
    scores: Floats, known: Items, coverage: float, names: Sequence[str]
) -> tuple[NDArray[np.str_], Floats, Booleans, Integers]:
    """Return the names of a level, their scores, whether they are in the set of each item, and that of each class."""
    if isinf(conformal_threshold(np.zeros(len(known.classes)), coverage)):
        needed = ceil(coverage / (1 - coverage) - 1e-9)
        raise InputError(
            f"sets for a `coverage` of {coverage:g} are calibrated on {needed} known groups or more, and there are "
            f"{len(known.classes)}; decide more of them at random, or lower it"
        )
    members, number = np.unique(np.array(names), return_inverse=True)
    below = np.eye(len(members))[number]
    summed = scores @ below
    inside = prediction_sets(summed, Items(known.scores @ below, number[known.classes]), coverage)
    return members, summed, inside, number

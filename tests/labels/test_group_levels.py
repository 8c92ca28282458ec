import numpy as np
import pytest
from numpy.typing import NDArray

from hgld.labels.group_levels import (
    decided_similarity,
    level_nodes,
    named_levels,
    pool_scores,
    rank_groups,
)
from hgld.taxonomy.groups import Group

LEVELS = ("leaf", "shelf", "aisle")


def group(name: str, shelf: str, aisle: str) -> Group:
    return Group(name, aisle, "", between=(shelf,), levels=LEVELS)


RYE, WHITE = group("rye", "bread", "food"), group("white", "bread", "food")
MILK = group("milk", "milk", "food")  # less deep than the others
HAMMER = group("hammer", "tools", "home")
BREAD, FOOD = group("bread", "bread", "food"), group("food", "food", "food")


def test_group_above_others_names_its_own_level() -> None:
    assert named_levels([RYE, WHITE, MILK, HAMMER, BREAD, FOOD]) == [0, 0, 0, 0, 1, 2]
    assert named_levels([RYE, MILK, HAMMER]) == [0, 0, 0]


def test_scores_of_a_level_are_the_sums_of_its_groups() -> None:
    scores = np.array([[0.2, 0.3, 0.1, 0.25]])
    leaf, shelf, aisle = pool_scores(scores, [RYE, WHITE, MILK, HAMMER])
    np.testing.assert_allclose(leaf, scores)
    np.testing.assert_allclose(shelf, [[0.5, 0.5, 0.1, 0.25]])
    np.testing.assert_allclose(aisle, [[0.6, 0.6, 0.6, 0.25]])


def rank(scores: list[float], groups: list[Group]) -> list[str]:
    (order,) = rank_groups(pool_scores(np.array([scores]), groups), groups)
    return [groups[number].name for number in order]


def test_the_likeliest_branch_comes_first() -> None:
    assert rank([0.25, 0.24, 0.1, 0.3], [RYE, WHITE, MILK, HAMMER]) == ["rye", "white", "hammer", "milk"]
    assert rank([0.2, 0.1, 0.1, 0.55], [RYE, WHITE, MILK, HAMMER])[0] == "hammer"


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.6, 0.1, 0.0, 0.1, 0.05, 0.05], "rye"),
        ([0.4, 0.3, 0.0, 0.1, 0.0, 0.0], "bread"),
        ([0.2, 0.2, 0.2, 0.1, 0.0, 0.0], "food"),
        ([0.1, 0.1, 0.1, 0.1, 0.0, 0.0], "food"),
    ],
)
def test_the_finest_group_that_is_as_likely_as_not_comes_first(scores: list[float], expected: str) -> None:
    assert rank(scores, [RYE, WHITE, MILK, HAMMER, BREAD, FOOD])[0] == expected


def slow_similarity(
    cosines: NDArray[np.float64], decided: list[int], is_own: NDArray[np.bool_], groups: list[Group]
) -> NDArray[np.float64]:
    values = np.zeros((len(cosines), len(groups) + 1))
    for row in range(len(cosines)):
        for number in range(len(groups) + 1):
            means = []
            for level in range(len(LEVELS)):
                votes = [0.0] * 2
                total = 0.0
                for place, other in enumerate(decided):
                    if len(groups) in (number, other):
                        same = number == other
                    else:
                        same = groups[number].path[level] == groups[other].path[level]
                    if same and not is_own[row, place]:
                        column = cosines[~is_own[:, place], place]
                        deviation = (cosines[row, place] - column.mean()) / column.std()
                        votes.append(0.0)
                        total += deviation * abs(deviation)
                means.append(total / len(votes))
            values[row, number] = np.mean(means)
    return values


def test_similarity_to_decided_labels_is_that_of_a_loop() -> None:
    rng = np.random.default_rng(0)
    groups = [RYE, WHITE, MILK, HAMMER]
    decided = [0, 0, 1, 3, 4]  # the last one is dropped
    cosines = rng.uniform(-0.2, 1, (6, len(decided)))
    is_own = rng.random(cosines.shape) < 0.2
    values = decided_similarity(cosines, np.array(decided), is_own, groups)
    np.testing.assert_allclose(values, slow_similarity(cosines, decided, is_own, groups))


def test_nodes_of_levels_follow_the_names() -> None:
    assert level_nodes([RYE, WHITE, MILK, HAMMER]).tolist() == [[0, 1, 2, 3], [0, 0, 1, 2], [0, 0, 0, 1]]

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.hierarchy.neighbour_vote import elect, vote, winning_weights
from tests.search.galleries import obvious_vote


@st.composite
def neighbours(draw: st.DrawFn) -> list[tuple[float, tuple[int, int, int]]]:
    """Cosines, best first, that are equal or clearly different, and labels of three nested levels."""
    scores = sorted(draw(st.lists(st.integers(-20, 20), min_size=1, max_size=12)), reverse=True)
    products = [draw(st.integers(0, 7)) for _ in scores]
    return [
        (score / 20, (product, product // 2, product // 4)) for score, product in zip(scores, products, strict=True)
    ]


@given(st.lists(neighbours(), min_size=1, max_size=4))
def test_votes_are_those_of_the_obvious_count(queries: list[list[tuple[float, tuple[int, int, int]]]]) -> None:
    """Queries with fewer neighbours than others are filled up with missing ones."""
    k = max(map(len, queries))
    padded = [near + [(math.nan, (-1, -1, -1))] * (k - len(near)) for near in queries]
    scores = np.array([[score for score, _ in near] for near in padded], np.float32)
    labels = np.array([[labels for _, labels in near] for near in padded])
    chosen, shares = vote(scores, labels, temperature=0.1)
    for row, near in enumerate(queries):
        expected = obvious_vote([(score, [str(label) for label in labels]) for score, labels in near], 0.1)
        assert shares[row] == pytest.approx([share for _, share in expected], abs=1e-5)
        if len({score for score, _ in near}) == len(near):  # else rounding may decide between equal sums
            assert [str(label) for label in chosen[row]] == [label for label, _ in expected]
        assert chosen[row, 1] == chosen[row, 0] // 2
        assert chosen[row, 2] == chosen[row, 1] // 2
    assert np.all(np.diff(shares, axis=1) >= -1e-12), "a coarser label has at least the votes of a finer one"


@settings(max_examples=40)
@given(st.lists(st.lists(st.tuples(st.integers(-3, 3), st.integers(-1, 3)), min_size=5, max_size=5), min_size=1))
def test_elected_neighbours_are_those_of_the_obvious_sums(rows: list[list[tuple[int, int]]]) -> None:
    """Weights of one level that are whole numbers, negative ones and ties among them; label -1 has no vote."""
    weights = np.array([[weight for weight, _ in row] for row in rows])
    labels = np.array([[label for _, label in row] for row in rows])
    winners = elect(weights, labels[..., None], labels >= 0)
    totals = winning_weights(weights, labels[..., None], labels >= 0, winners)
    for row, (winner, total) in enumerate(zip(winners.tolist(), totals[:, 0].tolist(), strict=True)):
        sums: dict[int, int] = {}
        for weight, label in rows[row]:  # nearest first, so the first of equal sums is that of the nearer neighbour
            if label >= 0:
                sums[label] = sums.get(label, 0) + weight
        if not sums:
            assert (winner, total) == (-1, 0)
            continue
        best = max(sums, key=lambda label: sums[label])
        assert winner == labels[row].tolist().index(best)
        assert total == sums[best]


def test_group_wins_over_a_single_nearer_label() -> None:
    """Three products of a group outvote one product of another, which alone has the most votes."""
    labels = np.array([[[9, 4], [1, 0], [2, 0], [3, 0]]])
    chosen, shares = vote(np.array([[0.9, 0.88, 0.88, 0.88]], np.float32), labels)
    assert chosen.tolist() == [[1, 0]]
    assert shares[0, 0] < 0.25 < 0.6 < shares[0, 1]


def test_missing_and_unlabelled_neighbours_have_no_vote() -> None:
    scores = np.array([[0.9, 0.8, np.nan]], np.float32)
    chosen, shares = vote(scores, np.array([[[-1, -1], [4, 2], [5, 3]]]))
    assert (chosen.tolist(), shares.tolist()) == ([[4, 2]], [[1.0, 1.0]])
    chosen, shares = vote(scores, np.full((1, 3, 2), -1))
    assert chosen.tolist() == [[-1, -1]]
    assert np.isnan(shares).all()


def test_no_queries_and_no_levels_have_empty_votes() -> None:
    assert [part.shape for part in vote(np.empty((0, 3)), np.empty((0, 3, 2), np.int64))] == [(0, 2), (0, 2)]
    assert [part.shape for part in vote(np.ones((2, 3)), np.empty((2, 3, 0), np.int64))] == [(2, 0), (2, 0)]

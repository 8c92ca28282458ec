from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.search.votes import vote
from tests.search.galleries import obvious_vote


@st.composite
def neighbours(draw: st.DrawFn) -> list[tuple[float, tuple[int, int, int]]]:
    """Cosines, best first, that are equal or clearly different, and labels of three nested levels."""
    scores = sorted(draw(st.lists(st.integers(-20, 20), min_size=1, max_size=12)), reverse=True)
    products = [draw(st.integers(0, 7)) for _ in scores]
    return [
        (score / 20, (product, product // 2, product // 4)) for score, product in zip(scores, products, strict=True)
    ]


@given(neighbours())
def test_votes_are_those_of_the_obvious_count(near: list[tuple[float, tuple[int, int, int]]]) -> None:
    scores = np.array([score for score, _ in near], np.float32)
    labels = np.array([labels for _, labels in near])
    chosen, shares = vote(scores, labels, temperature=0.1)
    named = [(score, [str(label) for label in row]) for score, row in near]
    expected = obvious_vote(named, 0.1)
    assert shares == pytest.approx([share for _, share in expected], abs=1e-5)
    sums_differ = len({round(share, 5) for share in np.exp(scores / 0.1).tolist()}) == len(scores)
    if sums_differ:
        assert [str(label) for label in chosen] == [label for label, _ in expected]
    assert np.all(np.diff(shares) >= -1e-12), "a coarser label has at least the votes of a finer one"
    assert chosen[1] == chosen[0] // 2
    assert chosen[2] == chosen[1] // 2


def test_of_equal_votes_the_nearer_neighbour_wins() -> None:
    chosen, shares = vote(np.array([0.5, 0.5], np.float32), np.array([[7, 1], [3, 0]]))
    assert chosen.tolist() == [7, 1]
    assert shares.tolist() == [0.5, 0.5]


def test_group_wins_over_a_single_nearer_label() -> None:
    """Three products of a group outvote one product of another, which alone has the most votes."""
    labels = np.array([[9, 4], [1, 0], [2, 0], [3, 0]])
    chosen, shares = vote(np.array([0.9, 0.88, 0.88, 0.88], np.float32), labels)
    assert chosen.tolist() == [1, 0]
    assert shares[0] < 0.25 < 0.6 < shares[1]


def test_missing_and_unlabelled_neighbours_have_no_vote() -> None:
    scores = np.array([0.9, 0.8, np.nan], np.float32)
    chosen, shares = vote(scores, np.array([[-1, -1], [4, 2], [5, 3]]))
    assert (chosen.tolist(), shares.tolist()) == ([4, 2], [1.0, 1.0])
    chosen, shares = vote(scores, np.full((3, 2), -1))
    assert chosen.tolist() == [-1, -1]
    assert np.isnan(shares).all()

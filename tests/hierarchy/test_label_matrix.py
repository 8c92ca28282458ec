"""Several labels per image, each with its ancestors, and the votes of neighbours on labels."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.hierarchy import Hierarchy, LabelSets
from hgld.hierarchy.label_matrix import deviating_parents, elect, take_images, vote, winning_weights
from tests.search.galleries import obvious_vote

LEAVES = np.array([[leaf, leaf // 2] for leaf in range(6)])
IMAGES = st.lists(st.lists(st.integers(0, 5), max_size=4), min_size=1, max_size=6)


def of_leaves(images: list[list[int]]) -> LabelSets:
    rows = [leaf for image in images for leaf in image]
    return LabelSets.from_rows(LEAVES[rows], np.array([len(image) for image in images]))


@given(IMAGES, st.data())
def test_labels_are_kept_in_order_once_each(images: list[list[int]], data: st.DataObject) -> None:
    sets = of_leaves(images)
    unique = [list(dict.fromkeys(image)) for image in images]
    assert [sets.of(image)[:, 0].tolist() for image in range(len(sets))] == unique
    assert len(np.unique(sets.labels, axis=0)) == len(sets.labels)
    assert sets.counts().tolist() == [len(image) for image in unique]

    rows = data.draw(st.lists(st.integers(0, len(images) - 1), max_size=5))
    part = sets.take(np.array(rows, np.int64))
    assert [part.of(image)[:, 0].tolist() for image in range(len(rows))] == [unique[row] for row in rows]
    assert set(part.labels[:, 0].tolist()) == {leaf for row in rows for leaf in unique[row]}

    padded = sets.padded()
    assert padded.shape == (len(images), max(1, *map(len, unique)) if unique else 1, 2)
    for image, leaves in enumerate(unique):
        assert padded[image, : len(leaves), 0].tolist() == leaves
        assert (padded[image, len(leaves) :] == -1).all()
    assert sets.padded(np.array(rows, np.int64)).tolist() == padded[rows].tolist()


def test_main_single_and_rarest_labels() -> None:
    sets = of_leaves([[4, 1], [1], [1, 3, 2], [2]])
    assert sets.first()[:, 0].tolist() == [4, 1, 1, 2]
    assert sets.rarest()[:, 0].tolist() == [4, 1, 3, 2]
    assert sets.single() is None
    assert of_leaves([[3], [5]]).single().tolist() == [[3, 1], [5, 2]]  # type: ignore[union-attr]
    assert of_leaves([[2, 3], [5]]).single_column(1).tolist() == [1, 2]  # type: ignore[union-attr]
    assert of_leaves([[2, 3], [5]]).single_column(0) is None
    assert of_leaves([[2], []]).single_column(0) is None


def test_images_are_taken_by_number_or_mask() -> None:
    sets = of_leaves([[0], [1, 2], [3]])
    taken = take_images(sets, np.array([False, True, True]))
    assert isinstance(taken, LabelSets)
    assert taken.of(0).tolist() == LEAVES[[1, 2]].tolist()
    assert np.array_equal(take_images(LEAVES, np.array([4])), LEAVES[[4]])  # type: ignore[arg-type]


def test_a_class_has_the_same_parents_in_every_image() -> None:
    both = [[7, 0], [7, 1]]
    assert deviating_parents(LabelSets.from_lists([both, both, [[8, 0]]])) is None
    assert deviating_parents(LabelSets.from_lists([both, [[8, 0]], [[7, 1]]])) == (0, 7, 2)
    assert deviating_parents(LabelSets.from_lists([[[7, 0]], [[7, 1]]])) == (0, 7, 1)
    assert deviating_parents(LabelSets.from_lists([[[7, 0, 3]], [[7, 0, 4], [8, 0, 3]]])) == (1, 0, 0)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([], "there are no images"),
        ([[[0, 1]], [[0]]], r"image 0 has labels of the shape \(1, 2\), image 0 of"),
        ([[0, 1]], r"image 0 has labels of the shape \(2,\)"),
        ([np.empty((1, 0))], r"image 0 has labels of the shape \(1, 0\)"),
    ],
)
def test_wrong_lists_are_refused(images: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        LabelSets.from_lists(images)


def test_labels_of_landmarks_in_several_groups(caplog: pytest.LogCaptureFixture) -> None:
    table = pa.table(
        {
            "split": ["train"] * 3,
            "landmark_id": [5, 7, 9],
            "hierarchical_label": ["castle", "lake", "church"],
            "natural_or_human_made": ["human-made", "natural", "human-made"],
            "hierarchical_labels": [["castle", "church"], ["lake"], ["church", "lake", "dam"]],
        }
    )
    hierarchy = Hierarchy.from_arrow(table)
    sets = hierarchy.label_sets_of(np.array([9, 6, 5, 9]))
    names = [
        [(int(row[0]), hierarchy.nodes[0][row[1]], hierarchy.nodes[1][row[2]]) for row in sets.of(image)]
        for image in range(4)
    ]
    third = [(2, "church", "human-made"), (2, "lake", "natural")]
    assert names == [third, [], [(0, "castle", "human-made"), (0, "church", "human-made")], third]
    assert "1 groups are excluded from the labels, as they are the first group of no landmark: dam" in caplog.text


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


def test_of_equal_votes_the_nearer_neighbour_wins() -> None:
    chosen, shares = vote(np.array([[0.5, 0.5]], np.float32), np.array([[[7, 1], [3, 0]]]))
    assert chosen.tolist() == [[7, 1]]
    assert shares.tolist() == [[0.5, 0.5]]


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

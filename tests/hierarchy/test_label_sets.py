"""Several labels per image, each with its ancestors."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.hierarchy import Hierarchy, LabelSets
from hgld.hierarchy.label_sets import deviating_parents, take_images

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

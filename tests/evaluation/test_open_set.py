"""Answers to known, near and far queries against plain loops, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.evaluation.open_set import OpenSetAnswers, open_set_answers, rank_answers
from hgld.ragged import RaggedIndices
from hgld.rejection.detector import Detector
from hgld.rejection.inputs import DetectorInputs
from hgld.rejection.scores.neighbours import Top1Cosine

GALLERY = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
LABELS = np.array([[1, 10], [2, 10], [3, 11]])
# A known query, a near one whose group is in the gallery, one whose group is not, and a far one.
QUERIES = np.array([[1.0, 0.1], [1.0, 0.2], [0.15, 1.0], [0.5, 0.5]])
QUERY_LABELS = np.array([[1, 10], [7, 10], [8, 12], [-1, -1]])


def answers() -> OpenSetAnswers:
    return open_set_answers(Top1Cosine().fit(GALLERY, LABELS), GALLERY, LABELS, QUERIES, QUERY_LABELS)


def test_near_queries_may_be_right_at_a_coarser_level() -> None:
    result = answers()
    assert result.answers.tolist() == [[1, 10], [1, 10], [3, 11], [2, 10]]
    assert result.right.tolist() == [[True, True], [False, True], [False, False], [False, False]]
    assert result.known.tolist() == [[True, True], [False, True], [False, False], [False, False]]
    assert result.has_landmark.tolist() == [True, True, True, False]
    assert result.near.tolist() == [False, True, True, False]
    assert result.far.tolist() == [False, False, False, True]
    assert result.scores == pytest.approx(-np.cos([np.arctan(0.1), np.arctan(0.2), np.arctan(0.15), 0.1418971]))


def test_gap_counts_near_queries_as_images_without_an_answer() -> None:
    result = answers()
    # The queries 0, 3, 2, 1 have the highest cosines, in this order.
    landmark, group = (result.recognition(column=column) for column in (0, 1))
    assert landmark.means == {"gap": 1.0, "gap_ignore_non_landmark": 1.0, "top1": 1.0}
    assert group.means["top1"] == 1.0
    assert group.means["gap"] == pytest.approx((1 + 2 / 4) / 2)
    assert group.means["gap_ignore_non_landmark"] == 1.0
    assert group.counts == {"queries": 4, "images_without_a_landmark": 2, "images_without_a_prediction": 0}


def test_equal_scores_are_ranked_by_image_id() -> None:
    right = np.array([True, False])
    by_position = rank_answers("all", np.zeros(2), right, right)
    by_id = rank_answers("all", np.zeros(2), right, right, np.array(["b", "a"]))
    assert (by_position.means["gap"], by_id.means["gap"]) == (1.0, 0.5)
    assert list(by_id.per_query.index) == ["a", "b"]


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_answers_agree_with_loops(seed: int, n_levels: int) -> None:
    rng = np.random.default_rng(seed)
    gallery, queries = rng.normal(size=(rng.integers(2, 9), 3)), rng.normal(size=(rng.integers(1, 9), 3))
    labels, own = (rng.integers(3, size=(len(images), n_levels)) for images in (gallery, queries))
    labels[rng.random(len(labels)) < 0.3], own[rng.random(len(own)) < 0.3] = -1, -1
    excluded = RaggedIndices.from_lists([[int(rng.integers(len(gallery)))] for _ in queries])
    result = open_set_answers(Top1Cosine().fit(gallery, labels), gallery, labels, queries, own, excluded=excluded)
    for i, query in enumerate(queries):
        cosines = {
            j: item @ query / np.linalg.norm(item) / np.linalg.norm(query)
            for j, item in enumerate(gallery)
            if j != excluded.row(i)[0]
        }
        nearest = max(cosines, key=lambda j: cosines[j])
        assert result.scores[i] == pytest.approx(-cosines[nearest], abs=1e-12)
        for level in range(n_levels):
            label = own[i, level]
            assert result.answers[i, level] == labels[nearest, level]
            assert result.right[i, level] == (label != -1 and labels[nearest, level] == label)
            assert result.known[i, level] == (
                label != -1 and label in np.delete(labels, excluded.row(i), 0)[:, level]
            )


def test_some_answers_can_be_taken() -> None:
    part = answers().take(np.array([True, False, False, True]))
    assert len(part) == 2
    assert part.answers.tolist() == [[1, 10], [2, 10]]
    assert part.far.tolist() == [False, True]
    assert part.scores.tolist() == answers().scores[[0, 3]].tolist()


def test_answers_can_be_joined() -> None:
    known, far = (answers().take(np.array([row])) for row in (0, 3))
    both = known.joined(far)
    assert both.scores.tolist() == answers().scores[[0, 3]].tolist()
    assert both.known[:, 0].tolist() == [True, False]


def test_images_that_are_masked_are_no_neighbours() -> None:
    detector = Top1Cosine().fit(GALLERY, LABELS)
    mask = np.array([False, True, True])
    result = open_set_answers(detector, GALLERY, LABELS, QUERIES[:1], QUERY_LABELS[:1], gallery_mask=mask)
    assert result.answers.tolist() == [[2, 10]]
    assert result.known.tolist() == [[False, True]]


class FirstNumber(Detector):
    """A score that is no score of neighbours: the first number of an embedding, or NaN above 0.99."""

    name = "first_number"

    def state(self) -> dict[str, torch.Tensor]:
        return {}

    def _fit(self, images: DetectorInputs) -> None:
        pass

    def _score(self, images: DetectorInputs) -> Any:
        first = images.embeddings[:, 0].numpy()
        return np.where(first > 0.99, np.nan, first)

    def _restore(self, state: Any) -> None:
        pass


def test_other_scores_answer_with_the_nearest_image() -> None:
    detector = FirstNumber().fit(GALLERY)
    result = open_set_answers(detector, GALLERY, LABELS[:, 0], QUERIES[2:], QUERY_LABELS[2:, 0])
    assert result.scores.tolist() == [0.15, 0.5]
    assert result.answers.tolist() == [[3], [2]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"query_labels": QUERY_LABELS[:, 0]}, "the labels of queries have 1 levels and those of the gallery 2"),
        (
            {"query_labels": QUERY_LABELS[:2]},
            r"the query labels have the shape \(2, 2\).* expected integers of .*4, L",
        ),
        ({"gallery_labels": LABELS / 2}, "the gallery labels have .* the type float64"),
        ({"detector": Top1Cosine().fit(QUERIES)}, "the 4 embeddings that it was fitted on, which are not the 3"),
        ({"detector": FirstNumber().fit(GALLERY)}, "2 of 4 rejection scores are NaN, the first that of query 0"),
        ({"excluded": RaggedIndices.from_lists([[0, 1, 2], [], [], []])}, "no gallery image is left for query 0"),
        (
            {"detector": FirstNumber().fit(GALLERY), "excluded": RaggedIndices.from_lists([[0], [], [], []])},
            "not ranked for every query, such as image 0 for query 0, and the score would know",
        ),
    ],
)
def test_wrong_inputs_get_one_clear_line(arguments: dict[str, Any], message: str) -> None:
    defaults: dict[str, Any] = {
        "detector": Top1Cosine().fit(GALLERY, LABELS),
        "gallery": GALLERY,
        "gallery_labels": LABELS,
        "queries": QUERIES,
        "query_labels": QUERY_LABELS,
    }
    with pytest.raises(InputError, match=message):
        open_set_answers(**(defaults | arguments))

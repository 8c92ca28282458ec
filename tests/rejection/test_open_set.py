"""Answers to known, near and far queries against plain loops, and what is refused."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgld.errors import InputError
from hgld.rejection.detector import Detector, DetectorInputs
from hgld.rejection.neighbours import Top1Cosine
from hgld.rejection.open_set import ScoredAnswers, answer_queries, open_set_answers

GALLERY = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
LABELS = np.array([[1, 10], [2, 10], [3, 11]])
# A known query, a near one whose group is in the gallery, one whose group is not, and a far one.
QUERIES = np.array([[1.0, 0.1], [1.0, 0.2], [0.15, 1.0], [0.5, 0.5]])
QUERY_LABELS = np.array([[1, 10], [7, 10], [8, 12], [-1, -1]])


def answers() -> ScoredAnswers:
    return open_set_answers(Top1Cosine().fit(GALLERY, LABELS), GALLERY, LABELS, QUERIES, QUERY_LABELS)


def test_near_queries_may_be_right_at_a_coarser_level() -> None:
    result = answers()
    gallery, queries = torch.from_numpy(GALLERY), torch.from_numpy(QUERIES)
    labels, _ = answer_queries(Top1Cosine().fit(GALLERY, LABELS), gallery, LABELS, queries)
    assert labels.tolist() == [[1, 10], [1, 10], [3, 11], [2, 10]]
    assert result.right.tolist() == [[True, True], [False, True], [False, False], [False, False]]
    assert result.known.tolist() == [[True, True], [False, True], [False, False], [False, False]]
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


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_answers_agree_with_loops(seed: int, n_levels: int) -> None:
    rng = np.random.default_rng(seed)
    gallery, queries = rng.normal(size=(rng.integers(2, 9), 3)), rng.normal(size=(rng.integers(1, 9), 3))
    labels, own = (rng.integers(3, size=(len(images), n_levels)) for images in (gallery, queries))
    labels[rng.random(len(labels)) < 0.3], own[rng.random(len(own)) < 0.3] = -1, -1
    mask = np.arange(len(gallery)) != rng.integers(len(gallery))
    result = open_set_answers(Top1Cosine().fit(gallery, labels), gallery, labels, queries, own, gallery_mask=mask)
    for i, query in enumerate(queries):
        cosines = {
            j: item @ query / np.linalg.norm(item) / np.linalg.norm(query)
            for j, item in enumerate(gallery)
            if mask[j]
        }
        nearest = max(cosines, key=lambda j: cosines[j])
        assert result.scores[i] == pytest.approx(-cosines[nearest], abs=1e-12)
        for level in range(n_levels):
            label = own[i, level]
            assert result.right[i, level] == (label != -1 and labels[nearest, level] == label)
            assert result.known[i, level] == (label != -1 and label in labels[mask, level])


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
    detector, queries = FirstNumber().fit(GALLERY), torch.from_numpy(QUERIES[2:])
    labels, scores = answer_queries(detector, torch.from_numpy(GALLERY), LABELS[:, :1], queries)
    assert scores.tolist() == [[0.15], [0.5]]
    assert labels.tolist() == [[3], [2]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"detector": Top1Cosine().fit(QUERIES)}, "the 4 embeddings that it was fitted on, which are not the 3"),
        ({"detector": FirstNumber().fit(GALLERY)}, "2 of 4 rejection scores are NaN, the first that of query 0"),
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


def test_answers_can_be_joined() -> None:
    known, far = (answers().take(np.arange(4) == row) for row in (0, 3))
    both = known.joined(far)
    assert both.scores.tolist() == answers().scores[[0, 3]].tolist()
    assert both.known[:, 0].tolist() == [True, False]

"""Scores of neighbours, compared with slow obvious counts over single images."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.errors import ConfigurationError, InputError
from hgld.hierarchy import vote
from hgld.ragged import RaggedIndices
from hgld.rejection import Detector, NeighbourDetector, build_detector, neighbours
from hgld.rejection.neighbours import ClassMeans, DistractorPenalty, LevelAgreement, Margin, SoftVote

Floats = npt.NDArray[Any]
SEEDS = st.integers(0, 10_000)
few_examples = settings(max_examples=25)


def random_index(seed: int, n: int, *, n_landmarks: int = 4) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return vectors of few small integers, many of them equal or parallel, and labels of landmark and group.

    Some images are unlabelled, but two landmarks are there.
    """
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-1, 3, (n, 3)).astype(np.float64)
    vectors[(vectors == 0).all(axis=1)] = 1.0
    landmarks = rng.integers(-1, n_landmarks, n)
    landmarks[:2] = 0, 1
    return vectors, np.stack([landmarks, np.where(landmarks < 0, -1, landmarks // 2)], axis=1)


def found(seed: int, detector: NeighbourDetector, n: int = 6) -> tuple[Floats, npt.NDArray[np.int64], torch.Tensor]:
    """Return cosines that are multiples of 1/16, ties among them, and positions in the index as neighbours."""
    rng = np.random.default_rng(seed)
    k, size = detector.n_neighbours, len(detector.index)
    cosines, positions = np.full((n, k), np.nan), np.full((n, k), -1)
    for row in range(n):
        count = min(k, size)
        cosines[row, :count] = np.sort(rng.integers(-16, 17, count))[::-1] / 16
        positions[row, :count] = rng.permutation(size)[:count]
    return cosines, positions, torch.ones(n, 3)


def cosine(a: Floats, b: Floats) -> float:
    return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))


@few_examples
@given(seed=SEEDS, k=st.integers(1, 12), n=st.integers(2, 10))
def test_soft_votes_are_sums_over_landmarks(seed: int, k: int, n: int) -> None:
    index, labels = random_index(seed, n)
    detector = SoftVote(k).fit(index, labels)
    cosines, positions, queries = found(seed, detector)
    answers = detector.answers(cosines, positions)
    scores = detector.score_neighbours(cosines, positions, queries)
    for row in range(len(cosines)):
        sums: dict[tuple[int, int], float] = {}
        for value, position in zip(cosines[row], positions[row], strict=True):
            if position >= 0 and labels[position, 0] >= 0:
                landmark = (int(labels[position, 0]), int(labels[position, 1]))
                sums[landmark] = sums.get(landmark, 0.0) + value
        best = max(sums, key=lambda landmark: sums[landmark], default=(-1, -1))  # of equal ones the nearest
        assert scores[row] == pytest.approx(-sums.get(best, 0.0))
        assert tuple(answers[row]) == best  # sums of 16ths are exact


@few_examples
@given(seed=SEEDS, k=st.integers(1, 12), n=st.integers(2, 10))
def test_agreements_are_shares_of_all_neighbours(seed: int, k: int, n: int) -> None:
    index, labels = random_index(seed, n)
    detector = LevelAgreement(k, temperature=0.5).fit(index, labels)
    cosines, positions, queries = found(seed, detector)
    levels = detector.score_neighbour_levels(cosines, positions, queries)
    answers = detector.answers(cosines, positions)
    for row in range(len(cosines)):
        near = [
            (math.exp(value / 0.5), labels[position].tolist())
            for value, position in zip(cosines[row], positions[row], strict=True)
            if position >= 0
        ]
        total = sum(weight for weight, _ in near)
        for column in range(2):
            agreeing = sum(weight for weight, own in near if own[0] >= 0 and own[column] == answers[row, column])
            assert levels[row, column] == pytest.approx(-agreeing / total)
    assert (levels[:, 1] <= levels[:, 0] + 1e-12).all(), "at least as many agree at a coarser level"
    np.testing.assert_array_equal(answers, vote(cosines, labels[positions], 0.5)[0])


@few_examples
@given(seed=SEEDS, k=st.integers(1, 12), n=st.integers(2, 12))
def test_margins_are_between_the_best_landmarks(seed: int, k: int, n: int) -> None:
    index, labels = random_index(seed, n)
    queries = random_index(seed + 1, 5)[0]
    detector = Margin(k).fit(index, labels)
    scores = detector.score(queries)
    for query, score in zip(queries, scores, strict=True):
        best: dict[int, float] = {}
        for vector, landmark in zip(index, labels[:, 0].tolist(), strict=True):
            if landmark >= 0:
                best[landmark] = max(best.get(landmark, -1.0), cosine(query, vector))
        first, second = sorted(best.values(), reverse=True)[:2]
        assert score == pytest.approx(second - first, abs=1e-9)


@few_examples
@given(seed=SEEDS, parts=st.booleans())
def test_margins_leave_out_what_is_excluded(seed: int, parts: bool) -> None:
    """Each image against the others, half of which are masked."""
    index, labels = random_index(seed, 10)
    vectors, mask = torch.from_numpy(index), np.arange(10) % 2 == 0
    detector = Margin(2).fit(index, labels)
    itself = RaggedIndices.identity(10)
    cosines, positions = nearest_neighbours(vectors, vectors, 2, excluded=itself, gallery_mask=mask)
    with pytest.MonkeyPatch.context() as patch:
        if parts:
            patch.setattr(neighbours, "_EXCLUDED", 1)
        completed = detector.complete_neighbours(cosines, positions, vectors, excluded=itself, gallery_mask=mask)
    scores, answers = detector.score_neighbours(*completed, vectors), detector.answers(*completed)
    for row in range(10):
        best: dict[int, float] = {}
        for other in range(0, 10, 2):
            landmark = int(labels[other, 0])
            if other != row and landmark >= 0:
                best[landmark] = max(best.get(landmark, -1.0), cosine(index[row], index[other]))
        ranked = sorted(best.values(), reverse=True)
        expected = [*ranked, -1.0][1] - ranked[0] if ranked else 0.0
        assert scores[row] == pytest.approx(expected, abs=1e-6)
        if not ranked:
            assert answers[row].tolist() == [-1, -1]
        elif len(ranked) == 1 or ranked[0] - ranked[1] > 1e-6:
            assert answers[row, 0] == max(best, key=lambda landmark: best[landmark])


@few_examples
@given(seed=SEEDS)
def test_class_means_are_means_of_directions(seed: int) -> None:
    index, labels = random_index(seed, 12)
    queries = random_index(seed + 1, 5)[0]
    means = []
    for landmark in set(labels[labels[:, 0] >= 0, 0].tolist()):
        own = [
            vector / math.sqrt(vector @ vector)
            for vector, (name, _) in zip(index, labels, strict=True)
            if name == landmark
        ]
        means.append(sum(own) / len(own))
    expected = [-max(cosine(query, mean) for mean in means if math.sqrt(mean @ mean) > 1e-9) for query in queries]
    assert ClassMeans().fit(index, labels).score(queries) == pytest.approx(expected, abs=1e-9)


def test_landmarks_whose_images_cancel_have_no_mean() -> None:
    index, labels = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0]]), np.array([5, 5, 6])
    assert ClassMeans().fit(index, labels).score(np.array([[1.0, 0.0]])).tolist() == [0.0]


@few_examples
@given(seed=SEEDS, k=st.integers(1, 12), n_distractors=st.integers(1, 5), weight=st.sampled_from([0.0, 0.5, 1.0]))
def test_distractor_penalties_are_those_of_an_obvious_search(
    seed: int, k: int, n_distractors: int, weight: float
) -> None:
    index, labels = random_index(seed, 9)
    labels[-2:] = -1
    queries = random_index(seed + 1, 4)[0]
    detector = DistractorPenalty(k, n_distractors, weight).fit(index, labels)
    vectors = torch.from_numpy(queries)
    cosines, positions = nearest_neighbours(vectors, detector.index, k)
    scores, answers = detector.score_neighbours(cosines, positions, vectors), detector.answers(cosines, positions)

    def similarity(vector: Floats) -> float:
        values = sorted((cosine(vector, index[other]) for other in np.flatnonzero(labels[:, 0] < 0)), reverse=True)
        return sum(values[:n_distractors]) / len(values[:n_distractors])

    for row, query in enumerate(queries):
        values = {
            int(position): weight * (similarity(query) + similarity(index[position])) - cosine(query, index[position])
            for position in positions[row].tolist()
            if position >= 0 and labels[position, 0] >= 0
        }
        if not values:
            assert scores[row] == pytest.approx(weight * similarity(query) + 1, abs=1e-6)
            assert answers[row].tolist() == [-1, -1]
            continue
        assert scores[row] == pytest.approx(min(values.values()), abs=1e-6)
        equal = [
            labels[position].tolist() for position, value in values.items() if value < min(values.values()) + 1e-6
        ]
        assert answers[row].tolist() in equal


@pytest.mark.parametrize("name", ["soft_vote", "level_agreement"])
def test_queries_near_unlabelled_images_only_have_no_vote(name: str) -> None:
    detector = build_detector(name, {"k": 2}).fit(np.eye(3, dtype=np.float32), np.array([-1, -1, 5]))
    assert isinstance(detector, NeighbourDetector)
    assert detector.score(np.array([[1.0, 0.5, 0.0]], np.float32)).tolist() == [0.0]
    assert detector.answers(np.array([[0.9, 0.5]]), np.array([[0, 1]])).tolist() == [[-1]]


@pytest.mark.parametrize("name", ["knn", "knn_raw"])
def test_small_distances_keep_their_digits(name: str) -> None:
    detector = build_detector(name, {"k": 1}).fit(np.eye(2))
    angles = np.array([1e-9, 1e-6, 1e-3])
    scores = detector.score(np.stack([np.cos(angles), np.sin(angles)], axis=1))
    np.testing.assert_allclose(scores, 2 * np.sin(angles / 2), rtol=1e-12)


@pytest.mark.parametrize(("name", "score"), [("top1_cosine", 1.0), ("knn", 2.0)])
def test_queries_without_neighbours_are_as_unlike_as_opposite_directions(name: str, score: float) -> None:
    detector = build_detector(name).fit(np.eye(3, dtype=np.float32))
    assert isinstance(detector, NeighbourDetector)
    cosines = np.array([[1.0, 0.0, 0.0], [np.nan] * 3, [-1.0, np.nan, np.nan]], np.float32)
    positions = np.array([[0, 1, 2], [-1] * 3, [0, -1, -1]])
    queries = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [-1.0, 0.0, 0.0]])
    scores = detector.score_neighbours(cosines, positions, queries)
    assert scores.dtype == np.float32
    assert scores[1:].tolist() == [score, score]
    assert scores[0] < score


@pytest.mark.parametrize(
    ("detector", "labels", "message"),
    [
        (Margin(), [5, 5, -1], "1 of them; expected at least 2"),
        (Margin(), [-1, -1, -1], "0 of them; expected at least 2"),
        (ClassMeans(), [-1, -1, -1], "0 of 3 images have `labels`"),
        (DistractorPenalty(), [5, 6, 7], "0 of 3 images have it; append distractors"),
        (DistractorPenalty(), [-1, -1, -1], "3 of 3 images have it"),
    ],
)
def test_indices_that_cannot_be_fitted_are_refused(detector: Detector, labels: Sequence[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        detector.fit(np.eye(3), np.array(labels))


def test_images_without_direction_are_refused() -> None:
    with pytest.raises(InputError, match="first in row 1"):
        ClassMeans().fit(np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([5, 6]))


def test_answers_without_labels_are_refused() -> None:
    detector = build_detector("top1_cosine").fit(np.eye(3))
    assert isinstance(detector, NeighbourDetector)
    with pytest.raises(ConfigurationError, match="without `labels`"):
        detector.answers(np.ones((1, 1)), np.zeros((1, 1), np.int64))

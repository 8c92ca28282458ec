import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hgld.completion import classifier
from hgld.completion.classifier import GroupVotes, References, fit_calibration, vote
from hgld.completion.inputs import Photographs, Vectors

N_GROUPS = 4


def photographs(vectors: NDArray[np.float32], landmark: NDArray[np.int64]) -> Photographs:
    return Photographs(Vectors.of(torch.from_numpy(vectors)), landmark)


def references(vectors: NDArray[np.float32], item: NDArray[np.int64], *, are_landmarks: bool = True) -> References:
    n = int(item.max()) + 1
    names = [f"train/{number}" for number in range(n)]
    groups = np.arange(n) % N_GROUPS
    return References(Vectors.of(torch.from_numpy(vectors)), item, groups, names, are_landmarks)


def votes_by_hand(
    queries: Photographs, gallery: References, k: int, temperature: float
) -> tuple[dict[int, list[float]], dict[int, list[int]]]:
    """Votes by landmark and its nearest items, one photograph and one reference at a time."""
    votes: dict[int, list[float]] = {}
    best: dict[int, dict[int, float]] = {}
    for row, landmark in enumerate(queries.landmark.tolist()):
        query = queries.vectors.unit(slice(row, row + 1))[0]
        scored = []
        for position, item in enumerate(gallery.item.tolist()):
            if not (gallery.are_landmarks and item == landmark):
                scored.append(
                    (-float(query @ gallery.vectors.unit(slice(position, position + 1))[0]), position, item)
                )
        nearest = sorted(scored)[:k]
        total = sum(np.exp(-score / temperature) for score, _, _ in nearest)
        row_votes = votes.setdefault(landmark, [0.0] * N_GROUPS)
        similarities = best.setdefault(landmark, {})
        for score, _, item in nearest:
            row_votes[int(gallery.groups[item])] += float(np.exp(-score / temperature) / total)
            similarities[item] = max(similarities.get(item, -1.0), -score)
    order = {landmark: sorted(items, key=lambda item: (-items[item], item))[:5] for landmark, items in best.items()}
    return votes, order


def test_groups_without_votes_are_as_likely_as_they_are_frequent() -> None:
    votes = np.array([[2.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    result = GroupVotes(np.arange(2), np.array([3, 1]), votes, np.zeros(2), pd.DataFrame())
    expected = [[2.5 / 4, 1.2 / 4, 0.3 / 4, 0], [0.5, 0.2, 0.3, 0]]
    np.testing.assert_allclose(result.probabilities(np.array([5, 2, 3, 0])), expected)
    np.testing.assert_allclose(
        result.probabilities(np.array([[5, 2, 3, 0], [4, 2, 3, 0]]))[1], [4 / 9, 2 / 9, 3 / 9, 0]
    )


@pytest.mark.parametrize("are_landmarks", [True, False])
@pytest.mark.parametrize("k", [1, 3, 100])
def test_votes_are_those_of_a_naive_count(k: int, are_landmarks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(classifier._BLOCKS, "cpu", (7, 5))
    random = np.random.default_rng(k)
    gallery = references(
        random.normal(size=(40, 6)).astype(np.float32), random.integers(0, 12, 40), are_landmarks=are_landmarks
    )
    queries = photographs(random.normal(size=(30, 6)).astype(np.float32), random.integers(0, 20, 30))
    result = vote(queries, gallery, N_GROUPS, k=k, temperature=0.1)
    votes, nearest = votes_by_hand(queries, gallery, k, 0.1)
    assert result.landmark.tolist() == sorted(votes)
    np.testing.assert_allclose(result.votes, [votes[landmark] for landmark in sorted(votes)], atol=1e-4)
    np.testing.assert_allclose(result.votes.sum(axis=1), result.photographs)
    for row, landmark in enumerate(result.landmark.tolist()):
        assert result.nearest["item"][result.nearest["row"] == row].tolist() == nearest[landmark]


@settings(max_examples=30)
@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 9))
def test_blocks_and_ties_do_not_change_votes(k: int, n_queries: int, n_references: int) -> None:
    random = np.random.default_rng(0)
    # Vectors of few directions whose products are exact, so that many similarities are equal.
    directions = np.eye(3, dtype=np.float32)
    gallery = references(directions[random.integers(0, 3, 23)], random.integers(0, 9, 23))
    queries = photographs(directions[random.integers(0, 3, 11)], random.integers(0, 9, 11))
    expected = vote(queries, gallery, N_GROUPS, k=k, temperature=0.1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(classifier._BLOCKS, "cpu", (n_queries, n_references))
        result = vote(queries, gallery, N_GROUPS, k=k, temperature=0.1)
    np.testing.assert_array_equal(result.votes, expected.votes)
    assert result.nearest.equals(expected.nearest)


def test_photographs_with_nothing_to_compare_with_do_not_vote() -> None:
    vectors = np.eye(3, dtype=np.float32)
    alone = np.zeros(3, np.int64)
    result = vote(photographs(vectors, alone), references(vectors, alone), N_GROUPS, k=2, temperature=0.1)
    assert result.photographs.tolist() == [3]
    assert not result.votes.any()
    assert result.similarity.tolist() == [0.0]
    assert not len(result.nearest)


def made_up_votes(share: NDArray[np.float64], similarity: NDArray[np.float64]) -> GroupVotes:
    n = len(share)
    return GroupVotes(
        landmark=np.arange(n),
        photographs=np.ones(n, np.int64),
        votes=np.stack([share, 1 - share], axis=1),
        similarity=similarity,
        nearest=None,  # type: ignore[arg-type]
    )


def test_scores_are_the_probability_of_being_right() -> None:
    random = np.random.default_rng(0)
    share, similarity = random.uniform(0.5, 1, 20_000), random.uniform(size=20_000)
    probability = 1 / (1 + np.exp(-(6 * share + similarity - 5)))
    votes = made_up_votes(share, similarity)
    scores = fit_calibration(votes, random.uniform(size=20_000) < probability)(votes)
    assert np.abs(scores - probability).max() < 0.03


@pytest.mark.parametrize(("right", "score"), [(True, 21 / 22), (False, 1 / 22)])
def test_one_outcome_gives_one_score(right: bool, score: float) -> None:
    votes = made_up_votes(np.linspace(0.5, 1, 20), np.full(20, 0.7))
    np.testing.assert_allclose(fit_calibration(votes, np.full(20, right))(votes), score)

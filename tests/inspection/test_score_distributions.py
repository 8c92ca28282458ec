from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.relevance import LabelJudgements
from hgld.inspection.figure_data import ScoreCounts, count_scores
from hgld.ragged import RaggedIndices

N_BINS = 20


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.integers(1, 9))
def test_each_pair_is_counted_once(seed: int, block_size: int) -> None:
    rng = np.random.default_rng(seed)
    fine = rng.integers(6, size=9)
    labels = np.stack([fine, fine // 3], axis=1)
    vectors = rng.normal(size=(9, 3))
    mask = rng.random(9) < 0.8
    histogram = count_scores(
        torch.from_numpy(vectors),
        torch.from_numpy(vectors),
        LabelJudgements(labels, labels),
        excluded=RaggedIndices.from_lists([[row] for row in range(9)]),
        gallery_mask=mask,
        n_bins=N_BINS,
        config=RankingConfig(block_size=block_size, precision="float64"),
    )
    counts = np.zeros((3, N_BINS), int)
    for a in range(9):
        for b in range(9):
            if a != b and mask[b]:
                cosine = vectors[a] @ vectors[b] / np.linalg.norm(vectors[a]) / np.linalg.norm(vectors[b])
                counts[
                    (labels[a] == labels[b]).sum(), int(np.searchsorted(histogram.edges, cosine, side="right")) - 1
                ] += 1
    np.testing.assert_array_equal(histogram.counts, counts)


def test_cosines_of_1_and_minus_1_fall_into_the_outer_bins() -> None:
    labels = np.zeros((1, 1), int)
    for sign, at in ((1.0, N_BINS - 1), (-1.0, 0)):
        vector = torch.tensor([[0.3, 0.7, 0.1]])
        histogram = count_scores(vector, sign * vector, LabelJudgements(labels, labels), n_bins=N_BINS)
        assert np.argwhere(histogram.counts).tolist() == [[1, at]]


@given(st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=3, max_size=3))
def test_separation_is_the_share_of_correctly_ordered_pairs(table: list[list[int]]) -> None:
    counts = np.array(table) + np.eye(3, 4, dtype=int)  # at least one pair at each level
    wins, n = 0.0, 0
    for fine in np.repeat(np.arange(4), counts[2]):
        for other in np.repeat(np.arange(4), counts[:2].sum(0)):
            wins += 1.0 if fine > other else 0.5 if fine == other else 0.0
            n += 1
    assert np.isclose(ScoreCounts(counts, np.linspace(-1, 1, 5)).separation(), wins / n)


def test_densities_integrate_to_one_and_are_nan_without_pairs() -> None:
    densities = ScoreCounts(np.array([[2, 0, 6], [0, 0, 0]]), np.array([-1.0, -0.5, 0.0, 1.0])).densities()
    np.testing.assert_allclose(densities[0], [0.5, 0, 0.75])
    assert np.isnan(densities[1]).all()

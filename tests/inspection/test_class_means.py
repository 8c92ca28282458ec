from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.inspection.figure_data import class_means, neighbour_agreement


def test_means_are_averages_of_directions() -> None:
    embeddings = np.array([[3.0, 0.0], [0.0, 2.0], [0.0, 0.5], [1.0, 2.0]], np.float32)
    result = class_means([(torch.from_numpy(embeddings), np.array([[7, 1], [4, 0], [7, 1], [4, 0]]))])
    assert result.labels.tolist() == [[4, 0], [7, 1]]
    np.testing.assert_allclose(result.means[1], [math.sqrt(0.5), math.sqrt(0.5)])


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 7))
def test_means_of_parts_in_blocks_equal_a_slow_loop(seed: int, max_classes: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(40, 3)).astype(np.float32)
    fine = rng.integers(-1, 6, size=40)
    labels = np.stack([fine, np.where(fine < 0, -1, fine // 2)], axis=1)
    parts = [(torch.from_numpy(vectors[rows]), labels[rows]) for rows in (slice(0, 25), slice(25, None))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hgld.evaluation.directions._BLOCK", 4)
        result = class_means(parts, max_classes=max_classes)
    present = sorted(set(fine[fine >= 0].tolist()))
    assert result.n_classes == len(present)
    assert len(result.labels) == min(max_classes, len(present))
    assert result.labels[:, 0].tolist() == sorted(set(result.labels[:, 0].tolist()) & set(present))
    for mean, (label, coarse) in zip(result.means, result.labels.tolist(), strict=True):
        assert coarse == label // 2
        total = sum(vector / np.linalg.norm(vector) for vector in vectors[fine == label].astype(float))
        np.testing.assert_allclose(mean, total / np.linalg.norm(total), atol=1e-6)


def test_neighbour_agreement_equals_a_slow_loop() -> None:
    rng = np.random.default_rng(0)
    means, categories = rng.normal(size=(15, 4)), rng.integers(5, size=15)
    units = means / np.linalg.norm(means, axis=1, keepdims=True)
    shares = []
    for row in range(15):
        others = [n for n in np.argsort(-units @ units[row]) if n != row]
        if any(categories[n] == categories[row] for n in others):
            shares.append(sum(categories[n] == categories[row] for n in others[:5]) / 5)
    assert len(shares) > 0
    assert np.isclose(neighbour_agreement(means, categories), np.mean(shares))
    with pytest.warns(UserWarning, match="none of 15 queries has a positive"):
        assert math.isnan(neighbour_agreement(means, np.arange(15)))

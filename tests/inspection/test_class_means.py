from __future__ import annotations

import math

import numpy as np

from hgld.inspection.class_means import class_means, neighbour_agreement


def test_means_are_averages_of_directions() -> None:
    embeddings = np.array([[3.0, 0.0], [0.0, 2.0], [0.0, 0.5], [1.0, 2.0]], np.float32)
    means, labels = class_means(embeddings, np.array([[7, 1], [4, 0], [7, 1], [4, 0]]))
    assert labels.tolist() == [[4, 0], [7, 1]]
    np.testing.assert_allclose(means[1], [math.sqrt(0.5), math.sqrt(0.5)])


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
    assert math.isnan(neighbour_agreement(means, np.arange(15)))

"""Metrics of resamples of landmarks, against copies of the images."""

import numpy as np
import pandas as pd
import pytest

from hgld.benchmark.rejection.values import DETECTION, METRICS, LandmarkDraws, ScoredQueries
from hgld.evaluation.recognition import recognition_values
from hgld.rejection.detection_metrics import detection_metrics


def scored(seed: int, *, ties: bool = False) -> ScoredQueries:
    rng = np.random.default_rng(seed)
    known, unknown = rng.normal(size=23), rng.normal(size=17) + 0.7
    if ties:
        known, unknown = known.round(), unknown.round()
    return ScoredQueries(known, rng.random(23) < 0.7, unknown)


def test_values_are_those_of_the_metrics() -> None:
    queries = scored(0)
    metrics = queries.metrics()
    assert tuple(metrics) == METRICS
    expected = detection_metrics(queries.known, queries.unknown)
    assert {name: metrics[name] for name in DETECTION} == {name: expected[name] for name in DETECTION}
    scores = np.concatenate([queries.known, queries.unknown])
    right = np.concatenate([queries.right, np.zeros(17, bool)])
    order = np.argsort(scores)
    values = recognition_values(np.ones(40, bool), right[order], (np.arange(40) < 23)[order])
    assert metrics["gap"] == pytest.approx(np.nanmean(values["gap"]))


@pytest.mark.parametrize("ties", [False, True])
def test_resamples_equal_metrics_of_copies_of_the_images(ties: bool) -> None:
    queries = scored(1, ties=ties)
    rng = np.random.default_rng(2)
    known, unknown = rng.integers(0, 4, size=(6, 23)), rng.integers(0, 4, size=(6, 17))
    resampled = queries.resampled_metrics(known, unknown)
    for row in range(6):
        expected = detection_metrics(np.repeat(queries.known, known[row]), np.repeat(queries.unknown, unknown[row]))
        for name in DETECTION:
            assert resampled[name][row] == pytest.approx(expected[name]), name


def test_gap_of_resamples_without_copies_is_that_of_the_drawn_images() -> None:
    queries = scored(3)
    rng = np.random.default_rng(4)
    known, unknown = rng.integers(0, 2, size=23), rng.integers(0, 2, size=17)
    drawn = ScoredQueries(
        queries.known[known == 1], queries.right[known == 1], queries.unknown[unknown == 1]
    ).metrics()
    assert queries.resampled_metrics(known[None], unknown[None])["gap"][0] == pytest.approx(drawn["gap"])


def test_images_of_a_landmark_are_drawn_together_and_sources_apart() -> None:
    table = pd.DataFrame({"source": ["index"] * 4 + ["food"] * 2, "class": ["a", "a", "b", "c", "a", "d"]})
    counts = LandmarkDraws(table, 200).counts(table)
    assert (counts[:, 0] == counts[:, 1]).all()
    assert (counts[:, [0, 2, 3]].sum(1) == 3).all()  # three landmarks are drawn
    assert (counts[:, [4, 5]].sum(1) == 2).all()
    assert (counts[:, 0] != counts[:, 4]).any()

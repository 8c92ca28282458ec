from pathlib import Path

import numpy as np
import pytest

from hgld.compute.resampling import wilson
from hgld.figures.coverage import SuggestionOutcomes, draw_reliability


def judged(score: list[float], right: list[bool]) -> SuggestionOutcomes:
    return SuggestionOutcomes("made up", np.array(score), np.array(right), dropped=np.zeros(len(score), bool))


@pytest.mark.parametrize(
    ("score", "right", "error"),
    [
        ([1.0, 0.0], [True, False], 0.0),
        ([1.0, 1.0], [True, False], 0.5),
        ([0.75, 0.75, 0.75, 0.75], [True, True, True, False], 0.0),
        ([0.95, 0.25], [True, True], (0.05 + 0.75) / 2),
    ],
)
def test_calibration_error_of_small_examples(score: list[float], right: list[bool], error: float) -> None:
    assert judged(score, right).calibration_error() == pytest.approx(error)


def test_interval_contains_the_share() -> None:
    count = np.arange(1, 200)
    for share in (np.zeros(199), np.ones(199), np.floor(count / 3) / count):
        low, high = wilson(share, count)
        assert (low <= share).all()
        assert (share <= high).all()
        assert (low >= -1e-12).all()
        assert (high <= 1 + 1e-12).all()


@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.slow), 500])
def test_reliability_is_reproducible(tmp_path: Path, n: int) -> None:
    rng = np.random.default_rng(0)
    score = rng.random(n)
    run = SuggestionOutcomes("a run", score, right=rng.random(n) < score, dropped=rng.random(n) < 0.1)
    for name in ("a.png", "b.png"):
        draw_reliability(tmp_path / name, [run, run])
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")

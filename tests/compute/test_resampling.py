"""Confidence intervals."""

import math

import numpy as np
import pytest

from hgld.compute import resampling
from hgld.compute.resampling import check_resampling, percentile_interval, resample_blocks, resampled_counts
from hgld.errors import ConfigurationError


def test_every_resample_has_as_many_items_each_equally_likely() -> None:
    codes = np.array([0, 2, 2, 1])
    counts = resampled_counts(codes, 4, 20_000, np.random.default_rng(0))
    assert (counts.sum(1) == 4).all()
    np.testing.assert_allclose(counts.mean(0), [1, 1, 2, 0], atol=0.03)
    # Variances of binomial counts.
    np.testing.assert_allclose(counts.var(0), [0.75, 0.75, 1, 0], atol=0.03)


def test_blocks_add_up_and_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resampling, "_BLOCK_SIZE", 30)
    assert list(resample_blocks(10, 7)) == [4, 4, 2]
    assert list(resample_blocks(2, 1000)) == [1, 1]
    codes = np.arange(7)
    rng = np.random.default_rng(0)
    blocks = [resampled_counts(codes, 7, rows, rng) for rows in resample_blocks(10, 7)]
    np.testing.assert_array_equal(np.vstack(blocks), resampled_counts(codes, 7, 10, np.random.default_rng(0)))


def test_intervals_leave_out_resamples_without_a_value() -> None:
    assert percentile_interval(np.array([np.nan, 1.0, 1.0]), 0.95) == (1.0, 1.0)
    assert all(map(math.isnan, percentile_interval(np.array([np.nan]), 0.95)))


@pytest.mark.parametrize(("confidence", "n_resamples"), [(0.0, 10), (1.0, 10), (0.95, 0)])
def test_wrong_settings_are_refused(confidence: float, n_resamples: int) -> None:
    with pytest.raises(ConfigurationError, match="expected 0 < confidence < 1, and 1 or more resamples"):
        check_resampling(confidence, n_resamples)

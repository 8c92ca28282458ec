"""Confidence intervals."""

import math

import numpy as np
import pytest

from hgld.compute import resampling
from hgld.compute.resampling import check_resampling, percentile_interval, resample_blocks
from hgld.errors import ConfigurationError


def test_blocks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resampling, "_BLOCK_SIZE", 30)
    assert list(resample_blocks(10, 7)) == [4, 4, 2]
    assert list(resample_blocks(2, 1000)) == [1, 1]


def test_intervals_leave_out_resamples_without_a_value() -> None:
    assert percentile_interval(np.array([np.nan, 1.0, 1.0]), 0.95) == (1.0, 1.0)
    assert all(map(math.isnan, percentile_interval(np.array([np.nan]), 0.95)))


@pytest.mark.parametrize(("confidence", "n_resamples"), [(0.0, 10), (1.0, 10), (0.95, 0)])
def test_wrong_settings_are_refused(confidence: float, n_resamples: int) -> None:
    with pytest.raises(ConfigurationError, match="expected 0 < confidence < 1, and 1 or more resamples"):
        check_resampling(confidence, n_resamples)

"""Compiled loops: called from Python and from each other, switched off, without numba, without a cache."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from hgld.compute import compiled as module
from hgld.compute.compiled import REORDER_SUMS, compiled, is_compiled

Values = np.ndarray[tuple[int], np.dtype[np.float64]]


@compiled()
def _square(value: float) -> float:
    return value * value


@compiled(fastmath=REORDER_SUMS)
def _sum_of_squares(values: Values) -> float:
    total = 0.0
    for value in values:
        total += _square(value)
    return total


@pytest.fixture
def fresh_check() -> Iterator[None]:
    """Look for numba again, during the test and after it."""
    module._numba_works.cache_clear()
    yield
    module._numba_works.cache_clear()


@pytest.mark.skipif(not is_compiled(), reason="compiled loops are switched off, or numba is missing")
def test_function_is_compiled_and_calls_another_one() -> None:
    assert _sum_of_squares(np.arange(5.0)) == 30.0
    assert _sum_of_squares._dispatcher.signatures  # type: ignore[attr-defined]


def test_loops_are_for_cpus_and_have_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_compiled(torch.device("cuda"))
    monkeypatch.setenv(module.SWITCH, "0")
    assert not is_compiled()
    assert not is_compiled(torch.device("cpu"))


def test_a_missing_numba_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fresh_check: None
) -> None:
    monkeypatch.delenv(module.SWITCH, raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    with caplog.at_level(logging.WARNING):
        assert not is_compiled()
        assert _sum_of_squares(np.arange(5.0)) == 30.0
    (record,) = caplog.records
    assert "numba" in record.getMessage()
    assert "several times as long" in record.getMessage()


@pytest.mark.skipif(not is_compiled(), reason="compiled loops are switched off, or numba is missing")
@pytest.mark.parametrize("failing", ["locator", "disk"])
def test_functions_work_where_machine_code_cannot_be_cached(
    failing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from numba.core import caching

    if failing == "locator":
        monkeypatch.setattr(caching.FunctionCache._impl_class, "_locator_classes", [])
    else:

        def save(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(caching.FunctionCache, "save_overload", save)

    @compiled()
    def double(value: float) -> float:
        return 2 * value

    assert double(1.5) == 3.0
    assert double(2.5) == 5.0

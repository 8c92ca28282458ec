"""Compiled loops: called from Python and from each other, switched off, without numba, without a cache."""

import logging
import os
import subprocess
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


@pytest.mark.parametrize("value", ["0", "false", "Off", "no"])
def test_loops_are_for_cpus_and_have_a_switch(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    assert not is_compiled(torch.device("cuda"))
    monkeypatch.setenv(module.SWITCH, value)
    assert not is_compiled()
    assert not is_compiled(torch.device("cpu"))


@pytest.mark.skipif(not is_compiled(), reason="compiled loops are switched off, or numba is missing")
def test_loops_are_not_compiled_where_numba_is_told_not_to() -> None:
    command = [sys.executable, "-c", "from hgld.compute.compiled import is_compiled; print(is_compiled())"]
    run = subprocess.run(
        command, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, check=True
    )
    assert (run.stdout, run.stderr) == ("False\n", "")


@pytest.mark.parametrize("failing", ["import", "njit"])
def test_a_numba_that_does_not_work_is_reported_once(
    failing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fresh_check: None
) -> None:
    monkeypatch.delenv(module.SWITCH, raising=False)
    if failing == "import":
        monkeypatch.setitem(sys.modules, "numba", None)
    else:

        def njit(*_: object, **__: object) -> None:
            raise AttributeError("module 'numpy' has no attribute 'trapz'")

        monkeypatch.setattr(pytest.importorskip("numba"), "njit", njit)
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


LOOPS = """
from hgld.compute.compiled import compiled

@compiled()
def inner(value):
    return 2 * value

@compiled()
def outer(value):
    return inner(value) + 1

print(outer(1.5), outer._dispatcher.stats.cache_hits)
"""


@pytest.mark.slow
@pytest.mark.skipif(not is_compiled(), reason="compiled loops are switched off, or numba is missing")
@pytest.mark.parametrize("size", [0, 30])
@pytest.mark.parametrize("name", ["*.nbi", "*.nbc"])
def test_damaged_machine_code_is_compiled_again(name: str, size: int, tmp_path: Path) -> None:
    (tmp_path / "loops.py").write_text(LOOPS)

    def run() -> str:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, str(tmp_path / "loops.py")]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert run().startswith("4.0")
    damaged = list((tmp_path / "cache").rglob(name))
    for path in damaged:
        path.write_bytes(path.read_bytes()[:size])
    assert len(damaged) == 2
    assert run().startswith("4.0")
    assert "Counter({(float64,): 1})" in run()  # and is cached again

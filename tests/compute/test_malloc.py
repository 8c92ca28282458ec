from __future__ import annotations

import platform

import pytest

from tests.child_processes import run_script


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="speaks to glibc")
def test_freed_memory_is_used_again() -> None:
    """In a process of its own, as it holds for all of it: pages that are there already need not be fetched."""
    script = """
import resource
import numpy as np
from hgld.compute.malloc import disable_trimming

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        np.ones(25_000_000)  # 200 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

without = faults()
disable_trimming()
faults()
print(without, faults())
"""
    without, with_it = map(int, run_script(script).split())
    assert with_it < without / 10

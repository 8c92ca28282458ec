import platform

import pytest

from tests.child_processes import run_script


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_freed_memory_is_reused() -> None:
    """Count page faults, in a separate process because the setting applies to a whole process."""
    script = """
import resource
import numpy as np
from hgld.compute.machine import disable_trimming

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        np.ones(5_000_000)  # 40 MB, more than glibc ever keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

default = faults()
disable_trimming()
faults()
print(default, faults())
"""
    default, without_trimming = map(int, run_script(script).split())
    assert without_trimming < default / 10

"""The machine: its description for measurements, and the cores that this process may use."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path


def describe_machine() -> str:
    """Return the processor, the number of cores, the memory and the Python version as one line."""
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.+)", cpuinfo.read_text()) if cpuinfo.exists() else []
    processor = names[0] if names else platform.processor() or platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{processor}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}"


def usable_cores() -> int:
    """Return the number of cores that this process may use, which batch systems often limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

"""Put a benchmark's table into ``benchmarks/README.md``, with the machine that it was measured on."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path

_README = Path(__file__).with_name("README.md")


def machine() -> str:
    """Processor, cores, memory and Python, in a line."""
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.+)", cpuinfo.read_text()) if cpuinfo.exists() else []
    processor = names[0] if names else platform.processor() or platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{processor}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_section(name: str, body: str) -> None:
    """Replace what stands between ``<!-- name -->`` and ``<!-- /name -->``."""
    text = _README.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    measured = f"Measured on {date.today()}: {machine()}."
    _README.write_text(f"{before}{begin}\n{body}\n\n{measured}\n{end}{after}", encoding="utf-8")

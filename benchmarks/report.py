"""Write the tables of benchmarks into ``benchmarks/README.md``, with a description of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from hgld.compute.machine import describe_machine

_README = Path(__file__).with_name("README.md")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_section(name: str, body: str) -> None:
    """Replace the text between ``<!-- name -->`` and ``<!-- /name -->``."""
    text = _README.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    measured = f"Measured on {date.today()}: {describe_machine()}."
    _README.write_text(f"{before}{begin}\n{body}\n\n{measured}\n{end}{after}", encoding="utf-8")

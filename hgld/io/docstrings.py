"""Read the descriptions of parameters in docstrings."""

from __future__ import annotations

import inspect
import re
from typing import Any


def described_parameters(source: Any) -> dict[str, str]:
    """Return the description of each parameter in the docstring of a class or function."""
    _, _, section = (inspect.getdoc(source) or "").partition("\nArgs:\n")
    arguments, _, _ = section.partition("\n\n")
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", arguments, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}

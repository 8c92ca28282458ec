"""The reference of the review page lists the keys that its script knows."""

from __future__ import annotations

import re
from pathlib import Path

from hgld.pages.templates import template_folder

_PAGE = Path(__file__).parents[3] / "docs" / "reference" / "review_page.md"
_NAMES = {"arrowdown": "↓", "arrowup": "↑", "pagedown": "Page ↓", "pageup": "Page ↑"}


def _shown(key: str) -> str:
    return " ".join(_NAMES.get(part, part.capitalize()) for part in key.split("+"))


def test_all_keys_are_documented() -> None:
    script = (template_folder("review") / "script" / "keys.js").read_text(encoding="utf-8")
    lists = re.findall(r"keys: \[((?:\"[^\"]+\"(?:, )?)+)\]", script)
    keys = {_shown(key) for text in lists for key in re.findall(r'"([^"]+)"', text)} | {"1", "9"}
    table = re.findall(r"^\| (`.+?) \| ", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {key for row in table for key in re.findall(r"`([^`]+)`", row)} == keys

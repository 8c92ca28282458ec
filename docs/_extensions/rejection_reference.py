"""Every rejection score with its options, from the registry of rejection scores."""

from __future__ import annotations

import inspect
import typing

from markdown_text import code, table
from option_tables import (
    OPTION_HEADER,
    default_text,
    description,
    parameter_meaning,
    summary,
    type_name,
)

from hgld.rejection.detector import Detector
from hgld.rejection.registry import DETECTORS


def rejection_pages() -> dict[str, str]:
    """Return the page of all rejection scores."""
    overview = [[f"[{code(name)}](#{name})", summary(score)] for name, score in DETECTORS.items()]
    parts = [
        "# Rejection scores and their options",
        "What `scores` in the [settings of a comparison of rejection scores](rejection_settings.md) name. A score is "
        "higher for images that are less like those of the index. Options are given under `options`, or in Python as "
        "arguments.",
        table(["score", "what it is"], overview),
    ]
    parts += [_section(name, score) for name, score in DETECTORS.items()]
    return {"rejection_scores.md": "\n\n".join(parts) + "\n"}


def _section(name: str, score: type[Detector]) -> str:
    hints = typing.get_type_hints(score.__init__)
    rows = [
        [
            code(key),
            code(type_name(hints[key])),
            default_text(parameter.default),
            parameter_meaning(score, key),
        ]
        for key, parameter in inspect.signature(score).parameters.items()
    ]
    options = table(OPTION_HEADER, rows) if rows else "It has no options."
    return "\n\n".join([f"## {code(name)}", description(score), options])

"""Every error that hgld raises on purpose, from its class."""

from __future__ import annotations

import inspect

from markdown_text import blocks_from_docstring, code, from_docstring, table

from hgld import errors


def error_pages() -> dict[str, str]:
    """Return the page of all errors."""
    classes = [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, Exception)
    ]
    rows = [
        [code(each.__name__), code(each.__mro__[1].__name__), from_docstring(each.__doc__ or "")]
        for each in classes
    ]
    parts = [
        "# Errors",
        blocks_from_docstring(inspect.getdoc(errors) or ""),
        table(["error", "base class", "meaning"], rows),
    ]
    return {"errors.md": "\n\n".join(parts) + "\n"}

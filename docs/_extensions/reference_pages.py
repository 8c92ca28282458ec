"""Sphinx extension that writes the reference from code and data: commands, settings, tables, errors, names, numbers.

The pages lie in docs/reference/generated and are written anew whenever the site is built, so that they cannot say
anything that the code does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from command_reference import command_pages
from error_reference import error_pages
from loss_reference import loss_pages
from preset_reference import preset_pages
from published_reference import published_pages
from python_reference import python_pages
from rejection_reference import rejection_pages
from settings_reference import settings_pages
from sphinx.application import Sphinx
from table_reference import table_pages

#: Each returns the text of pages by their names in docs/reference/generated.
WRITERS: Iterable[Callable[[], dict[str, str]]] = (
    command_pages,
    settings_pages,
    loss_pages,
    rejection_pages,
    preset_pages,
    published_pages,
    table_pages,
    error_pages,
    python_pages,
)


def write_pages(app: Sphinx) -> None:
    """Write all pages whose text has changed, and delete those that are no longer written."""
    folder = Path(app.confdir, "reference", "generated")
    folder.mkdir(exist_ok=True)
    pages = {name: text for writer in WRITERS for name, text in writer().items()}
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in folder.iterdir():
        if path.name not in pages:
            path.unlink()


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True}

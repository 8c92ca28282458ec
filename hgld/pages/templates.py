"""Templates of HTML pages, in one folder of ``hgld/templates`` for each kind of page."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

#: Folder of what all served pages have in common.
COMMON = "pages"
_TEMPLATES = Path(__file__).parents[1] / "templates"


def template_folder(name: str) -> Path:
    """Return the folder of templates, style sheets and scripts of a kind of page, such as ``review``."""
    return _TEMPLATES / name


@cache
def page_templates(name: str) -> Environment:
    """Return the templates of a kind of page and the common templates, compiled once per process.

    Values are escaped, and one that a template expects but does not get is an error. The filter
    ``count`` writes numbers with commas between thousands.

    >>> page_templates("review").from_string("<b>{{ name }}</b> {{ n|count }}").render(name="R&D", n=1200)
    '<b>R&amp;D</b> 1,200'
    """
    environment = Environment(
        loader=FileSystemLoader([template_folder(name), template_folder(COMMON)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["count"] = "{:,}".format
    return environment

"""Fixtures of the tests of the hierarchy, whose result a release publishes."""

from __future__ import annotations

from hgld.release.settings import ReleaseSettings
from tests.hierarchy.conftest import folder, write_completed, write_scraped

__all__ = ["FACTS", "folder", "write_completed", "write_scraped"]

#: Facts of a release that has nothing to do with GLDv2.
FACTS = ReleaseSettings.model_validate(
    {
        "name": "Lakes and more",
        "description": "Kinds of places: a test.",
        "creators": ["Zoë"],
        "licence": "CC0-1.0",
        "url": "https://example.org/lakes",
        "keywords": ["lakes"],
        "source": "A list of our own.",
        "ids": "Our numbers.",
        "images": "There are none: look at the categories.",
        "purpose": "To test releases.",
        "funding": "Nobody paid for it.",
        "annotators": "Two of us, unpaid.",
        "ethics": "None was needed.",
        "uses": "Nothing yet.",
        "maintenance": "Zoë, at the address above.",
    }
)

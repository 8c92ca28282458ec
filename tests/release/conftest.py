"""A release is made of what the tests of the hierarchy build."""

from __future__ import annotations

from tests.hierarchy.conftest import folder, write_scraped

__all__ = ["folder", "write_scraped"]

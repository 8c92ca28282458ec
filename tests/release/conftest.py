"""Fixtures of the tests of the hierarchy, whose result a release publishes."""

from __future__ import annotations

from tests.hierarchy.conftest import folder, write_completed, write_scraped

__all__ = ["folder", "write_completed", "write_scraped"]

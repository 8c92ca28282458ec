"""Fixtures for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data, from ``HGLD_SHARED``, else ``shared`` beside the checkout."""
    folder = Path(os.environ.get("HGLD_SHARED") or Path(__file__).parents[2] / "shared")
    if not folder.is_dir():
        pytest.skip(f"the shared data are not at {folder}; set HGLD_SHARED")
    return folder

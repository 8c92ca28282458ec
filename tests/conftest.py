"""Fixtures that several rooms share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_CHECKOUT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and reference servers: ``HGLD_SHARED``, else ``shared`` beside the checkout."""
    path = Path(os.environ.get("HGLD_SHARED", _CHECKOUT.parent / "shared"))
    if not path.is_dir():
        pytest.skip(f"no real data: {path} does not exist (set HGLD_SHARED)")
    return path

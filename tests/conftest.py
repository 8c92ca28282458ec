from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the checkout, or wherever HGLD_SHARED says."""
    path = Path(os.environ.get("HGLD_SHARED") or Path(__file__).parents[2] / "shared")
    if not path.is_dir():
        pytest.skip(f"no reference data: {path} is not there (set HGLD_SHARED)")
    return path

"""The user's folder of files that hgld can make or download again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """Return a folder in that of the environment variable HGLD_CACHE, else in ``~/.cache/hgld``; it need not exist.

    >>> cache_folder("h-gldv2").name
    'h-gldv2'
    """
    folder = os.environ.get("HGLD_CACHE")
    return (Path(folder) if folder else Path("~/.cache/hgld").expanduser()) / name

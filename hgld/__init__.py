"""Hierarchical landmark retrieval: from Wikimedia categories to labels, training and evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hgld.hierarchy import Hierarchy, load_hierarchy

__version__ = "0.1.0"
__all__ = ["Hierarchy", "__version__", "load_hierarchy"]


def __getattr__(name: str) -> Any:
    """Import what researchers use on first use: ``hgld --help`` does without numpy and Arrow."""
    if name in ("Hierarchy", "load_hierarchy"):
        from hgld import hierarchy

        return getattr(hierarchy, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Hierarchical landmark retrieval: from Wikimedia categories to labels, training and evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hgld.version import __version__

if TYPE_CHECKING:
    from hgld.evaluation import evaluate_retrieval
    from hgld.hierarchy import Hierarchy, load_hierarchy

__all__ = ["Hierarchy", "__version__", "evaluate_retrieval", "load_hierarchy"]


def __getattr__(name: str) -> Any:
    """Import what researchers use on first use: ``hgld --help`` does without numpy, Arrow and torch."""
    if name in ("Hierarchy", "load_hierarchy"):
        from hgld import hierarchy

        return getattr(hierarchy, name)
    if name == "evaluate_retrieval":
        from hgld.evaluation.evaluate_arrays import evaluate_retrieval

        return evaluate_retrieval
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

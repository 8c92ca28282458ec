"""Hierarchical landmark retrieval: from Wikimedia categories to labels, training and evaluation."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hgld.errors import HgldError
from hgld.version import __version__

if TYPE_CHECKING:
    from hgld.evaluation import RetrievalResult, evaluate_retrieval
    from hgld.hierarchy import Hierarchy, load_hierarchy

__all__ = ["HgldError", "Hierarchy", "RetrievalResult", "__version__", "evaluate_retrieval", "load_hierarchy"]

#: Imported on first use: ``hgld --help`` needs neither numpy nor Arrow nor torch.
_LAZY = {
    "Hierarchy": "hgld.hierarchy",
    "RetrievalResult": "hgld.evaluation",
    "evaluate_retrieval": "hgld.evaluation",
    "load_hierarchy": "hgld.hierarchy",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})

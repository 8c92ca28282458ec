"""Hierarchical landmark retrieval: from Wikimedia categories to labels, training and evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.errors import HgldError
from hgld.lazy import lazy_exports
from hgld.version import __version__

if TYPE_CHECKING:
    from hgld import benchmark, datasets, evaluation, hierarchy, inspection, labels, losses, models, training
    from hgld.evaluation import RetrievalResult, evaluate_retrieval
    from hgld.hierarchy import Hierarchy, load_hierarchy
    from hgld.models import load_model

__all__ = [
    "HgldError",
    "Hierarchy",
    "RetrievalResult",
    "__version__",
    "benchmark",
    "datasets",
    "evaluate_retrieval",
    "evaluation",
    "hierarchy",
    "inspection",
    "labels",
    "load_hierarchy",
    "load_model",
    "losses",
    "models",
    "training",
]

_SUBMODULES = (
    "benchmark",
    "datasets",
    "evaluation",
    "hierarchy",
    "inspection",
    "labels",
    "losses",
    "models",
    "training",
)
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Hierarchy": "hierarchy",
        "RetrievalResult": "evaluation",
        "evaluate_retrieval": "evaluation",
        "load_hierarchy": "hierarchy",
        "load_model": "models",
        **dict.fromkeys(_SUBMODULES),
    },
)

"""The hierarchy of landmarks, groups and roots: its levels, its label matrix, and how it is loaded and built.

The stage ``build`` is in :mod:`hgld.hierarchy.build`. Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.hierarchy.label_matrix import LabelMatrix, column_of, lowest_common_level, relevance
    from hgld.hierarchy.label_sets import LabelSets
    from hgld.hierarchy.label_votes import vote
    from hgld.hierarchy.load import load_hierarchy
    from hgld.hierarchy.tree import Hierarchy, Level

__all__ = [
    "Hierarchy",
    "LabelMatrix",
    "LabelSets",
    "Level",
    "column_of",
    "load_hierarchy",
    "lowest_common_level",
    "relevance",
    "vote",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Hierarchy": "tree",
        "LabelMatrix": "label_matrix",
        "LabelSets": "label_sets",
        "Level": "tree",
        "column_of": "label_matrix",
        "load_hierarchy": "load",
        "lowest_common_level": "label_matrix",
        "relevance": "label_matrix",
        "vote": "label_votes",
    },
)

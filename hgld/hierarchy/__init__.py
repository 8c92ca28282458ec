"""The hierarchy of landmarks, groups and roots: how it is built, loaded and compared, its levels and label matrix.

Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.hierarchy.build import BuildConfig, build_file
    from hgld.hierarchy.compare import compare_files
    from hgld.hierarchy.label_matrix import LabelMatrix, column_of, lowest_common_level, relevance
    from hgld.hierarchy.label_sets import LabelSets
    from hgld.hierarchy.label_votes import vote
    from hgld.hierarchy.load import load_hierarchy
    from hgld.hierarchy.stats import stats_file
    from hgld.hierarchy.tree import Hierarchy, Level
    from hgld.hierarchy.why import find_trace_sources, trace_landmark

__all__ = [
    "BuildConfig",
    "Hierarchy",
    "LabelMatrix",
    "LabelSets",
    "Level",
    "build_file",
    "column_of",
    "compare_files",
    "find_trace_sources",
    "load_hierarchy",
    "lowest_common_level",
    "relevance",
    "stats_file",
    "trace_landmark",
    "vote",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "BuildConfig": "build",
        "Hierarchy": "tree",
        "LabelMatrix": "label_matrix",
        "LabelSets": "label_sets",
        "Level": "tree",
        "build_file": "build",
        "column_of": "label_matrix",
        "compare_files": "compare",
        "find_trace_sources": "why",
        "load_hierarchy": "load",
        "lowest_common_level": "label_matrix",
        "relevance": "label_matrix",
        "stats_file": "stats",
        "trace_landmark": "why",
        "vote": "label_votes",
    },
)

"""The hierarchy of landmarks, groups and roots: its levels, its label matrix, and how it is loaded and built.

The stage ``build`` is in :mod:`hgld.hierarchy.build`; it is not imported here, so that loading stays light.
"""

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

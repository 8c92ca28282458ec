"""The product: landmarks, the groups and roots above them, and how near two landmarks are to each other."""

from hgld.hierarchy.label_matrix import LabelMatrix, column_of, lowest_common_level, relevance
from hgld.hierarchy.load import load_hierarchy
from hgld.hierarchy.tree import Hierarchy, Level

__all__ = [
    "Hierarchy",
    "LabelMatrix",
    "Level",
    "column_of",
    "load_hierarchy",
    "lowest_common_level",
    "relevance",
]

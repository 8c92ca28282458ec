"""Batch samplers: which images form a batch.

A sampler is a pure function of its seed and the number of the epoch: every process computes the same batches, and
takes its share of each. Labels are those of a manifest, numbered from 0 in each column; classes are those of column
0, the finest level.
"""

from hgld.datasets.samplers.base import BatchSampler, SmallClasses, epoch_generator, log_small_classes
from hgld.datasets.samplers.class_balanced import ClassBalancedSampler
from hgld.datasets.samplers.hierarchical import HierarchicalSampler
from hgld.datasets.samplers.label_sets import LabelSetSampler

__all__ = [
    "BatchSampler",
    "ClassBalancedSampler",
    "HierarchicalSampler",
    "LabelSetSampler",
    "SmallClasses",
    "epoch_generator",
    "log_small_classes",
]

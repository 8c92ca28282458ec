"""Labels of landmarks that are in several groups, from a hierarchy built with ``hgld build --multi``."""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt

from hgld.hierarchy.checks import GROUP
from hgld.hierarchy.label_sets import LabelSets
from hgld.hierarchy.tree import Hierarchy

log = logging.getLogger(__name__)


def landmark_label_sets(
    hierarchy: Hierarchy, landmark_ids: npt.NDArray[np.int64], split: str | None = None
) -> LabelSets:
    """Return a label for each group of each landmark: the landmark, the group and the levels above it.

    A further group that is the first one of no landmark is excluded with a warning: the table of a hierarchy says
    what is above the first groups only.

    Args:
        hierarchy: Hierarchy with :attr:`Hierarchy.hierarchical_labels`.
        landmark_ids: int64, shape (n,); in any order and with repetitions, such as one per image.
        split: Split of the landmarks; may be omitted if the hierarchy has only one.

    Returns:
        Label sets of n images; empty for landmarks that are not in the hierarchy.
    """
    assert hierarchy.hierarchical_labels is not None
    column = hierarchy.column(GROUP)
    group_codes = {name: code for code, name in enumerate(hierarchy.names(GROUP))}
    codes, first = np.unique(hierarchy.labels[:, column], return_index=True)
    above = dict(zip(codes.tolist(), hierarchy.labels[first, column:], strict=True))
    known = hierarchy.contains(landmark_ids, split)
    own = np.empty((0, hierarchy.n_levels), np.int64)
    labels = [own] * len(landmark_ids)
    by_landmark: dict[int, npt.NDArray[np.int64]] = {}
    unknown: set[str] = set()
    for image, row in zip(
        np.flatnonzero(known).tolist(), hierarchy.labels_of(landmark_ids[known], split), strict=True
    ):
        landmark = int(row[0])
        if landmark not in by_landmark:
            groups = hierarchy.hierarchical_labels[landmark]
            unknown.update(group for group in groups if group not in group_codes)
            by_landmark[landmark] = np.array(
                [[landmark, *above[group_codes[group]]] for group in groups if group in group_codes]
            )
        labels[image] = by_landmark[landmark]
    if unknown:
        log.warning(
            "%d groups are excluded from the labels, as they are the first group of no landmark: %s",
            len(unknown),
            ", ".join(sorted(unknown)),
        )
    return LabelSets.from_rows(np.concatenate(labels), np.array([len(each) for each in labels]))

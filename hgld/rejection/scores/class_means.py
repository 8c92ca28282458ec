"""Cosine to the nearest class mean."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from hgld.compute.dtypes import at_least_float32
from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.errors import InputError
from hgld.hierarchy.label_matrix import labelled_rows
from hgld.rejection.detector import Detector, Input, Scores, scoring_config
from hgld.rejection.inputs import DetectorInputs

_BLOCK = 8192
#: Length below which the mean of vectors of length 1 is rounding.
_NO_DIRECTION = 1e-6


class ClassMeans(Detector):
    """The negative cosine of an image to the nearest mean of a landmark's images, each scaled to length 1 before.

    Comparing with one vector per landmark instead of with every image takes less time and memory. Unlabelled images
    are left out, and so are landmarks whose images cancel each other, as two opposite ones do.

    >>> index = np.array([[1.0, 0.0], [0.0, 3.0], [-1.0, 0.0]])
    >>> ClassMeans().fit(index, np.array([7, 7, 4])).score(np.array([[1.0, 1.0], [0.0, 1.0]])).round(2).tolist()
    [-1.0, -0.71]
    """

    name = "class_means"
    requires = frozenset[Input]({"labels"})
    means: torch.Tensor

    def state(self) -> dict[str, torch.Tensor]:
        """Return the means, of length 1."""
        return {"means": self.means}

    def _fit(self, images: DetectorInputs) -> None:
        assert images.labels is not None
        labelled = np.flatnonzero(labelled_rows(images.labels))
        names, codes = np.unique(images.labels[labelled, 0], return_inverse=True)
        sums = torch.zeros(len(names), self.dim, dtype=torch.float64)
        for start in range(0, len(labelled), _BLOCK):
            block = slice(start, start + _BLOCK)
            vectors = images.embeddings[torch.from_numpy(labelled[block])].double()
            lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
            if not lengths.all():
                row = int(labelled[start + int((lengths == 0).nonzero()[0, 0])])
                raise InputError(f"`embeddings` have only zeros, first in row {row:,}; embed this image again")
            sums.index_add_(0, torch.from_numpy(codes[block]), vectors / lengths)
        means = sums / torch.from_numpy(np.bincount(codes, minlength=len(names)))[:, None]
        lengths = torch.linalg.vector_norm(means, dim=1, keepdim=True)
        means = (means / lengths)[lengths[:, 0] > _NO_DIRECTION]
        if not len(means):
            raise InputError(
                f"the score {self.name} has no mean of any landmark: {len(labelled):,} of {len(images):,} images "
                "have `labels` of 0 or more; give the landmarks of the index"
            )
        self.means = means.to(at_least_float32(images.embeddings[:0]).dtype)

    def _score(self, images: DetectorInputs) -> Scores:
        cosines, _ = nearest_neighbours(images.embeddings, self.means, 1, config=scoring_config(images.embeddings))
        return -cosines[:, 0]

    def _restore(self, state: Mapping[str, torch.Tensor]) -> None:
        self.means = state["means"]

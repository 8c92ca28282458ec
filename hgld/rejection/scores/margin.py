"""Margin of the best landmark over the best of another landmark."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from hgld.compute.nearest_neighbours import nearest_neighbours
from hgld.errors import InputError
from hgld.hierarchy.label_matrix import LabelMatrix, labelled_rows
from hgld.hierarchy.label_votes import labelled_neighbours
from hgld.ragged import RaggedIndices
from hgld.rejection.detector import Cosines, Input, NeighbourDetector, Positions, Scores, scoring_config
from hgld.rejection.inputs import DetectorInputs
from hgld.rejection.option_checks import check_at_least_1

_EXCLUDED = 2**24  # images that one search excludes, over all of its queries


class Margin(NeighbourDetector):
    """The cosine to the nearest image of any other landmark, minus that to the nearest image, its landmark's.

    The margin is exact. Where all k neighbours of a query show one landmark, the nearest image of another one is
    searched for as well, which takes another pass over the index: complete the neighbours of many queries at once.
    Unlabelled images are of no landmark, and left out. The answer is the landmark of the nearest labelled image.

    Args:
        k: Number of neighbours to look for another landmark in first; it changes the time, not the score.

    >>> index, labels = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]]), np.array([7, 7, 4])
    >>> Margin().fit(index, labels).score(np.array([[1.0, 0.0]])).round(2).tolist()
    [-0.4]
    """

    name = "margin"
    requires = frozenset[Input]({"labels"})

    def __init__(self, k: int = 10) -> None:
        check_at_least_1(k=k)
        self.k = k

    @property
    def n_neighbours(self) -> int:
        """``k``."""
        return self.k

    def score_neighbours(self, cosines: Cosines, positions: Positions, queries: torch.Tensor) -> Scores:
        """Return the negative margins of completed neighbours.

        Where there is no image of another landmark, or of any landmark, because all others are excluded, its cosine
        counts as -1.
        """
        first, second = self._best_two(cosines, positions)
        padded = np.concatenate([cosines, np.full((len(cosines), 1), -1, cosines.dtype)], axis=1)
        rows = np.arange(len(cosines))
        scores: Scores = padded[rows, second] - padded[rows, first]
        return scores

    def answers(self, cosines: Cosines, positions: Positions) -> LabelMatrix:
        """Return the labels of the nearest labelled image; -1 if there is none."""
        labels = self._neighbour_labels(positions)
        none = np.full((len(labels), 1, self.n_levels), -1)
        best = self._best_two(cosines, positions)[0]
        answers: LabelMatrix = np.concatenate([labels, none], axis=1)[np.arange(len(labels)), best]
        return answers

    def complete_neighbours(
        self,
        cosines: Cosines,
        positions: Positions,
        queries: torch.Tensor,
        *,
        excluded: RaggedIndices | None = None,
        gallery_mask: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[Cosines, Positions]:
        """Add the nearest labelled image, and the nearest of another landmark, where they are not among the first k.

        See :meth:`hgld.rejection.detector.NeighbourDetector.complete_neighbours`.
        """
        assert self.labels is not None
        labelled = labelled_rows(self.labels)
        mask = labelled if gallery_mask is None else labelled & gallery_mask
        excluded = RaggedIndices.empty(len(queries)) if excluded is None else excluded
        has_more = ~np.isnan(cosines[:, -1])
        first, second = self._best_two(cosines, positions)
        rows = np.flatnonzero(has_more & (first == cosines.shape[1]))
        if len(rows):
            added = self._search(queries[rows], excluded.take(rows), mask)
            cosines, positions = _with_column(cosines, positions, rows, added)
            first, second = self._best_two(cosines, positions)
        width = cosines.shape[1]
        rows = np.flatnonzero(has_more & (first < width) & (second == width))
        if len(rows):
            codes, images = _images_by_code(self.labels[:, 0])
            own = codes[positions[rows, first[rows]]]
            n_parts = min(-(-int(images.counts()[own].sum()) // _EXCLUDED), len(rows))
            for part in np.array_split(np.arange(len(rows)), n_parts):
                also_excluded = excluded.take(rows[part]) | images.take(own[part])
                added = self._search(queries[rows[part]], also_excluded, mask)
                cosines, positions = _with_column(cosines, positions, rows[part], added)
        return cosines, positions

    def _fit(self, images: DetectorInputs) -> None:
        super()._fit(images)
        assert self.labels is not None
        landmarks = self.labels[labelled_rows(self.labels), 0]
        if not len(landmarks) or (landmarks == landmarks[0]).all():
            raise InputError(
                f"the score {self.name} compares landmarks, and `labels` have {min(len(landmarks), 1)} of them; "
                "expected at least 2"
            )

    def _best_two(self, cosines: Cosines, positions: Positions) -> tuple[Positions, Positions]:
        """Return the columns of the nearest labelled image and of the nearest of another landmark; k for none."""
        labels = self._neighbour_labels(positions)
        labelled, landmarks = labelled_neighbours(cosines, labels), labels[..., 0]
        best = labelled.argmax(axis=1)
        others = labelled & (landmarks != landmarks[np.arange(len(best)), best][:, None])
        k = cosines.shape[1]
        return np.where(labelled.any(axis=1), best, k), np.where(others.any(axis=1), others.argmax(axis=1), k)

    def _search(
        self, queries: torch.Tensor, excluded: RaggedIndices, mask: npt.NDArray[np.bool_]
    ) -> tuple[Cosines, Positions]:
        return nearest_neighbours(
            queries, self.index, 1, excluded=excluded, gallery_mask=mask, config=scoring_config(queries)
        )


def _with_column(
    cosines: Cosines, positions: Positions, rows: Positions, added: tuple[Cosines, Positions]
) -> tuple[Cosines, Positions]:
    """Return neighbours with one more column, which is missing in all rows but some."""
    more_cosines, more_positions = np.full((len(cosines), 1), np.nan, cosines.dtype), np.full((len(cosines), 1), -1)
    more_cosines[rows], more_positions[rows] = added
    return np.concatenate([cosines, more_cosines], axis=1), np.concatenate([positions, more_positions], axis=1)


def _images_by_code(labels: npt.NDArray[np.int64]) -> tuple[Positions, RaggedIndices]:
    """Return labels renumbered from 0, int64, shape (N,), and the positions of the images of each."""
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return codes, RaggedIndices(offsets, np.argsort(codes, kind="stable"))

"""Local features of images: SIFT keypoints, matched and verified by an affine map, for re-ranking."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from hgld.errors import InputError
from hgld.inspection.photos import FindImage
from hgld.io.images import upright_rgb
from hgld.resources import import_extra

#: Positions in pixels, float32, shape (n, 2), and descriptors, shape (n, 128): whole numbers below 256.
Keypoints = tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]

#: Largest ratio of the distances to the best and to the second best match (Lowe, IJCV 2004).
_RATIO = 0.8
#: Largest distance in pixels of a verified match from its place by the affine map.
_TOLERANCE = 8.0
#: Least number of verified matches that counts: fewer occur by chance between photographs of different landmarks.
_LEAST_VERIFIED = 12


class LocalFeatures:
    """Scorer of pairs of images by their local features; see :class:`~hgld.evaluation.reranking.PairScorer`.

    A score is the number of mutual matches of SIFT keypoints that pass the ratio test (Lowe, IJCV 2004) and agree
    with one affine map from the query to the candidate, found by RANSAC. Fewer than 12 count as 0, so that such
    candidates stay in their order. Keypoints are computed once for each image, and kept: 136 bytes each.

    Args:
        query_image: Finds the photograph of a query by its id.
        gallery_image: Finds the photograph of a gallery image by its id. Default: ``query_image``.
        size: Pixels of the longer side that larger photographs are shrunk to.
        n_keypoints: Number of keypoints per photograph, the strongest.

    Raises:
        ConfigurationError: OpenCV is not installed.
    """

    def __init__(
        self,
        query_image: FindImage,
        gallery_image: FindImage | None = None,
        *,
        size: int = 512,
        n_keypoints: int = 1000,
    ) -> None:
        self._cv2, self._lock = import_extra("cv2", "local-features", name="OpenCV"), Lock()
        self._size, self._n_keypoints = size, n_keypoints
        self._of_query = cache(lambda image_id: self._keypoints(query_image, image_id))
        self._of_item = self._of_query
        if gallery_image is not None:
            self._of_item = cache(lambda image_id: self._keypoints(gallery_image, image_id))

    def scores(self, query: Any, candidates: Sequence[Any] | npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the number of verified matches of a query with each candidate.

        Raises:
            InputError: There is no photograph of one of them.
        """
        own = self._of_query(str(query))
        return np.array([self.n_verified(own, self._of_item(str(item))) for item in candidates], np.int64)

    def n_verified(self, own: Keypoints, other: Keypoints) -> int:
        """Return the number of keypoints of one image that an affine map takes to their matches in another."""
        pairs = self._matches(own[1], other[1])
        if len(pairs) < _LEAST_VERIFIED:
            return 0
        points = own[0][pairs[:, 0]], other[0][pairs[:, 1]]
        agrees = self._cv2.estimateAffine2D(*points, ransacReprojThreshold=_TOLERANCE)[1]
        n_verified = 0 if agrees is None else int(agrees.sum())
        return n_verified if n_verified >= _LEAST_VERIFIED else 0

    def _matches(self, own: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Return pairs of keypoints, shape (m, 2): nearest to each other, and the second nearest not as near."""
        if not len(own) or len(other) < 2:
            return np.empty((0, 2), np.int64)
        a, b = own.astype(np.float32), other.astype(np.float32)
        squares = (a**2).sum(1)[:, None] - 2 * a @ b.T + (b**2).sum(1)  # exact: whole numbers below 2^24
        first, second = np.partition(squares, 1, axis=1)[:, :2].T
        rows = np.flatnonzero(first < _RATIO**2 * second)
        columns = squares[rows].argmin(axis=1)
        mutual = squares[:, columns].argmin(axis=0) == rows
        return np.stack([rows[mutual], columns[mutual]], axis=1)

    def _keypoints(self, find: FindImage, image_id: str) -> Keypoints:
        with self._lock:  # a photograph may be in a tar file that is open
            image = find(image_id)
            if image is None:
                raise InputError(f"{image_id}: no photograph of this id, which local features need; check `images`")
            image = upright_rgb(image)
        image.thumbnail((self._size, self._size))
        sift = self._cv2.SIFT_create(nfeatures=self._n_keypoints)
        points, descriptors = sift.detectAndCompute(np.asarray(image.convert("L")), None)
        if descriptors is None:
            return np.empty((0, 2), np.float32), np.empty((0, 128), np.uint8)
        return np.array([point.pt for point in points], np.float32), descriptors.astype(np.uint8)

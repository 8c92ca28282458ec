"""ROxford5k and RParis6k (Radenovic et al., CVPR 2018): reader of images and of the ground truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hgld.arrays import Floats
from hgld.datasets.manifest import prefix_input_errors
from hgld.datasets.readers.base import ReaderResult, build_manifest
from hgld.datasets.readers.settings import RevisitedSettings
from hgld.errors import ConfigurationError, InputError
from hgld.io.restricted_pickle import read_pickle
from hgld.ragged import RaggedIndices

SETTINGS = ("easy", "medium", "hard")
_KINDS = ("easy", "hard", "junk")


@dataclass(frozen=True)
class Revisited(RevisitedSettings):
    """Reader of ROxford5k or RParis6k: ``gnd_roxford5k.pkl`` or ``gnd_rparis6k.pkl``.

    The images are in ``jpg``. The splits are query and gallery. A query is the part of its image that
    the ground truth gives as its box. The ground truth itself is not a label of an image: ``hgld
    evaluate`` reads it. The only level is the beginning of an image's name, the term by which it was
    once found, such as all_souls.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        if self.ground_truth is not None:
            return {"ground_truth": self.ground_truth}
        paths = sorted(root.glob("gnd_*.pkl"))
        if len(paths) > 1:
            raise InputError(
                f"{root}: has {', '.join(path.name for path in paths)}; name one as `ground_truth`"
            )
        return {"ground_truth": paths[0] if paths else root / "gnd_roxford5k.pkl"}

    def read(self, root: Path) -> ReaderResult:
        truth = read_ground_truth(self.files(root)["ground_truth"])
        names = truth.query_names + truth.gallery_names
        n_queries = len(truth.query_names)
        n_gallery = len(truth.gallery_names)
        columns = {
            "path": [f"jpg/{name}.jpg" for name in names],
            "split": ["query"] * n_queries + ["gallery"] * n_gallery,
        }
        levels = {"search_term": [name.rpartition("_")[0] or name for name in names]}
        boxes = np.concatenate([truth.boxes, np.full((n_gallery, 4), np.nan)])
        return ReaderResult(replace(build_manifest(root, columns, levels), boxes=boxes))


@dataclass(frozen=True)
class RevisitedGroundTruth:
    """Relevant and ignored gallery images of each query.

    Args:
        gallery_names: Names of the gallery images, without suffix.
        query_names: Names of the queries, without suffix.
        boxes: float64, shape (n_query, 4); the part of its image that is the query, in pixels.
        easy: Positions of the gallery images that show the landmark clearly, for each query.
        hard: Positions of the gallery images that show it under hard conditions.
        junk: Positions of the gallery images that are ignored, since it can hardly be seen.
    """

    gallery_names: tuple[str, ...]
    query_names: tuple[str, ...]
    boxes: Floats
    easy: RaggedIndices
    hard: RaggedIndices
    junk: RaggedIndices

    def positives(self, setting: str) -> RaggedIndices:
        """Return the positives of each query in a setting: ``easy``, ``medium`` or ``hard``."""
        _require_setting(setting)
        if setting == "easy":
            return self.easy
        if setting == "hard":
            return self.hard
        return self.easy | self.hard

    def ignored(self, setting: str) -> RaggedIndices:
        """Return the gallery images that are excluded from each query's ranking in a setting."""
        _require_setting(setting)
        if setting == "easy":
            return self.junk | self.hard
        if setting == "hard":
            return self.junk | self.easy
        return self.junk


def _require_setting(setting: str) -> None:
    """Raise a ConfigurationError unless a setting exists."""
    if setting not in SETTINGS:
        raise ConfigurationError(
            f'there is no setting "{setting}"; expected one of {", ".join(SETTINGS)}'
        )


def read_ground_truth(path: Path) -> RevisitedGroundTruth:
    """Read and check ``gnd_roxford5k.pkl``, ``gnd_rparis6k.pkl`` or a file of the same layout.

    It is a pickle of a dict: ``imlist`` (names of the gallery images without suffix), ``qimlist``
    (names of the queries) and ``gnd``, for each query a dict of ``easy``, ``hard``, ``junk``
    (positions in ``imlist``, from 0) and ``bbx`` (the box of the query in its image: left, top, right,
    bottom).

    Raises:
        InputError: The file has another layout, or positions are beyond the gallery or in several
            lists of a query.
    """
    content = read_pickle(path)
    with prefix_input_errors(path):
        try:
            gallery = tuple(content["imlist"])
            queries = tuple(content["qimlist"])
            entries = content["gnd"]
            boxes = np.array([entry["bbx"] for entry in entries], np.float64)
            boxes = boxes.reshape(len(queries), 4)
            positions = {kind: [np.sort(entry[kind]) for entry in entries] for kind in _KINDS}
        except (LookupError, TypeError, ValueError) as error:
            raise InputError(
                "expected a pickle of a dict with imlist, qimlist and gnd, which has easy, hard, junk and bbx of "
                f"each query ({type(error).__name__}: {error})"
            ) from error
        has_area = (boxes[:, 0] < boxes[:, 2]) & (boxes[:, 1] < boxes[:, 3])
        if not has_area.all():
            query = int(has_area.argmin())
            raise InputError(
                f"query {queries[query]}: bbx is {boxes[query].tolist()}; expected left, top, right, bottom"
            )
        lists = {kind: RaggedIndices.from_lists(positions[kind]) for kind in _KINDS}
        for kind, images in lists.items():
            images.check(len(queries), len(gallery), kind)
        truth = RevisitedGroundTruth(gallery, queries, boxes, **lists)
        distinct = truth.easy | truth.hard | truth.junk
        n_listed = truth.easy.counts() + truth.hard.counts() + truth.junk.counts()
        repeated = np.flatnonzero(distinct.counts() < n_listed)
        if len(repeated):
            raise InputError(
                f"positions of the query {queries[repeated[0]]} are repeated in {', '.join(_KINDS)}"
            )
    return truth

"""ROxford5k and RParis6k (Radenovic et al., Revisiting Oxford and Paris, CVPR 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hgld.datasets.readers.base import ReaderResult
from hgld.datasets.readers.image_files import image_file_manifest
from hgld.datasets.revisited_ground_truth import read_ground_truth
from hgld.errors import InputError


@dataclass(frozen=True)
class Revisited:
    """Reader of ``gnd_roxford5k.pkl`` or ``gnd_rparis6k.pkl``, with the images in ``jpg``.

    The splits are query and gallery. A query is the part of its image that the ground truth gives as its box. The
    ground truth itself is no label of an image: ``hgld evaluate`` reads it. The only level is the beginning of an
    image's name, the term by which it was once found, such as all_souls.

    Args:
        ground_truth: Ground truth. By default, the only gnd_*.pkl in the folder.
    """

    ground_truth: Path | None = None

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        if self.ground_truth is not None:
            return {"ground_truth": self.ground_truth}
        found = sorted(root.glob("gnd_*.pkl"))
        if len(found) > 1:
            raise InputError(f"{root}: has {', '.join(path.name for path in found)}; name one as `ground_truth`")
        return {"ground_truth": found[0] if found else root / "gnd_roxford5k.pkl"}

    def read(self, root: Path) -> ReaderResult:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        (path,) = self.files(root).values()
        truth = read_ground_truth(path)
        names = [*truth.query_names, *truth.gallery_names]
        n_queries, n_gallery = len(truth.query_names), len(truth.gallery_names)
        manifest = image_file_manifest(
            root,
            [f"jpg/{name}.jpg" for name in names],
            ["query"] * n_queries + ["gallery"] * n_gallery,
            {"search_term": [name.rpartition("_")[0] or name for name in names]},
        )
        boxes = np.concatenate([truth.boxes, np.full((n_gallery, 4), np.nan)])
        return ReaderResult(replace(manifest, boxes=boxes))

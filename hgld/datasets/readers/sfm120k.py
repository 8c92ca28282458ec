"""SfM-120k (Radenovic et al., Fine-tuning CNN Image Retrieval with No Human Annotation, TPAMI 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hgld.datasets.readers.base import ReaderResult
from hgld.datasets.readers.image_files import image_file_manifest
from hgld.errors import InputError
from hgld.io.restricted_pickle import as_array, read_pickle


@dataclass(frozen=True)
class Sfm120k:
    """Reader of ``retrieval-SfM-120k.pkl``; the only level is the cluster, a 3D model of a landmark.

    The pickle has ``train`` and ``val``, each with ``cids``, names of images, and ``cluster``, a number for each; the
    image ``…abcdef`` is ``ims/ef/cd/ab/…abcdef``.
    """

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        return {"images": root / "retrieval-SfM-120k.pkl"}

    def read(self, root: Path) -> ReaderResult:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        (path,) = self.files(root).values()
        contents = read_pickle(path)
        paths, splits, clusters = [], [], []
        try:
            for split in ("train", "val"):
                names, numbers = (_as_list(contents[split][key]) for key in ("cids", "cluster"))
                if len(names) != len(numbers):
                    raise ValueError(f"{len(names):,} cids, but {len(numbers):,} values of cluster, in {split}")
                paths += [f"ims/{name[-2:]}/{name[-4:-2]}/{name[-6:-4]}/{name}" for name in names]
                clusters += [str(int(number)) for number in numbers]
                splits += [split] * len(names)
        except (ValueError, LookupError, TypeError) as error:
            raise InputError(
                f"{path}: expected train and val, each with cids and cluster ({type(error).__name__}: {error})"
            ) from error
        return ReaderResult(image_file_manifest(root, paths, splits, {"cluster": clusters}))


def _as_list(values: Any) -> list[Any]:
    array = as_array(values)
    return list(values) if array is None else list(array.tolist())

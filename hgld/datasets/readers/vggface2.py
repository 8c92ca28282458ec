"""VGGFace2 (Cao et al., FG 2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hgld.datasets.readers.base import ReaderResult
from hgld.datasets.readers.face_boxes import PUBLISHED_MARGIN, check_margin, extended_box
from hgld.datasets.readers.image_files import image_file_manifest
from hgld.datasets.readers.text_lists import read_text_list
from hgld.errors import InputError, indented_list
from hgld.io.columns import read_text_columns
from hgld.io.images import Box

_SPLITS = ("train", "test")


@dataclass(frozen=True)
class VggFace2:
    """Reader of ``train_list.txt`` and ``test_list.txt``, in the folder or ``meta``; identities are the only level.

    Lines are paths such as ``n000002/0001_01.jpg`` below ``train`` or ``test``, whose folder names the identity. The
    faces are those of ``bb_landmark/loose_bb_train.csv`` and ``loose_bb_test.csv`` (NAME_ID, X, Y, W, H); each box is
    extended by the margin.

    Args:
        margin: What is added to width and height of a face's box, as a share of them.
        whole: Take the images as they are, which show more than the face, instead of boxes.
        only_test: Leave out the training images.

    Raises:
        ConfigurationError: ``margin`` is below 0.
    """

    margin: float = PUBLISHED_MARGIN
    whole: bool = False
    only_test: bool = False

    def __post_init__(self) -> None:
        check_margin(self.margin)

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        splits = _SPLITS[1:] if self.only_test else _SPLITS
        names = {split: f"{split}_list.txt" for split in splits}
        if not self.whole:
            names |= {f"boxes/{split}": f"bb_landmark/loose_bb_{split}.csv" for split in splits}
        return {role: _in_root_or_meta(root, name) for role, name in names.items()}

    def read(self, root: Path) -> ReaderResult:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        files = self.files(root)
        paths, splits, identities, boxes = [], [], [], []
        for split in (role for role in files if role in _SPLITS):
            (images,) = read_text_list(files[split], ("path",))
            if odd := [image for image in images if image.count("/") != 1]:
                raise InputError(
                    f"{files[split]}: expected paths such as n000002/0001_01.jpg:\n{indented_list(odd, limit=5)}"
                )
            paths += [f"{split}/{image}" for image in images]
            splits += [split] * len(images)
            identities += [image.partition("/")[0] for image in images]
            if not self.whole:
                boxes += _boxes_of(images, files[f"boxes/{split}"], self.margin)
        manifest = image_file_manifest(root, paths, splits, {"identity": identities})
        return ReaderResult(manifest if self.whole else replace(manifest, boxes=np.array(boxes)))


def _in_root_or_meta(root: Path, name: str) -> Path:
    return root / name if (root / name).is_file() else root / "meta" / name


def _boxes_of(images: Sequence[str], path: Path, margin: float) -> list[Box]:
    """Return the extended box of each image, which the file has by its name without suffix."""
    columns = read_text_columns(path, ["NAME_ID", "X", "Y", "W", "H"])
    try:
        sides = [list(map(float, columns[name].to_pylist())) for name in "XYWH"]
    except ValueError as error:
        raise InputError(f"{path}: {error}; expected X, Y, W and H in pixels") from error
    boxes = dict(zip(columns["NAME_ID"].to_pylist(), zip(*sides, strict=True), strict=True))
    names = [image.rpartition(".")[0] for image in images]
    if missing := [name for name in names if name not in boxes]:
        raise InputError(
            f"{path}: {len(missing):,} of {len(names):,} images have no box there; take them whole with `whole`:\n"
            f"{indented_list(missing, limit=5)}"
        )
    return [extended_box(x, y, w, h, margin) for x, y, w, h in (boxes[name] for name in names)]

"""Readers of datasets of faces, with the boxes of the faces in their images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hgld.datasets.readers.base import ReaderResult, TextLayout, TextListReader, build_manifest
from hgld.errors import InputError, indented_list, require, require_at_least
from hgld.io.columns import read_text_columns

#: What the authors of VGGFace2 add to the width and height of a box: ReadMe.txt of their models.
PUBLISHED_MARGIN = 0.3

_METADATA = ("ijbc_metadata.csv", "ijbc_metadata_with_age.csv")
_INCOMPLETE = "without a subject or a box"
#: End of a file name, after which the frames of a video and a photograph are named by their number alone.
_FRAME = r"(?<=[0-9])(?:_[0-9]+)?\.[A-Za-z]+$"
#: Lists of templates and their splits.
_TEMPLATES = {
    "gallery/G1": ("ijbc_1N_gallery_G1.csv", "gallery"),
    "gallery/G2": ("ijbc_1N_gallery_G2.csv", "gallery"),
    "probe": ("ijbc_1N_probe_mixed.csv", "probe"),
}


@dataclass(frozen=True)
class VggFace2(TextListReader):
    """Reader of VGGFace2 (Cao et al., FG 2018): ``train_list.txt`` and ``test_list.txt``, in the folder or ``meta``.

    Lines are paths below ``train`` or ``test``, whose folder names the identity, the only level. The faces are those
    of ``bb_landmark/loose_bb_train.csv`` and ``loose_bb_test.csv`` (NAME_ID, X, Y, W, H); each box is extended by the
    margin.

    Args:
        margin: What is added to width and height of a face's box, as a share of them.
        whole: Take the images as they are, which show more than the face, instead of boxes.
        only_test: Leave out the training images.
    """

    margin: float = PUBLISHED_MARGIN
    whole: bool = False
    only_test: bool = False

    layout = TextLayout(
        lists={"train": "train_list.txt", "test": "test_list.txt"},
        columns=("path",),
        patterns={"path": ("(?P<identity>[^/]+)/[^/]+", "n000002/0001_01.jpg")},
        subfolder="meta",
    )

    def __post_init__(self) -> None:
        require(self.margin >= 0, f"0 or more, such as {PUBLISHED_MARGIN}", margin=self.margin)

    def files(self, root: Path) -> Mapping[str, Path]:
        splits = ["test"] if self.only_test else ["train", "test"]
        names = {split: self.layout.lists[split] for split in splits}
        if not self.whole:
            names |= {f"boxes/{split}": f"bb_landmark/loose_bb_{split}.csv" for split in splits}
        return {role: self.find(root, name) for role, name in names.items()}

    def read(self, root: Path) -> ReaderResult:
        rows = pd.DataFrame(self.rows(root))
        columns = {"path": rows["split"] + "/" + rows["path"], "split": rows["split"]}
        manifest = build_manifest(root, columns, {"identity": rows["identity"]})
        if self.whole:
            return ReaderResult(manifest)
        files = self.files(root)
        paths = rows.groupby("split", sort=False)["path"]
        boxes = np.concatenate([self._boxes(images, files[f"boxes/{split}"]) for split, images in paths])
        return ReaderResult(replace(manifest, boxes=boxes))

    def _boxes(self, images: pd.Series, path: Path) -> NDArray[np.float64]:
        """Return the extended box of each image, which the file has by its name without suffix."""
        columns = read_text_columns(path, ["NAME_ID", "X", "Y", "W", "H"]).to_pandas()
        try:
            known = columns.drop_duplicates("NAME_ID", keep="last").set_index("NAME_ID").astype(np.float64)
        except ValueError as error:
            raise InputError(f"{path}: {error}; expected X, Y, W and H in pixels") from error
        names = [image.rpartition(".")[0] for image in images]
        rows = known.index.get_indexer(names)
        if missing := [name for name, row in zip(names, rows.tolist(), strict=True) if row < 0]:
            raise InputError(
                f"{path}: {len(missing):,} of {len(names):,} images have no box there; take them whole with `whole`:"
                f"\n{indented_list(missing, limit=5)}"
            )
        return extended_boxes(known.to_numpy()[rows], self.margin)


@dataclass(frozen=True)
class IjbC:
    """Reader of IARPA Janus Benchmark C (Maze et al., ICB 2018): faces in photographs and in frames of videos.

    The lists are in ``protocols``, the images below ``images``; the box of each face is extended.

    For ``media``, as in the paper of Smooth-AP, the list is ``ijbc_metadata.csv`` (SUBJECT_ID, FILENAME, FACE_X,
    FACE_Y, FACE_WIDTH, FACE_HEIGHT): all faces with a subject, in one split test. The levels are medium and subject:
    a medium is the faces of a subject in one photograph (``img/1.png``) or in the frames of one video
    (``frames/1_20.png``). Subjects with few media are excluded.

    For ``templates``, the lists are those of 1:N search, ``ijbc_1N_gallery_G1.csv``, ``ijbc_1N_gallery_G2.csv`` and
    ``ijbc_1N_probe_mixed.csv``, which also have TEMPLATE_ID. The splits are gallery and probe; the levels are medium,
    template and subject.

    ``hgld evaluate --protocol templates`` averages the embeddings of each medium, then those of each template.

    Args:
        lists: Rank media (media), or probe templates against those of the gallery (templates).
        min_media: Exclude subjects with fewer media; of media alone.
        margin: What is added to width and height of a face's box, as a share of them.
    """

    lists: Literal["media", "templates"] = "media"
    min_media: int = 5
    margin: float = PUBLISHED_MARGIN

    def __post_init__(self) -> None:
        require(self.margin >= 0, f"0 or more, such as {PUBLISHED_MARGIN}", margin=self.margin)
        require_at_least(1, min_media=self.min_media)

    def files(self, root: Path) -> Mapping[str, Path]:
        folder = root / "protocols"
        if self.lists == "templates":
            return {role: folder / name for role, (name, _) in _TEMPLATES.items()}
        found = [folder / name for name in _METADATA if (folder / name).is_file()]
        return {"metadata": [*found, folder / _METADATA[0]][0]}

    def read(self, root: Path) -> ReaderResult:
        return self._read_templates(root) if self.lists == "templates" else self._read_media(root)

    def _read_media(self, root: Path) -> ReaderResult:
        (path,) = self.files(root).values()
        faces, n_incomplete = _read_faces(path)
        unique = faces.groupby(["subject", "path"], sort=False, as_index=False).last()
        kept = unique[unique.groupby("subject")["medium"].transform("nunique") >= self.min_media]
        if kept.empty:
            raise InputError(f"{path}: no subject has {self.min_media} photographs or videos; set `min_media`")
        excluded = {
            _INCOMPLETE: n_incomplete,
            "that are listed already": len(faces) - len(unique),
            f"of subjects with fewer than {self.min_media} media": len(unique) - len(kept),
        }
        return self._result(root, kept.assign(split="test"), ["medium", "subject"], excluded)

    def _read_templates(self, root: Path) -> ReaderResult:
        read = {role: _read_faces(path, ["TEMPLATE_ID"]) for role, path in self.files(root).items()}
        faces = pd.concat([faces.assign(split=_TEMPLATES[role][1]) for role, (faces, _) in read.items()])
        # A face may be in several templates, and is embedded for each.
        excluded = {_INCOMPLETE: sum(n_incomplete for _, n_incomplete in read.values())}
        return self._result(root, faces, ["medium", "template", "subject"], excluded)

    def _result(
        self, root: Path, faces: pd.DataFrame, levels: list[str], excluded: Mapping[str, int]
    ) -> ReaderResult:
        """Return the manifest of faces; ids begin with the level above media, as an image may have several faces."""
        owner = faces[levels[1]]
        columns = {"id": owner + "/" + faces["path"], "path": "images/" + faces["path"], "split": faces["split"]}
        labels = {"medium": owner + "/" + faces["medium"], **{level: faces[level] for level in levels[1:]}}
        boxes = extended_boxes(faces[list("xywh")].to_numpy(), self.margin)
        return ReaderResult(replace(build_manifest(root, columns, labels), boxes=boxes), excluded)


def _read_faces(path: Path, further: list[str] | None = None) -> tuple[pd.DataFrame, int]:
    """Read the faces of a list, and count those without a subject or a box."""
    sides = {"FACE_X": "x", "FACE_Y": "y", "FACE_WIDTH": "w", "FACE_HEIGHT": "h"}
    names = ["SUBJECT_ID", "FILENAME", *sides, *(further or [])]
    table = read_text_columns(path, names, may_be_missing=("SUBJECT_ID", *sides)).to_pandas()
    try:
        table = table.astype(dict.fromkeys(sides, np.float64))
    except ValueError as error:
        raise InputError(f"{path}: {error}; expected {', '.join(sides)} in pixels") from error
    faces = table[~table["SUBJECT_ID"].isin(["NaN", "nan"])].dropna()
    faces = faces.rename(columns={"SUBJECT_ID": "subject", "FILENAME": "path", "TEMPLATE_ID": "template", **sides})
    if faces.empty:
        raise InputError(f"{path}: none of its {len(table):,} faces has a subject and a box")
    return faces.assign(medium=faces["path"].str.replace(_FRAME, "", regex=True)), len(table) - len(faces)


def extended_boxes(boxes: NDArray[np.float64], margin: float) -> NDArray[np.float64]:
    """Return left, top, right and bottom of boxes (left, top, width, height) extended about their centres: (N, 4).

    The margin is a share of width and height, half of it at each side; the result may reach out of the image.

    >>> extended_boxes(np.array([[100.0, 50.0, 40.0, 60.0]]), margin=0.5).tolist()
    [[90.0, 35.0, 150.0, 125.0]]
    """
    corners, sizes = boxes[:, :2], boxes[:, 2:]
    added = margin / 2 * sizes
    return np.hstack([corners - added, corners + sizes + added])

"""IARPA Janus Benchmark C (Maze et al., ICB 2018): faces in photographs and in frames of videos."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from hgld.datasets.manifest import Manifest
from hgld.datasets.readers.base import ReaderResult
from hgld.datasets.readers.face_boxes import PUBLISHED_MARGIN, check_margin, extended_box
from hgld.datasets.readers.image_files import image_file_manifest
from hgld.errors import ConfigurationError, InputError
from hgld.io.columns import read_text_columns
from hgld.io.images import Box

_BOX = ("FACE_X", "FACE_Y", "FACE_WIDTH", "FACE_HEIGHT")
_METADATA = ("ijbc_metadata.csv", "ijbc_metadata_with_age.csv")
_INCOMPLETE = "without a subject or a box"
_MISSING = (None, "", "NaN", "nan")
#: End of a file name, after which the frames of a video and a photograph are named by their number alone.
_FRAME = re.compile(r"(?<=[0-9])(_[0-9]+)?\.[A-Za-z]+$")
#: Lists of templates and their splits.
_TEMPLATES = {
    "gallery/G1": ("ijbc_1N_gallery_G1.csv", "gallery"),
    "gallery/G2": ("ijbc_1N_gallery_G2.csv", "gallery"),
    "probe": ("ijbc_1N_probe_mixed.csv", "probe"),
}


@dataclass(frozen=True)
class IjbC:
    """Reader of the lists in ``protocols``; images are below ``images``; the box of each face is extended.

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

    Raises:
        ConfigurationError: ``margin`` is below 0, or ``min_media`` below 1.
    """

    lists: Literal["media", "templates"] = "media"
    min_media: int = 5
    margin: float = PUBLISHED_MARGIN

    def __post_init__(self) -> None:
        check_margin(self.margin)
        if self.min_media < 1:
            raise ConfigurationError(f"`min_media` is {self.min_media}; expected 1 or more")

    def files(self, root: Path) -> Mapping[str, Path]:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        folder = root / "protocols"
        if self.lists == "templates":
            return {role: folder / name for role, (name, _) in _TEMPLATES.items()}
        return {
            "metadata": next(
                (folder / name for name in _METADATA if (folder / name).is_file()), folder / _METADATA[0]
            )
        }

    def read(self, root: Path) -> ReaderResult:
        """See :class:`~hgld.datasets.readers.base.Reader`."""
        return self._read_templates(root) if self.lists == "templates" else self._read_media(root)

    def _read_media(self, root: Path) -> ReaderResult:
        (path,) = self.files(root).values()
        faces, n_incomplete = _read_faces(path, self.margin)
        unique = list({(face.subject, face.path): face for face in faces}.values())
        media = defaultdict(set)
        for face in unique:
            media[face.subject].add(face.medium)
        kept = [face for face in unique if len(media[face.subject]) >= self.min_media]
        if not kept:
            raise InputError(f"{path}: no subject has {self.min_media} photographs or videos; set `min_media`")
        levels = {
            "medium": [f"{face.subject}/{face.medium}" for face in kept],
            "subject": [face.subject for face in kept],
        }
        return _result(
            _manifest(root, kept, ["test"] * len(kept), levels, [face.subject for face in kept]),
            {
                _INCOMPLETE: n_incomplete,
                "that are listed already": len(faces) - len(unique),
                f"of subjects with fewer than {self.min_media} media": len(unique) - len(kept),
            },
        )

    def _read_templates(self, root: Path) -> ReaderResult:
        faces: list[_Face] = []
        splits: list[str] = []
        n_incomplete = 0
        for role, path in self.files(root).items():
            listed, n_without = _read_faces(path, self.margin, template="TEMPLATE_ID")
            faces += listed
            splits += [_TEMPLATES[role][1]] * len(listed)
            n_incomplete += n_without
        levels = {
            "medium": [f"{face.template}/{face.medium}" for face in faces],
            "template": [face.template for face in faces],
            "subject": [face.subject for face in faces],
        }
        # A face may be in several templates, and is embedded for each.
        manifest = _manifest(root, faces, splits, levels, [face.template for face in faces])
        return _result(manifest, {_INCOMPLETE: n_incomplete})


class _Face(NamedTuple):
    """A face: its subject, its template or "", the photograph or video that it is in, its file and its box."""

    subject: str
    template: str
    medium: str
    path: str
    box: Box


def _manifest(
    root: Path,
    faces: Sequence[_Face],
    splits: Sequence[str],
    levels: Mapping[str, Sequence[str]],
    prefixes: Sequence[str],
) -> Manifest:
    """Return the manifest of faces; ids begin with prefixes, as an image may have several faces."""
    manifest = image_file_manifest(
        root,
        [f"images/{face.path}" for face in faces],
        splits,
        levels,
        ids=[f"{prefix}/{face.path}" for prefix, face in zip(prefixes, faces, strict=True)],
    )
    return replace(manifest, boxes=np.array([face.box for face in faces]))


def _result(manifest: Manifest, excluded: Mapping[str, int]) -> ReaderResult:
    return ReaderResult(manifest, {reason: count for reason, count in excluded.items() if count})


def _read_faces(path: Path, margin: float, template: str | None = None) -> tuple[list[_Face], int]:
    """Read the faces of a list, and count those without a subject or a box.

    Args:
        path: CSV file.
        margin: What is added to width and height of a box, as a share of them.
        template: Name of the column of templates, if there is one.
    """
    names = ["SUBJECT_ID", "FILENAME", *_BOX, *([] if template is None else [template])]
    columns = read_text_columns(path, names, may_be_missing=("SUBJECT_ID", *_BOX)).to_pydict()
    templates = [""] * len(columns["FILENAME"]) if template is None else columns[template]
    try:
        boxes = list(zip(*([float(text or "nan") for text in columns[name]] for name in _BOX), strict=True))
    except ValueError as error:
        raise InputError(f"{path}: {error}; expected {', '.join(_BOX)} in pixels") from error
    faces = []
    rows = zip(columns["SUBJECT_ID"], templates, columns["FILENAME"], boxes, strict=True)
    for subject, template_id, file, box in rows:
        if subject in _MISSING or any(map(math.isnan, box)):
            continue
        x, y, w, h = box
        faces.append(_Face(subject, template_id, _FRAME.sub("", file), file, extended_box(x, y, w, h, margin)))
    if not faces:
        raise InputError(f"{path}: none of its {len(boxes):,} faces has a subject and a box")
    return faces, len(boxes) - len(faces)

"""Photographs of the landmarks of each label, from tar files, in an order that shows many landmarks first."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from hgld.arrays import Integers
from hgld.errors import ConfigurationError, InputError, indented_list
from hgld.figures.label_map import MapPhotograph
from hgld.figures.photographs import data_url, make_thumbnail
from hgld.gldv2.tar_images import ImageReader
from hgld.io.columns import preview
from hgld.review.labels import label_ids, landmark_link
from hgld.tables import CLEAN, in_order, input_digests, read_table
from hgld.tables.image_landmarks import images_of_landmarks, split_and_path

log = logging.getLogger(__name__)

#: GLDv2's lists of the landmark of each image, by split.
LANDMARK_LISTS = {"train": "train.csv", "index": "index_image_to_landmark.csv"}
#: Photographs per label on a map.
PER_LABEL = 3
#: Total length of the URLs of photographs on a map, in characters: about 1,250 photographs.
MAX_CHARACTERS = 5_000_000
#: Size in pixels and JPEG quality of photographs on a map.
_WIDTH, _HEIGHT, _QUALITY = 128, 96, 60
#: Largest number of photographs of a label that are read for a map; some may be damaged.
_TRIED = 2 * PER_LABEL


@dataclass(frozen=True, slots=True)
class Photograph:
    """A photograph of a landmark, with the title and URL of its category on Commons; the URL is empty without one."""

    image_id: str
    landmark: str
    link: str


class LabelPhotographs:
    """Photographs by label; only their rows in the index are in memory, 8 bytes per photograph.

    The photographs of a label are ordered in rounds. Round i has the i-th photograph of every landmark with at
    least i photographs, in the order of image ids. Within a round, landmarks are in descending order of their
    number of photographs.

    Args:
        reader: Index of the photographs, with their tar files.
        landmarks: ``clean`` table.
        rows: Rows of photographs in the index, int64, shape (n,). The first occurrence of a row counts.
        landmark: Row of each photograph's landmark in ``landmarks``, int64, shape (n,).
        files: Files that determine the photographs of each label.
    """

    def __init__(
        self,
        reader: ImageReader,
        landmarks: pa.Table,
        rows: Integers,
        landmark: Integers,
        files: Sequence[Path] = (),
    ) -> None:
        self.files = files
        self._reader = reader
        self._categories = landmarks["category"]
        self._landmark_ids = landmarks["landmark_id"]
        names, label = np.unique(label_ids(landmarks), return_inverse=True)
        self._labels = {name: number for number, name in enumerate(names.tolist())}
        rows, first = np.unique(rows, return_index=True)
        landmark = landmark[first]
        order = _in_rounds(label[landmark], landmark)
        self._rows = rows[order].astype(np.int32)
        self._landmark = landmark[order].astype(np.int32)
        #: Label i has the photographs from _starts[i] to _starts[i + 1].
        self._starts = np.searchsorted(label[self._landmark], np.arange(len(names) + 1))
        self._n_landmarks = np.bincount(label[np.unique(landmark)], minlength=len(names))

    def count(self, label_id: str) -> tuple[int, int]:
        """Return the number of photographs of a label, and the number of landmarks on them."""
        if label_id not in self._labels:
            return 0, 0
        span = self._span(label_id)
        return span.stop - span.start, int(self._n_landmarks[self._labels[label_id]])

    def of_label(self, label_id: str, start: int = 0, stop: int | None = None) -> list[Photograph]:
        """Return the photographs of a label from number ``start`` to before ``stop``; None: to the last."""
        span = self._span(label_id)
        rows = self._rows[span][start:stop].tolist()
        landmarks = self._landmark[span][start:stop].tolist()
        return [
            self._photograph(row, landmark) for row, landmark in zip(rows, landmarks, strict=True)
        ]

    def read(self, image_id: str) -> bytes:
        """Return the content of a photograph.

        Raises:
            KeyError: The index has no such photograph.
            InputError: The tar file no longer exists, or differs from the indexed file.
        """
        try:
            row = int(self._reader.positions([image_id])[0])
        except InputError:
            raise KeyError(image_id) from None
        return self._reader.read_at(row)

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of the files that determine the photographs of each label, by role."""
        return input_digests(photographs=self.files)

    def of_labels(
        self,
        label_ids: Sequence[str],
        *,
        per_label: int = PER_LABEL,
        max_characters: int = MAX_CHARACTERS,
    ) -> dict[str, list[MapPhotograph]]:
        """Return small photographs by label_id: one of each label, then a second of each, until the limit.

        Args:
            label_ids: Labels in descending order of importance.
            per_label: Largest number of photographs of a label.
            max_characters: Largest total length of all URLs.
        """
        waiting = {label_id: self.of_label(label_id, 0, _TRIED) for label_id in label_ids}
        chosen: dict[str, list[MapPhotograph]] = {}
        n_left = max_characters
        for _ in range(per_label):
            for label_id, photographs in waiting.items():
                embedded = None
                while photographs and embedded is None:
                    embedded = self._embed(photographs.pop(0))
                if embedded is None:
                    continue
                n_left -= len(embedded.url)
                if n_left < 0:
                    return chosen
                chosen.setdefault(label_id, []).append(embedded)
        return chosen

    def _embed(self, photograph: Photograph) -> MapPhotograph | None:
        """Return the photograph with its pixels; log a warning and return None if it is unreadable."""
        try:
            data = self.read(photograph.image_id)
            jpeg = make_thumbnail(data, _WIDTH, _HEIGHT, crop=True, quality=_QUALITY)
        except (InputError, OSError) as error:
            log.warning("the photograph %s is left out: %s", photograph.image_id, error)
            return None
        return MapPhotograph(photograph.landmark, data_url(jpeg))

    def _span(self, label_id: str) -> slice:
        """Return the places of a label's photographs."""
        if label_id not in self._labels:
            return slice(0, 0)
        number = self._labels[label_id]
        return slice(int(self._starts[number]), int(self._starts[number + 1]))

    def _photograph(self, row: int, landmark: int) -> Photograph:
        landmark_id = self._landmark_ids[landmark].as_py()
        name, link = landmark_link(landmark_id, self._categories[landmark].as_py())
        return Photograph(self._reader.id_at(row), name, link)


def open_photographs(
    images: Path | None, clean: Path, image_landmarks: Sequence[Path | tuple[str, Path]] = ()
) -> LabelPhotographs | None:
    """Open the photographs of all labels; return None if ``images`` is None.

    Takes 10 s of one core for the 4.1 million photographs of GLDv2's train split.

    Args:
        images: Table of ``hgld index-images``, in the folder that was indexed.
        image_landmarks: Files with the landmark of each image, see
            :func:`hgld.tables.image_landmarks.read_image_landmarks`; by default GLDv2's lists beside ``images``.

    Raises:
        ConfigurationError: GLDv2's lists are missing beside ``images``, the split of a file is unknown, or
            ``image_landmarks`` is given without ``images``.
    """
    if images is None:
        if image_landmarks:
            raise ConfigurationError(
                "`image_landmarks` names the landmarks of photographs; name these in `images`"
            )
        return None
    if images.is_dir():
        raise InputError(
            f"{images}: a folder; index its tar files: hgld index-images {images} -o {images / 'images.parquet'}"
        )
    if not images.is_file():
        raise InputError(f"{images}: no such file; hgld index-images writes it")
    landmarks = read_table(clean, CLEAN)
    landmarks = landmarks.sort_by([("split", "descending"), ("landmark_id", "ascending")])
    lists = _landmark_lists(images, landmarks, image_landmarks)
    reader = ImageReader(images, images.parent)
    _check_shards(reader, images)
    ids, landmark = images_of_landmarks(lists, landmarks)
    rows = reader.find(ids)
    if not (rows >= 0).any():
        paths = indented_list([str(path) for _, path in lists])
        raise InputError(
            f"{images}: holds no photograph of a landmark in {clean}, by\n{paths}\n"
            "Index the tar files of these images, or name other files in `image_landmarks`"
        )
    files = [images, clean] + [path for _, path in lists]
    photographs = LabelPhotographs(reader, landmarks, rows[rows >= 0], landmark[rows >= 0], files)
    pa.default_memory_pool().release_unused()  # the lists take several times the final memory
    return photographs


def _check_shards(reader: ImageReader, images: Path) -> None:
    missing = [shard for shard in reader.shards if not (images.parent / shard).is_file()]
    if missing and len(missing) == len(reader.shards):
        raise InputError(
            f"{images}: none of its tar files ({preview(missing)}) is below {images.parent}; move the table into the "
            "folder that was indexed, or run hgld index-images again"
        )
    if missing:
        log.warning(
            "%s: no tar file %s; its photographs are not shown", images.parent, preview(missing)
        )


def _landmark_lists(
    images: Path, landmarks: pa.Table, image_landmarks: Sequence[Path | tuple[str, Path]]
) -> list[tuple[str, Path]]:
    """Return the files with the landmark of each image, with their splits."""
    splits = in_order(landmarks["split"].unique().to_pylist())
    lists = []
    for item in image_landmarks:
        lists.append(split_and_path(item, splits, parameter="image_landmarks"))
    if image_landmarks:
        return lists
    names = []
    for split in splits:
        path = images.with_name(LANDMARK_LISTS.get(split, f"{split}.csv"))
        names.append(path.name)
        if path.is_file():
            lists.append((split, path))
    if not lists:
        raise ConfigurationError(
            f"{images.parent}: has no {' or '.join(names)}; name the file with the landmark of each image in "
            "`image_landmarks`"
        )
    return lists


def _in_rounds(label: Integers, landmark: Integers) -> Integers:
    """Return the order of photographs by label, round, descending size of the landmark, and landmark."""
    by_landmark = np.argsort(landmark, kind="stable")
    count = np.bincount(landmark)
    first = np.cumsum(count) - count
    rounds = np.empty_like(landmark)
    rounds[by_landmark] = np.arange(len(landmark)) - first[landmark[by_landmark]]
    return np.lexsort((landmark, -count[landmark], rounds, label))

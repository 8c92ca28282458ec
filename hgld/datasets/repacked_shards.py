"""Images as ``hgld repack`` stores them, and the folder that it writes.

A reduced image has the pixels of :func:`hgld.io.images.upright_rgb`, such as the first frame, turned
as EXIF says. Copied files stay unchanged, and are read like the original.

The folder has tar files of a fixed number of images each, and a record of each tar file:

- ``images_00000.tar``, ``images_00001.tar``, ...: images in the order of the manifest. Ids of GLDv2
  are stored as in its own tar files, ``a/b/c/abc….jpg``, so that ``hgld index-images`` finds them by
  id, too.
- ``images_00000.json``, ...: the places of images in the tar file, and its SHA-256. The record is
  written last, so a tar file with a record is complete.
- ``made_of.json``: the settings, and a digest of the original images (:mod:`hgld.parted_output`).
- ``sha256sums.txt``: the digests of the tar files, for ``sha256sum --check`` on the machine to which
  the folder is copied.
"""

from __future__ import annotations

import io
import json
import math
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from PIL import Image

from hgld.datasets.encoded_images import EncodedImages, SkippedImage
from hgld.errors import HgldError
from hgld.io.files import atomic_write, sha256_of
from hgld.io.images import SUFFIXES, Box, UnreadableImageError, box_inside, open_image, upright_rgb
from hgld.parted_output import Shards
from hgld.progress import Progress

_SUMS = "sha256sums.txt"
_GLDV2_ID = re.compile("[0-9a-f]{16}")
#: Suffixes by format; the other formats that are read are kinds of JPEG.
_SUFFIXES = {"PNG": ".png", "WEBP": ".webp", "GIF": ".gif", "BMP": ".bmp", "TIFF": ".tif"}
_JPEG = ".jpg"
#: Number of images that a worker process reads at once.
_CHUNK = 16


@dataclass(frozen=True)
class RepackedImage:
    """An encoded image.

    Args:
        data: Content of the file.
        suffix: Suffix of its format, such as ``.jpg``.
        box: The part of the image that counts, in its pixels; None for the whole image.
        is_copy: Whether this is the original file.
    """

    data: bytes
    suffix: str
    box: Box | None
    is_copy: bool


def repack_image(data: bytes, box: Box | None, size: int | None, quality: int) -> RepackedImage:
    """Reduce an image, and encode it as JPEG, unless it is small already.

    The image is decoded in any case, to detect damage. JPEG files of more than twice the size are
    decoded at a half, a quarter or an eighth, which is still at least twice the size.

    Args:
        data: Content of the file.
        box: The part of the image that counts, in pixels: left, top, right, bottom; None for the
            whole image.
        size: Length to which the shorter side of the image, or of its box, is reduced, in pixels;
            the other side keeps the aspect ratio. None for the original file.
        quality: Quality of JPEG, 1 to 100.

    Returns:
        The reduced image; or the original file, if the image is no larger.

    Raises:
        UnreadableImageError: The image is damaged, or the box is outside of it.
    """
    image = open_image(data)
    suffix = _SUFFIXES.get(image.format or "", _JPEG)
    # A box is in pixels of the upright image at full size.
    upright = upright_rgb(image, size if box is None else None)
    left, top, right, bottom = box_inside(box, upright) or (0, 0, *upright.size)
    shorter = min(right - left, bottom - top)
    if size is None or shorter <= size:
        return RepackedImage(data, suffix, box, is_copy=True)
    width = max(round(upright.width * size / shorter), 1)
    height = max(round(upright.height * size / shorter), 1)
    encoded = io.BytesIO()
    upright.resize((width, height), Image.Resampling.BICUBIC).save(encoded, "JPEG", quality=quality)
    reduced_box = None
    if box is not None:
        x_scale = width / upright.width
        y_scale = height / upright.height
        reduced_box = (left * x_scale, top * y_scale, right * x_scale, bottom * y_scale)
    return RepackedImage(encoded.getvalue(), _JPEG, reduced_box, is_copy=False)


class RepackedImages:
    """The images of a manifest at their new size, by row; see :func:`repack_image`."""

    def __init__(self, encoded: EncodedImages, size: int | None, quality: int) -> None:
        self.root = encoded.root
        self._encoded = encoded
        self._size = size
        self._quality = quality

    def __getitem__(self, row: int) -> RepackedImage | SkippedImage:
        """Return the image of a row, or the reason why it cannot be read.

        Raises:
            InputError: The tar file of the image cannot be read, or differs from the indexed file.
        """
        manifest = self._encoded.manifest
        try:
            data = self._encoded.read(row)
            return repack_image(data, manifest.box(row), self._size, self._quality)
        except UnreadableImageError as error:
            return SkippedImage(row, f"{manifest.ids[row]}: {error.description}")

    def n_bytes(self, row: int) -> int:
        """Return the size of the original file of an image; 0 if there is none."""
        size = int(self._encoded.manifest.sizes[row])
        if size >= 0:
            return size
        path = self.root / self._encoded.manifest.paths[row]
        return path.stat().st_size if path.is_file() else 0

    def load(
        self, ranges: Sequence[range], workers: int, progress: Progress
    ) -> Iterator[RepackedImage | SkippedImage]:
        """Yield the images of ranges of rows in order, read by worker processes.

        Args:
            ranges: Ranges of rows.
            workers: Number of processes; 0 to read in the calling process.
            progress: Progress bar over the images.
        """
        from hgld.datasets.loading import worker_loader  # imports torch

        chunks = []
        for rows in ranges:
            for start in range(0, len(rows), _CHUNK):
                chunks.append(rows[start : start + _CHUNK])
        for images in worker_loader(self._read_rows, chunks, workers):
            if isinstance(images, HgldError):
                raise images
            for image in images:
                progress.advance()
                yield image

    def _read_rows(self, rows: range) -> list[RepackedImage | SkippedImage]:
        return [self[row] for row in rows]


@dataclass
class ShardRecord:
    """Contents of a tar file.

    Args:
        rows: Row in the manifest of each of its n images, ascending.
        offsets: Position of the first byte of each image.
        sizes: Number of bytes of each image.
        boxes: Part of each image that counts, in its pixels; None for the whole image.
        skipped: Row and reason of each image that could not be read.
        copies: Number of images that are the original files.
        n_bytes: Size of the tar file.
        sha256: SHA-256 of the tar file in hexadecimal.
    """

    rows: list[int]
    offsets: list[int]
    sizes: list[int]
    boxes: list[Box | None]
    skipped: list[tuple[int, str]]
    copies: int = 0
    n_bytes: int = 0
    sha256: str = ""


class RepackedShards(Shards):
    """The tar files of a folder.

    Args:
        folder: The folder.
        n_images: Number of all images.
        shard_size: Number of images of a tar file.
    """

    def __init__(self, folder: Path, n_images: int, shard_size: int) -> None:
        super().__init__(n_images, shard_size)
        self.folder = folder

    def records(self, numbers: Iterable[int], *, verify: bool) -> dict[int, ShardRecord]:
        """Return the records of complete tar files, by number.

        A tar file is complete if it has a record and its size; if ``verify`` is set, also its
        SHA-256.
        """
        records = {}
        for number in numbers:
            path = self.path(number)
            try:
                record = ShardRecord(**json.loads(self._record_path(number).read_text()))
                is_complete = record.n_bytes == path.stat().st_size
            except (FileNotFoundError, ValueError, TypeError):  # not written yet, or damaged
                continue
            if is_complete and verify:
                is_complete = record.sha256 == sha256_of(path)
            if is_complete:
                records[number] = record
        return records

    def write(
        self,
        number: int,
        rows: Sequence[int],
        ids: Sequence[str],
        images: Iterable[RepackedImage | SkippedImage],
    ) -> ShardRecord:
        """Write the tar file of some rows of the manifest and its record, replacing earlier ones."""
        # The record describes the file that is now replaced.
        self._record_path(number).unlink(missing_ok=True)
        record = ShardRecord(rows=[], offsets=[], sizes=[], boxes=[], skipped=[])
        with atomic_write(self.path(number)) as draft:
            with tarfile.open(draft, "w", format=tarfile.PAX_FORMAT) as archive:
                for row, image_id, image in zip(rows, ids, images, strict=True):
                    if isinstance(image, SkippedImage):
                        record.skipped.append((row, image.reason))
                    else:
                        record.rows.append(row)
                        record.offsets.append(_add(archive, image_id, image))
                        record.sizes.append(len(image.data))
                        record.boxes.append(image.box)
                        record.copies += image.is_copy
            record.n_bytes = draft.stat().st_size
            record.sha256 = sha256_of(draft)
        with atomic_write(self._record_path(number)) as draft:
            draft.write_text(json.dumps(asdict(record)))
        return record

    def write_sums(self, records: Iterable[ShardRecord]) -> None:
        """Write the digests of all tar files, in the format of ``sha256sum``."""
        lines = []
        for number, record in enumerate(records):
            lines.append(f"{record.sha256}  {self.path(number).name}\n")
        with atomic_write(self.folder / _SUMS) as draft:
            draft.write_text("".join(lines))

    def path(self, number: int) -> Path:
        """Return the path of a tar file."""
        return self.folder / f"images_{number:05}.tar"

    def _record_path(self, number: int) -> Path:
        return self.path(number).with_suffix(".json")


def _add(archive: tarfile.TarFile, image_id: str, image: RepackedImage) -> int:
    """Append an image to a tar file, and return its offset.

    The entry has no time and no owner, so that equal images give an equal file.
    """
    member = tarfile.TarInfo(_member_name(image_id, image.suffix))
    member.size = len(image.data)
    archive.addfile(member, io.BytesIO(image.data))
    archive.members.clear()  # type: ignore[attr-defined]  # a list of all images would fill the memory
    n_blocks = math.ceil(member.size / tarfile.BLOCKSIZE)
    return archive.offset - n_blocks * tarfile.BLOCKSIZE


def _member_name(image_id: str, suffix: str) -> str:
    """Return a name that shows the id of an image, and extracts to a file below the folder.

    >>> _member_name("0af3c0ffee000000", ".jpg"), _member_name("../Fruit/1.JPEG", ".jpg"), _member_name("7", ".png")
    ('0/a/f/0af3c0ffee000000.jpg', 'Fruit/1.JPEG', '7.png')
    """
    if _GLDV2_ID.fullmatch(image_id):
        return "/".join([*image_id[:3], image_id + suffix])
    parts = [part for part in PurePosixPath(image_id).parts if part not in ("/", ".", "..")]
    name = "/".join(parts) or "image"
    if name.lower().endswith(SUFFIXES):
        return name
    return name + suffix

"""Bytes of a manifest's images, in a module that does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hgld.datasets.manifest import Manifest
from hgld.errors import InputError, indented_list
from hgld.gldv2.tar_images import TarFiles
from hgld.io.images import UnreadableImageError


@dataclass(frozen=True)
class SkippedImage:
    """An image that could not be read.

    Args:
        row: Row of the image in the manifest.
        reason: Why it could not be read, beginning with the id of the image.
    """

    row: int
    reason: str


class EncodedImages:
    """Reader of the encoded bytes of a manifest's images, from image files and tar files.

    It may be sent to worker processes.

    Args:
        manifest: The images.
        root: Folder to which the paths of the manifest are relative.

    Raises:
        InputError: The folder or a tar file is missing.
    """

    def __init__(self, manifest: Manifest, root: Path) -> None:
        self.manifest = manifest
        self.root = root
        if not root.is_dir():
            raise InputError(
                f"{root}: no such folder; name the one that the paths of the manifest are relative to"
            )
        tars = manifest.paths[manifest.offsets >= 0].distinct()
        missing = [path for path in tars if not (root / path).is_file()]
        if missing:
            raise InputError(
                f"{root}: {len(missing):,} of the manifest's {len(tars):,} tar files are not in this folder; name "
                f"the folder that was indexed, or fetch them again:\n{indented_list(missing)}"
            )
        self._tars = TarFiles(root)

    def read(self, row: int) -> bytes:
        """Return the bytes of the image in a row.

        Raises:
            InputError: The tar file of the image cannot be read, or differs from the indexed file.
            UnreadableImageError: The image file cannot be read.
        """
        path: str = self.manifest.paths[row]
        offset = int(self.manifest.offsets[row])
        if offset >= 0:
            return self._tars.read(path, offset, int(self.manifest.sizes[row]))
        try:
            return (self.root / path).read_bytes()
        except OSError as error:
            raise UnreadableImageError(f"{self.root / path}: {error.strerror}") from error

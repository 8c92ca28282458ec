"""The images of a manifest as tensors; an unreadable image is reported, never replaced by another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.utils.data import Dataset

from hgld.datasets.batch import Example, SkippedImage
from hgld.datasets.encoded_images import EncodedImages
from hgld.datasets.manifest import Manifest
from hgld.datasets.normalisation import Normalisation
from hgld.datasets.pictures import open_picture
from hgld.datasets.transforms import Transform
from hgld.errors import InputError, indented_list
from hgld.io.images import UnreadableImageError, box_inside


class ImageDataset(Dataset[Example | SkippedImage]):
    """The images of a manifest, for use in forked or spawned worker processes.

    An index is a row, or a pair of a row and a seed. With a seed, the random numbers of the transform depend on the
    seed alone, so an image has the same pixels in whichever process it is read. Without one, the transform draws from
    torch's global generator.

    Args:
        manifest: The images.
        root: Folder that the paths of the manifest are relative to.
        transform: Transform of the pixels; see :mod:`hgld.datasets.transforms`.

    Attributes:
        normalisation: Function from the pixels of an example to the input of a model.

    Raises:
        InputError: The folder does not exist, or tar files are missing from it.
    """

    def __init__(self, manifest: Manifest, root: Path, transform: Transform) -> None:
        self.manifest, self.root, self._transform = manifest, root, transform
        self.normalisation: Normalisation | None = transform.normalisation
        self._encoded = EncodedImages(manifest, root)

    def __len__(self) -> int:
        return len(self.manifest)

    def __getitem__(self, index: int | tuple[int, int]) -> Example | SkippedImage:
        """Return the image of a row, or why it could not be read.

        Raises:
            InputError: The tar file of the image cannot be read, or is not the one that was indexed.
        """
        row, seed = index if isinstance(index, tuple) else (index, None)
        try:
            picture = open_picture(self._encoded.read(row))
            box = box_inside(self.manifest.box(row), picture)
            with _torch_seed(seed):
                pixels = self._transform.pixels(picture, box)
        except UnreadableImageError as error:
            detail = f" ({error.detail})" if error.detail else ""
            return SkippedImage(row, f"{self.manifest.ids[row]}: {error}{detail}")
        return Example(pixels, torch.from_numpy(self.manifest.labels_of(row)), row)

    def require_readable(self) -> None:
        """Check, before any work, that images can be read; images are tried until the first that is readable.

        Raises:
            InputError: No image can be read; or see :meth:`__getitem__`.
        """
        reasons = []
        for row in range(len(self)):
            example = self[row]
            if isinstance(example, Example):
                return
            reasons.append(example.reason)
        raise InputError(
            f"{self.root}: none of the {len(self):,} images can be read; is this the folder that the paths of the "
            f"manifest are relative to?\n{indented_list(reasons, limit=5)}"
        )


@contextmanager
def _torch_seed(seed: int | None) -> Iterator[None]:
    """Seed torch's CPU generator within the block, and restore its state afterwards."""
    if seed is None:
        yield
        return
    state = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(state)

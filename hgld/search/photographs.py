"""The photographs of a gallery, for pages that show them."""

from __future__ import annotations

from pathlib import Path

from hgld.datasets.image_sources import read_images
from hgld.errors import HgldError
from hgld.inspection.thumbnails import FindImage, images_of_manifest
from hgld.models.embedding_files import read_embedding_record


def gallery_photographs(embeddings: Path, images: Path | None = None, root: Path | None = None) -> FindImage:
    """Find the photographs of a gallery by id.

    Args:
        embeddings: File of the embeddings of the gallery.
        images: Manifest, table of ``hgld index-images``, or folder of the images. Default: what ``hgld embed-images``
            embedded; without it, there are no photographs.
        root: Folder that paths in a table are relative to. Default: the folder of the table, or the one that was
            recorded.

    Raises:
        InputError: ``images`` is none of these.
    """
    if images is not None:
        return images_of_manifest(read_images(images), root or (images if images.is_dir() else images.parent))
    record = read_embedding_record(embeddings)
    try:
        if record is not None:
            return images_of_manifest(read_images(record.sources.images), root or record.sources.root)
    except HgldError:  # the images are no longer there
        pass
    return lambda _: None
